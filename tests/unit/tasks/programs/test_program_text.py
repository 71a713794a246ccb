"""jaxmarl_llm/tasks/programs/text.py: programs out of ugly answers, and when two are the same."""

import random

import pytest

from jaxmarl_llm.tasks.coding.sources import source
from jaxmarl_llm.tasks.program_text.answers import digest, line_reward, program, same_program
from jaxmarl_llm.tasks.program_text.cpp_text import masked, tokens
from jaxmarl_llm.tasks.program_text.python_text import bound, parse

F = "def f(xs):\n    return sum(xs)\n"
WITH_HELPER = f"import math\nfrom bisect import insort\n\nLIMIT = 3\n\ndef help(x):\n    return x\n\n{F}"
LATE_HELPER = f"{F}\ndef help(x):\n    return x\n"


@pytest.mark.parametrize("text, wanted", [
    (F, F),
    (f"```python\n{F}```", F),
    (f"```Python3 title=x\n{F}```\nIt sums (fast).", F),
    (f"~~~\n{F}~~~", F),
    (f"Sure!\n\n   ```\n{F}   ```\n", F),
    (f"```python\n{F}", F),  # never closed
    (f"{F}```\nThis function sums.", F),  # never opened
    (F.replace("\n", "\r\n"), F),
    (f"```py\n{WITH_HELPER}```", WITH_HELPER),
    (WITH_HELPER, WITH_HELPER),
    (f"Here it is:\n\n{WITH_HELPER}\nWe import the math module.", WITH_HELPER),
    (f"import the list and sum it:\n{F}", F),  # prose that begins like code
    (f"from the left to the right\n\n{F}", F),
    (f"```\n{LATE_HELPER}```", LATE_HELPER),
    (f"```\n{LATE_HELPER}\ndef third(x):\n    retur (\n```", LATE_HELPER),  # an unfinished third one
    (f"{F}\nNote\n", F),  # prose that parses
    (f"{F}\nprint(f([1, 2]))\nassert f([]) == 1\nf([3])\n", F),  # demonstrations at the end
    (f"{F}\nimport sys\nsys.setrecursionlimit(9)\n", f"{F}\nimport sys\nsys.setrecursionlimit(9)\n"),
    (f"```bash\npip install x\n```\n```python\n{F}```", F),  # the block that defines it
    (f"```python\ndef g():\n    pass\n```\nand\n```\n{F}```", f"def g():\n    pass\n\n{F}"),  # a helper
    (f"```\nimport math\n```\n```\nLIMIT = 3\n```\n```\n{F}```", f"import math\n\nLIMIT = 3\n\n{F}"),
    (f"```\nxs = list(range(9))\n```\n```\nprint(1)\n```\n```\n{F}```", F),  # demonstrations
    (f"```\n{F}```\nIt needs\n```\nimport math\n```", F),  # nothing from behind it
    (f"```\ndef f(x:\n```\n```\n{F}```", F),  # whole before broken
    (f"```\n{F}```\n```\n{F.replace('sum', 'max')}```", F.replace("sum", "max")),  # the last of two
    (f"```\n{F}```\n```\ndef f(x:\n```", F),  # whole before broken
    ("```python\ndef g():\n    pass\n```", "def g():\n    pass\n"),  # the first block, for want of any
    ("    def f(xs):\n        return sum(xs)\n", F),  # indented as a whole
    ("```\nf = lambda xs: sum(xs)\n```", "f = lambda xs: sum(xs)\n"),
    ("class f:\n    pass\n", "class f:\n    pass\n"),
    (f"```\nimport sys\nsys.setrecursionlimit(9)\n{F}```", f"import sys\nsys.setrecursionlimit(9)\n{F}"),
    (f"```\nif True:\n    import numpy\n{F}```", f"if True:\n    import numpy\n{F}"),
    (f"So:\ntry:\n    import numpy\nexcept ImportError:\n    pass\n{F}",
     f"try:\n    import numpy\nexcept ImportError:\n    pass\n{F}"),
    ("@cache\ndef f(x):\n    return x\n", "@cache\ndef f(x):\n    return x\n"),
    ("I would use:\ndef f(xs:\n    return 1", "def f(xs:\n    return 1\n"),  # broken: as it stands
    ("", ""),
    ("I cannot do that.", ""),
    ("```\n\n```", ""),
    ("f", ""),
])
def test_python(text, wanted):
    assert program(text, "f", "python") == wanted


FASTER = F.replace("sum", "fast")


@pytest.mark.parametrize("text, wanted", [
    (f"The program was\n```python\n{F}```\nand faster is\n```python\n{FASTER}```", FASTER),  # quoted first
    (f"```\n{FASTER}```\nin place of\n```\n{F}```", FASTER),  # quoted last
    (f"```\n{F}```\n```\nfrom x import fast\n```\n```\n{FASTER}```", f"from x import fast\n\n{FASTER}"),
    (f"```\nimport math\n```\n```\n{F}```", F),  # nothing new: the given program as it is
    (f"```\n# the same\n{F}```\n```\n{F}```", F),
    (f"```\n{FASTER}```\n```\n{FASTER.replace('fast', 'more')}```", FASTER.replace("fast", "more")),
])  # fmt: skip
def test_what_was_asked_about_is_no_answer_where_there_is_another(text, wanted):
    assert program(text, "f", "python", F) == wanted


def test_the_given_cpp_program_is_no_answer_where_there_is_another():
    given, other = "int f(int n) { return n + 0; }\n", "int f(int n) { return n; }\n"
    for first, second in ((given, other), (other, given)):
        assert program(f"```cpp\n{first}```\nand\n```cpp\n{second}```", "f", "c++", given) == other


VEC = "std::vector<int> f(const std::vector<int>& x) {\n    if (x.empty()) { return {}; }\n    return x;\n}\n"
FULL = f"#include <vector>\nusing namespace std;\n\nstatic int half(int n) {{\n    return n / 2;\n}}\n\n{VEC}"


@pytest.mark.parametrize("text, wanted", [
    (VEC, VEC),
    (f"```cpp\n{FULL}```", FULL),
    (f"```c++\n{FULL}```\nIt's {{fast}}; see above.", FULL),
    (f"```\n{FULL}", FULL),
    (f"Here is it's code:\n{FULL}\nThis {{function}} copies; that is all.", FULL),
    (f"```\n{FULL}int g(int n) {{\n    if (n) {{ return", FULL),  # an unfinished next function
    (f"```\n{FULL}int g(int n) {{ return n; }}\n```", f"{FULL}int g(int n) {{ return n; }}\n"),
    (f"{VEC}int g(int n) {{ return n; }}\nDone.", f"{VEC}int g(int n) {{ return n; }}\n"),
    (f"```\n#include <map>\n```\n```\n{VEC}```", f"#include <map>\n\n{VEC}"),
    (f"```\nint g(int n) {{ return n; }}\n```\n```\n{VEC}```", f"int g(int n) {{ return n; }}\n\n{VEC}"),
    (f"```\nint main() {{ return f({{}}).size(); }}\n```\n```\n{VEC}```", VEC),
    (f"```\n1 3 7\n```\n```\n{VEC}```", VEC),
    ("int f(int n) { char c = '}'; // }\n return n; }", "int f(int n) { char c = '}'; // }\n return n; }\n"),
    ("int f(int n) {\n  return n +", "int f(int n) {\n  return n +\n"),  # broken: as it stands
    ("int f(int n);\nint g(int a) { if (a && f(a)) { return 1; } return 0; }\nint f(int n) { return n; }",
     "int f(int n);\nint g(int a) { if (a && f(a)) { return 1; } return 0; }\nint f(int n) { return n; }\n"),
    ("auto f(int n) -> vector<int> { return {n}; }", "auto f(int n) -> vector<int> { return {n}; }\n"),
    ("No idea.", ""),
])  # fmt: skip
def test_cpp(text, wanted):
    assert program(text, "f", "c++") == wanted


def test_the_call_inside_a_condition_is_no_definition():
    """Only g is whole here, and g is not asked for."""
    text = "int g(int a) { if (a && f(a)) { return 1; } return 0; }"
    assert program(text, "f", "c++") == text + "\n"  # as it stands, for the compiler to refuse
    assert program(f"{text}\nint f(int n) {{ return", "f", "c++").endswith("{ return\n")


def test_the_language_is_checked():
    with pytest.raises(ValueError, match="language is 'java'; allowed: python, c"):
        program(F, "f", "java")
    with pytest.raises(ValueError, match="language is 'java'"):
        digest(F, "java")


@pytest.mark.parametrize("first, second, language, same", [
    (F, F, "python", True),
    (F, "# fast\ndef f( xs ):\n\n  return (sum(xs))  # here", "python", True),
    (F, 'def f(xs):\n    """Sum."""\n    return sum(xs)', "python", True),
    (F, F.replace("sum", "max"), "python", False),
    (F, "def f(ys):\n    return sum(ys)\n", "python", False),
    ("def f(:", "def f(:\n", "python", True),  # neither parses: as texts
    ("x = 1", "x = True", "python", False),
    ("int f(int a){return a;}", "int f( int a ) // one\n{ /* two */ return a; }", "c++", True),
    ("int f(int a){return a;}", "int f(int a){return b;}", "c++", False),
    ("#include <map>\nint x;", "#include <map> int x;", "c++", False),  # a directive ends with its line
    ("#include <map>\n\n\nint x;", "  #include <map>\nint\nx;", "c++", True),
    ("a & &b", "a && b", "c++", False),
    ('f("a  b")', 'f("a b")', "c++", False),  # white space in a literal counts
    ('f("// a")', 'f("// b")', "c++", False),
    ("int ab;", "int a b;", "c++", False),
])
def test_same_program(first, second, language, same):
    assert same_program(first, second, language) is same
    assert (digest(first, language) == digest(second, language)) is same


def test_masked_keeps_places():
    text = "a /* { */ \"}\" '{' R\"x(})x\" // {\nb 1'000'000 {"
    hidden = masked(text)
    assert len(hidden) == len(text) and hidden.count("{") == 1 and "}" not in hidden
    assert hidden.endswith("\nb 1'000'000 {")
    assert tokens("x+=1;//\ny<<=2'0;") == ["x", "+=", "1", ";", "y", "<<=", "2'0", ";"]


def test_nothing_raises_on_garbled_text():
    rng = random.Random(0)
    pieces = list("()[]{}<>:;'\"\\\n \t#`\0\udc80é=&*,") + [
        "def f(", "return ", "```", "~~~", '"""', "    ", "lambda", "f(", "int f(", "/*", "//", 'R"(', "f = ",
        "class f", "#include", "\r\n", "f(x) {", "import ", "import x\n", "```py\n", "def f(x):\n  return 1",
    ]
    for whole in (WITH_HELPER, FULL, f"Text\n```\n{FULL}```\n{F}```"):
        for _ in range(200):
            text = list(whole)
            for _ in range(rng.randint(1, 12)):
                text.insert(rng.randrange(len(text)), rng.choice(pieces))
            for language in ("python", "c++"):
                actual = program("".join(text), "f", language)
                assert actual == "" or actual.endswith("\n")
                digest(actual, language)
                if language == "python" and parse(actual) and "`" not in actual and "~" not in actual:
                    assert program(actual, "f", language) in (actual, "")  # nothing more is cut from it
    for _ in range(200):
        text = "".join(rng.choice(pieces) for _ in range(rng.randrange(80)))
        program(text, "f", "python"), program(text, "f", "c++")


DEMONSTRATIONS = ("f: int", "(f := 3)", "print((f := 3))", "assert (f := 1)")


@pytest.mark.parametrize("text", DEMONSTRATIONS)
def test_an_annotation_or_a_demonstration_defines_nothing(text):
    for answer in (text, f"x = 1\n{text}", f"```python\n{text}\n```", f"So:\n\n{text}\nprint(f)\n", f"{text}; f"):
        assert source(answer, "f") == ""
    assert program(f"{F}{text}", "f", "python") == F  # and behind a definition it is left out


def test_bound_names_are_those_that_python_binds():
    rng = random.Random(0)
    pieces = (*DEMONSTRATIONS, "f", "x = 1", "x: int = 2", "f: int = 3", "import os as f", "def f(x):\n    return x",
              "if (f := 1): pass", "[f for f in [1]]", "class f: f: int", "lambda f: f", "for f in []: pass",
              "for f in [1]: pass", "Note: int", "print(1)", "def g():\n    f = 1", "(f): int", "x = f = 1")
    for _ in range(300):
        text = "\n".join(rng.choices(pieces, k=rng.randint(1, 4)))
        code = source(text, "f")
        for part in (text, code):
            tree, space = parse(part), {"print": lambda *_: None}
            try:
                exec(part, space)
            except NameError:  # `f` alone, in front of its definition
                continue
            if "for f in []" not in part:  # binds, but not here
                assert ("f" in bound(tree.body)) is ("f" in space), part
                assert not code or "f" in space


def test_every_prefix_is_parsed_and_a_finished_function_stays():
    text = f"Sure:\n```python\n{WITH_HELPER}```\nThat is it.\n```python\nprint(f([1]))\n```"
    finished = text.index("return sum(xs)") + len("return sum(xs)")
    for end in range(len(text) + 1):
        actual = program(text[:end], "f", "python")
        assert actual == WITH_HELPER if end >= finished else isinstance(actual, str)


def test_hopeless_texts_are_quick_and_raise_nothing():
    for text in ("(" * 3000, "def f(" * 2000, "int f(" * 2000, "'" * 5000, "{" * 5000, "const " * 3000,
                 "\n".join(["def f(xs):"] * 500), "-" * 50_000 + "1", "a" * 50_000, " " * 50_000):
        program(text, "f", "python"), program(text, "f", "c++")


@pytest.mark.parametrize("before, line, reward", [
    ("", "def f(x):\n", 0.0), ("", "def f(x)?\n", -0.5), ("", "Here's the function:\n", -0.5),
    ("", "```python\n", 0.0),
    ("Here's it:\n```python\n", "x = 'a\n", -0.5), ("```\nx = 1\n```\n", "It's done!\n", 0.0),
    ("", "x = a != b\n", 0.0),
    ("", "x = !a\n", -0.5), ("", '"""It\'s\nlong"""\n', 0.0), ("", "y = )\n", 0.0), ("", "# what's $this?\n", 0.0),
    ("```\n", "x = 'it\\'s' + \"a?\"\n", 0.0),
])  # fmt: skip
def test_a_line_that_does_not_tokenise_is_paid_for(before, line, reward):
    assert line_reward(before, line) == reward
