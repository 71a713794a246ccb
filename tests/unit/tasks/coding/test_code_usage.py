"""How main uses aux. Every case is a body of `def f(x):` with the verdict written beside it."""

import pytest

from jaxmarl_llm.tasks.coding.usage import (
    calls_function,
    ignores_result,
    ignores_result_comlrl,
    is_thin_wrapper,
)


def f(body: str, params: str = "x") -> str:
    return f"def f({params}):\n" + "\n".join("    " + line for line in body.split("\n"))


@pytest.mark.parametrize("source, expected", [
    (f("return aux(x)"), True),
    (f("for i in range(aux(x)):\n    pass\nreturn 1"), True),
    (f("return [aux(i) for i in x]"), True),
    (f("return x"), False),
    (f("# aux(x)\nreturn 'aux(x)'"), False),
    (f("return self.aux(x)"), False),
    (f("return map(aux, x)"), False),  # named, not called
    (f("return aux(x)", "x, aux"), False),  # its own parameter
    (f("aux = len\nreturn aux(x)"), False),  # its own variable
    (f("def aux(y):\n    return y\nreturn aux(x)"), False),  # its own function
    (f("from m import aux\nreturn aux(x)"), False),
    ("def f(x:\n    return aux(x)", False),  # does not parse
    ("", False),
])
def test_calls_function(source, expected):
    assert calls_function(source) is expected


@pytest.mark.parametrize("body, expected", [
    ("return aux(x)", True),
    ('"""Doc."""\nreturn aux(x)', True),
    ("return aux(x) + 1", True),  # one return that contains a call
    ("return sorted(aux(x))", True),
    ("v = aux(x)\nreturn v", True),
    ('"""Doc."""\n# note\nv = aux(x)\nreturn v', True),
    ('"""Doc."""', True),  # empty
    ("return x", False),
    ("v = aux(x) + 1\nreturn v", False),
    ("v = aux(x)\nreturn v + 1", False),
    ("v = aux(x)\nreturn w", False),
    ("v = w = aux(x)\nreturn v", False),
    ("if not x:\n    return 0\nreturn aux(x)", False),
    ("v = aux(x)\nv = v\nreturn v", False),
    ("return", False),
])
def test_is_thin_wrapper(body, expected):
    assert is_thin_wrapper(f(body)) is expected


@pytest.mark.parametrize("body, expected", [
    ("aux(x)\nreturn x", True),
    ("v = aux(x)\nreturn x", True),
    ("_ = aux(x)\nreturn x", True),
    ("a, *b = aux(x)\nreturn x", True),
    ("v: int = aux(x)\nreturn x", True),
    ("v = 0\nw = v\nv = aux(x)\nreturn w", True),  # read before, not after
    ("v = aux(x)\nv = len(x)\nreturn v", True),  # overwritten before it is read
    ("x = aux(x)\nreturn 1", True),  # only its own argument
    ("if x:\n    aux(x)\nreturn x", True),
    ("v = aux(x)\nreturn v", False),
    ("v = aux(x)\nv = v + 1\nreturn v", False),  # the overwriting statement reads it
    ("v = aux(x)\nv += 1\nreturn 1", False),
    ("v = aux(x)\nif x:\n    v = 0\nreturn v", False),  # overwritten in one branch only
    ("v = 0\nfor i in x:\n    print(v)\n    v = aux(i)\nreturn 1", False),  # read in the next round
    ("a, b = aux(x)\nreturn b", False),
    ("out = {}\nout[0] = aux(x)\nreturn out", False),
    ("aux(x)\nreturn aux(x) + 1", False),  # one of two calls is used
    ("aux(x).sort()\nreturn x", False),
    ("if aux(x):\n    return 1\nreturn 0", False),
    ("return x", False),  # no call at all
    ("def aux(y):\n    return y\naux(x)\nreturn x", False),  # not the partner's
])
def test_ignores_result(body, expected):
    assert ignores_result(f(body)) is expected


@pytest.mark.parametrize("body, expected", [
    ("aux (x)\nreturn x", True),  # one white space, one character: all that the pattern finds
    ("aux(x)\nreturn x", False),
    ("aux (x, y)\nreturn x", False),
    ("aux()\nreturn x", False),
    ("v = aux (x)\nreturn x", False),  # no statement of its own
])
def test_comlrl_pattern(body, expected):
    assert ignores_result_comlrl(f(body)) is expected


def test_nothing_raises_on_any_prefix():
    source = f("a, b = aux(x)\nwhile a:\n    a = aux(a)\n    b += a\nv: int = aux(b)\nreturn (v := aux(v))")
    for end in range(len(source) + 1):
        for judge in (calls_function, is_thin_wrapper, ignores_result, ignores_result_comlrl):
            assert judge(source[:end]) in (True, False)
