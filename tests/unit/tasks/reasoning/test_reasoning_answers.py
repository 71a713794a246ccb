"""jaxmarl_llm/tasks/reasoning/answers.py: what is read as an answer, and votes."""

import doctest
import math
from fractions import Fraction

import pytest

from jaxmarl_llm.tasks.reasoning import answers, votes
from jaxmarl_llm.tasks.reasoning.answers import NONE, read


@pytest.mark.parametrize("text, value", [
    ("42", 42), ("4 + 3 = 7", 7), ("It is 1,234.", 1234), ("1,234,567.50 dollars", Fraction(2469135, 2)),
    ("-3", -3), ("\u22123", -3), ("+3", 3), ("7-3", 3), ("7 - 3", 3), ("(-3)", -3), ("x = -3", -3),
    ("$5", 5), ("-$5", -5),
    ("5%", 5), ("3/4", Fraction(3, 4)), ("-3/4", Fraction(-3, 4)), ("0.75", Fraction(3, 4)), (".5", Fraction(1, 2)),
    ("3.", 3), ("3.0", 3), ("007", 7), (r"\frac{1}{2}", Fraction(1, 2)),
    (r"$\dfrac{-3}{4}$", Fraction(-3, 4)), (r"-\tfrac{3}{4}", Fraction(-3, 4)), ("1,23", 23),
    (r"\frac45", Fraction(4, 5)),
    ("1 / 2", Fraction(1, 2)), ("Step 1: 2. Step 2: 30", 30), ("x2 and y3", None), ("none", None), ("", None),
    ("1/0", None), ("9" * 5000, None), ("1/" + "9" * 5000, None), ("\u0663", None),
    ("3/4/5", 5), ("It is 3/4.", Fraction(3, 4)),
    ("- 3", 3),
    ("1.5e3", 1500), ("-2.5E-3", Fraction(-1, 400)), ("about 6.02e+23 of them", 602 * 10**21), ("1e2/4", 25),
    ("1e5x", 1), ("2e", 2), ("1e", 1), ("e5", None), ("1e1000", None), ("1e999999999", None),
    ("The answer is 7, not 8.", 7), ("Answer: 12\nThat is 3 more than 9", 12), ("The answer is 5. The answer is 6.", 6),
    ("The answer is not known, perhaps 4", 4), (r"\boxed{8} or the answer is 9, or 10", 8), (r"\boxed{\frac{1}{3}}",
     Fraction(1, 3)), (r"\boxed{1} and \boxed{2}", 2), (r"\boxed{} 3", 3), ("My answers are 3 and 4", 4),
])  # fmt: skip
def test_numbers(text, value):
    assert read(text, "number") == (NONE if value is None else Fraction(value))


@pytest.mark.parametrize("text, value", [
    (r"2\frac{1}{4}", Fraction(9, 4)), (r"-2\frac{1}{4}", Fraction(-9, 4)), (r"3 \dfrac12", Fraction(7, 2)),
    (r"1,200\frac{1}{2}", Fraction(2401, 2)), (r"6\frac{1}{6}\text{ feet}", Fraction(37, 6)), (r"3\frac{0}{4}", 3),
    (r"\frac1{216}", Fraction(1, 216)), (r"\frac{1}2", Fraction(1, 2)), (r"\frac 74", Fraction(7, 4)),
    (r"\cfrac{5}{-2}", Fraction(-5, 2)), (r"\frac{1.5}{2}", Fraction(3, 4)),
    (r"\frac{2469}{20,\!000}", Fraction(2469, 20000)),
    (r"12,\!650", 12650), ("12{,}650", 12650), (r"1,\!000,\!000", 10**6), (r"\$425", 425),
    (r"-\$4.50", Fraction(-9, 2)), (r"\$ 1500", 1500), (r"22.5^{\circ}", Fraction(45, 2)), (r"30^\circ.", 30),
    (r"20 \%", 20),
    (r"8\text{ cm}^2", 8),
    (r"7\mathrm{m}^{3}", 7), (r"\text{240 ways.}", None),
])  # fmt: skip
def test_numbers_in_latex(text, value):
    """By themselves, in a box and in a sentence; a number and a unit are a number, a number in words is not."""
    assert answers.is_number(text) == (value is not None)
    for around in (text, rf"\boxed{{{text}}}", f"The answer is ${text}$, of 7."):
        assert read(around, "number") == (240 if value is None else value)


@pytest.mark.parametrize("text, value", [
    (r"x\frac{1}{2}", Fraction(1, 2)), (r"x_2\frac{1}{2}", Fraction(1, 2)), (r"x^2\frac{1}{2}", Fraction(1, 2)),
    (r"(3)\frac12", Fraction(1, 2)), (r"2 \cdot \frac{1}{2}", Fraction(1, 2)), (r"\frac{1}{2}3", 3),
    (r"\frac{1}{0}", None), (r"2\frac{-1}{4}", Fraction(-1, 4)), (r"\frac{" + "9" * 5000 + "}{2}", None),
])  # fmt: skip
def test_fractions_that_belong_to_no_number_before_them(text, value):
    assert read(text, "number") == (NONE if value is None else value)


@pytest.mark.parametrize("text, letter", [
    ("B", "B"), ("b", "B"), ("(b)", "B"), ("B.", "B"), ("**B**", "B"), ("It is B", "B"), ("A dog is not a cat: C", "C"),
    ("A or B", "B"), ("The answer is (C), as A is too small.", "C"), ("(A) is right. B is not", "A"),
    ("Answer: b", "B"),
    ("The answer is B (as A is wrong)", "B"), (r"\boxed{D} A", "D"), ("E", None), ("a cat", None), ("ABCD", None),
    ("I think so", None), ("", None), ("The answer is a cat. D", "D"), ("A's", None),
])  # fmt: skip
def test_letters(text, letter):
    assert read(text, "choice", ("A", "B", "C", "D")) == letter


@pytest.mark.parametrize("text, letter", [
    ("I do not know.", None), ("I think it is B.", "B"), ("The answer is I think B", "B"), ("B, I believe", "B"),
    ("A sum of all is needed", None), ("It is hard.\nA dog is no cat", None), ("It is B. A dog is no cat", "B"),
    ("The answer is A because I checked", "A"), ("The answer is A then", "A"), ("I", "I"), ("It is I.", "I"),
    ("(I) is right, I think", "I"), ("H or I", "I"), ("I is right", "I"), ("B is wrong, A fits", "A"), ("A fits", "A"),
    ("Option A then", "A"), ("It is A\nthank you", "A"), ("A\nthank you", "A"), ("A. the first one", "A"),
])  # fmt: skip
def test_letters_that_are_words_too(text, letter):
    """An article at the start of a sentence, and a pronoun, name no option."""
    assert read(text, "choice", "ABCDEFGHI") == letter


@pytest.mark.parametrize("text, digit", [
    ("1.2", None), ("It is 1.2, so 3.", "3"), ("2.5 is too much", None), ("It is 2.", "2"), ("2. the second", "2"),
    ("No.2", "2"), ("3 or 2", "2"), ("The answer is 1.5, so 2", "2"), ("B.2", "2"),
])  # fmt: skip
def test_digits_as_options(text, digit):
    assert read(text, "choice", ("1", "2", "3")) == digit


def test_words_of_options_may_begin_with_an_article():
    assert read("A cat", "choice", ("A cat", "A dog")) == read("A cat it is", "choice", ("A cat", "A dog")) == "A cat"


@pytest.mark.parametrize("text, word", [
    ("left", "left"), (" Left.\n", "left"), ("left, no, right!", "right"), ("The answer is left, not right", "left"),
    ("lefty", None), ("up", None), ("", None),
])  # fmt: skip
def test_choices_of_words(text, word):
    assert read(text, "choice", ("left", "middle", "right")) == word


@pytest.mark.parametrize("text, wanted", [
    ("True", "true"), ("It is so.\n\n Yes! ", "yes"), ("The answer is: False.", "false"), ("a  B", "a b"),
    (" \n.", None),
    (r"so \boxed{x+1}", "x+1"), ("The answer is ) ].", ") ]"), (") >", ") >"), ("(yes)", "yes"), (r"\text{(C)}", "c"),
    (r"$\boxed{\frac{\sqrt{3}}{2}}$ is right", r"\frac{\sqrt{3}}{2}"),
    (r"{ \boxed{f({x_{1_{a}}})} }", "f({x_{1_{a}}})"),
    (r"\boxed{1} then \boxed{\boxed{2}}", "2"), (r"\boxed{\{1, 2\}}", r"\{1, 2\}"), (r"} \boxed{a} \boxed{b", "a"),
    (r"\boxed {\left\{x}", r"\left\{x"),
    ("()", "()"), ("[a] (b)", "[a] (b)"), ("apple banana", "apple banana"), ("", None),
])  # fmt: skip
def test_short_texts(text, wanted):
    assert read(text, "text") == wanted


@pytest.mark.parametrize("text, score", [
    ("0.9", 0.9), ("1", 1), ("0", 0), ("-1", 0), (".25", 0.25), ("80%", 0.8), ("5%", 0.05), (r"\boxed{80\%}", 0.8),
    ("12.5 percent", 0.125), ("150%", 1), ("8/10", 0.8), ("0.2/1.0", 0.2), ("0.3 out of 1", 0.3), ("4 of 5.", 0.8),
    (r"\frac{3}{4}", 0.75), ("12/10", 1), ("Score: 0.2", 0.2), ("I am 90% sure: 0.7", 0.7), ("8", math.nan),
    ("80", math.nan), ("1.5", math.nan), ("0.3/0", math.nan), ("", math.nan), ("sure", math.nan),
])  # fmt: skip
def test_scores(text, score):
    assert answers.read_score(text) == pytest.approx(score, nan_ok=True)


def test_nothing_takes_long_or_raises():
    texts = ["(" * 9000, r"\boxed{" * 30000, "{" * 9000 + "}" * 9000, "answer is " * 3000, "1," * 9000, "9/" * 9000]
    texts += [r"\text{" * 9000, "1,111" * 9000, r"1\frac" * 9000, r"\frac{1," * 9000, "^{" * 9000, "9" * 40000]
    for kind in answers.KINDS:
        for text in (*texts, "\0\ufffd", "1e" * 9000, "1e" + "9" * 9000, "1e999999999"):
            read(text, kind, ("A", "B"))
            answers.read_score(text)


def test_votes():
    assert votes.last(["a", NONE]) is NONE
    assert votes.majority(["b", "a", "a"]) == "a" and votes.majority(["b", "a"]) == "b"
    assert votes.majority([NONE, NONE, "c"]) == "c" and votes.majority([NONE]) is NONE
    assert votes.majority([Fraction(1, 2), Fraction(2), Fraction(2, 4)]) == Fraction(1, 2)
    assert votes.best(["a", "b", "c"], [math.nan, 0.1, 0.1]) == "b" and votes.best(["a", "b"], [math.nan] * 2) == "a"


@pytest.mark.parametrize("module", [answers, votes])
def test_examples(module):
    assert doctest.testmod(module).attempted > 0 and doctest.testmod(module).failed == 0
