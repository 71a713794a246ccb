"""Extraction of functions from what models write: fences, prose, duplicates, truncation, garbage."""

import random

import pytest

from jaxmarl_llm.tasks.coding.text import clean, extract_function, function_node, has_return
from jaxmarl_llm.tasks.program_text.python_text import parse

AUX = "def aux(x):\n    return x + 1"
WHOLE = '''Sure! Here is the code:

```python
import math

def aux(x):
    """Helper."""
    if x > 0:
        return x

    return -x


def main(a, b):
    total = aux(a) + aux(b)
    return total
```

This adds (both) numbers: it's simple.
'''


@pytest.mark.parametrize("text", [
    AUX,
    f"```python\n{AUX}\n```",
    f"```\n{AUX}\n```\nThis function adds one.",
    f"Here you go:\n\n{AUX}\n\nIt isn't hard!",
    f"{AUX}\n```",  # a closing fence alone
    f"```py\n{AUX}",  # an opening fence alone
    AUX.replace("\n", "\r\n"),
    f"import math\n\n{AUX}\n\nprint(aux(3))",
    f"@cache\n{AUX}\n\ndef other(y):\n    return y",
    f"{AUX}\n    print((",  # an unfinished line behind a finished function
    f"{AUX}\n    This is what it does: nothing",
    "    def aux(x):\n        return x + 1\n    done",  # indented as a whole
    f"def aux(x):\n    pass\n\n{AUX}",  # the skeleton comes back first
    f"def aux(x:\n    return\n\n{AUX}",  # a broken one first
    f"{AUX}\n\ndef aux(x):\n    return 0",  # the first whole one counts
    f"class A:\n    def aux(self):\n        return 0\n\n{AUX}",  # the left margin comes first
])
def test_the_function_and_nothing_else(text):
    assert extract_function(text, "aux") == AUX


def test_two_functions_in_one_answer():
    assert extract_function(WHOLE, "aux") == (
        'def aux(x):\n    """Helper."""\n    if x > 0:\n        return x\n\n    return -x'
    )
    assert extract_function(WHOLE, "main") == "def main(a, b):\n    total = aux(a) + aux(b)\n    return total"


@pytest.mark.parametrize("text", ["", "aux", "def aux", "def aux2(x):\n    return x", "# def aux(x):"])
def test_absent(text):
    assert extract_function(text, "aux") == ""


def test_a_signature_and_a_docstring_may_cross_the_left_margin():
    text = 'def aux(\n    a,\n    b,\n):\n    """First\nsecond\n    """\n    return a\nprose'
    assert extract_function(text, "aux") == text.removesuffix("\nprose")


def test_truncated_after_a_return_keeps_what_parses():
    text = "def aux(x):\n    if x:\n        return 1\n    else:\n        return ((2"
    # The last line does not parse; without it `else:` has no body; without both the function is whole.
    assert extract_function(text, "aux") == "def aux(x):\n    if x:\n        return 1"


def test_what_never_parses_is_given_back_as_it_stands():
    text = "def aux(x:\n    return x\nprose"
    assert extract_function(text, "aux") == "def aux(x:\n    return x"
    assert has_return("def aux(x:\n    return x")
    assert extract_function("def aux(x):\n    y = 1\n", "aux") == "def aux(x):\n    y = 1"
    assert not has_return("def aux(x):\n    y = 1")


@pytest.mark.parametrize("source, expected", [
    ("def f(x):\n    return x", True),
    ("def f(x):\n    for i in x:\n        if i:\n            return i", True),
    ("def f(x): return x", True),
    ("def f(x):\n    return", False),  # nothing comes back
    ("def f(x):\n    print('return x')", False),
    ("def f(x):\n    def g():\n        return 1\n    g()", False),
    ("def f(x):\n    g = lambda: 1", False),
    ("def f(x:\n    retur x", False),  # does not parse and has no return line
    ("", False),
])
def test_has_return(source, expected):
    assert has_return(source) is expected


def test_clean_takes_fences_and_carriage_returns_only():
    assert clean("Look:\r\n```python\nx = 1\n```\nDone.") == "Look:\n\nx = 1\n\nDone."


def test_parse_of_hopeless_text_is_none():
    assert parse("x = \0") is None
    assert parse("(" * 500 + ")" * 500) is None
    assert parse("-" * 100_000 + "1") is None
    assert parse("\ud800") is None
    assert parse("x = '\\d'") is not None  # an invalid escape warns, and warnings are errors here
    assert function_node("x = 1") is None


def test_nothing_raises_on_any_prefix():
    for end in range(len(WHOLE) + 1):
        prefix = WHOLE[:end]
        for name in ("aux", "main"):
            source = extract_function(prefix, name)
            assert source == "" or source.startswith(f"def {name}")
            assert has_return(source) in (True, False)
    # Whatever follows the finished function, it stays whole.
    finished = WHOLE.index("return -x") + len("return -x")
    for end in range(finished, len(WHOLE) + 1):
        assert extract_function(WHOLE[:end], "aux").endswith("return -x")


def test_nothing_raises_on_garbled_text():
    rng = random.Random(0)
    alphabet = list("()[]{}:'\"\\\n \t#`\0\udc80é=") + ["def aux(", "return ", "```", '"""', "    ", "lambda"]
    for _ in range(300):
        text = list(WHOLE)
        for _ in range(rng.randint(1, 8)):
            text.insert(rng.randrange(len(text)), rng.choice(alphabet))
        for name in ("aux", "main"):
            has_return(extract_function("".join(text), name))
