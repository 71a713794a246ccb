"""Where steps of texts end, and the tree that texts have together."""

import io
import tokenize

import numpy as np
import pytest

from jaxmarl_llm.search import steps
from jaxmarl_llm.search.trees import Answer, tree_of

DOCSTRING = 'def f(x):\n    """Twice.\n\n    of x # not "\'\n    """\n    return 2 * x\n'


def test_a_step_of_a_program_does_not_end_in_a_string_of_three_quotes():
    assert steps.split(DOCSTRING, True) == [
        "def f(x):\n", '    """Twice.\n\n    of x # not "\'\n    """\n', "    return 2 * x\n",
    ]  # fmt: skip
    assert steps.split(DOCSTRING, False) == DOCSTRING.splitlines(keepends=True)


@pytest.mark.parametrize("text, quote", [
    ("", ""), ("x = 'a", "'"), ("x = 'a'", ""), ("x = 'it\\'s", "'"), ("# it's\n", ""), ('s = """a', '"""'),
    ("s = '''a\"\"\"", "'''"), ('s = """a"""', ""), ('s = "" + """', '"""'), ("Here's the function:\ndef f():\n", ""),
    ("```python\ndef f():\n    '''x\n", "'''"), ("x = 'a\\\nb", "'"), ("# \"\"\"\nx", ""), ('r"""\\"""', '"""'),
])  # fmt: skip
def test_open_strings(text, quote):
    assert steps.open_string(text) == quote


def inside_strings(text):
    """Oracle: indices of line breaks inside strings, by Python's own tokenizer."""
    starts = np.cumsum([0, *(len(line) for line in text.splitlines(keepends=True))])
    inside = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING:
            first, last = (int(starts[row - 1]) + column for row, column in (token.start, token.end))
            inside |= {i for i in range(first, last) if text[i] == "\n"}
    return inside


PROGRAM = '''import re


class A:
    r"""Says "it's" # here
    """

    def f(self, x='"', y="\\'"):  # don't
        s = \'\'\'a "" b
        \'\'\' + "#" + """c"""
        return re.sub("\\\\", s, x), """
"""
'''


@pytest.mark.parametrize("text", [DOCSTRING, PROGRAM])
def test_the_ends_of_steps_are_where_python_has_no_string(text):
    inside = inside_strings(text)
    wanted = [i for i, char in enumerate(text) if char == "\n" and i not in inside]
    ends = np.cumsum([len(step) for step in steps.split(text, True)]) - 1
    assert ends.tolist() == wanted and "".join(steps.split(text, True)) == text


@pytest.mark.parametrize("before, piece, strings, ended", [
    ("", "a = 1\n", True, True), ("", "a = 1", True, False), ('x = """', "a\n", True, False),
    ('x = """', "a\n", False, True), ('x = """', 'a"""\n    ', True, True), ("", "a\n\n  ", True, True),
])  # fmt: skip
def test_a_piece_ends_a_step(before, piece, strings, ended):
    assert steps.ends(before, piece, strings) is ended


def test_blanks_after_the_line_are_no_part_of_it():
    assert [steps.whole_lines(text) for text in ("a\nb\n    ", "a\n", "a", "")] == ["a\nb\n", "a\n", "", ""]


def test_answers_that_begin_alike_share_their_steps():
    texts = ["a\nb\nc", "a\nb\n", "a\nd", "a\nd"]
    tree = tree_of([Answer(0, text, float(n)) for n, text in enumerate(texts)] + [Answer(1, "a\nb\n", 5.0)])
    assert tree.texts == ("a\n", "a\nb\n", "a\nb\nc", "a\nb\n", "a\nd", "a\n", "a\nb\n")
    assert tree.parent_S.tolist() == [-1, 0, 1, 0, 0, -1, 5]
    assert tree.leaf_S.tolist() == [False, False, True, True, True, False, True]
    assert tree.reward_S.tolist() == [0, 0, 0, 1, 2, 0, 5]
    assert tree.item_S.tolist() == [0] * 5 + [1, 1] and tree.depth() == 3


def test_answers_without_a_reward_and_of_others():
    answers = [Answer(0, "a\nb", 1.0, "x"), Answer(0, "c", np.nan, "x"), Answer(0, "", 0.5, "y")]
    tree = tree_of(answers)
    assert tree.texts == ("a\n", "a\nb", "") and tree.author == ("", "x", "y")
    assert tree.reward_S.tolist() == [0, 1.0, 0.5]
    assert tree_of([]).depth() == 0 and tree_of([]).texts == ()
