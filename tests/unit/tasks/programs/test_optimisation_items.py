"""Programs to make faster: what a TOML file may say, what its errors name, splits, the package's problems."""

import collections

import pytest

from jaxmarl_llm.tasks.programs import optimisation_items
from jaxmarl_llm.tasks.programs.optimisation_items import OptimisationItem, Rewrite, load_items, parse

HEAD = 'category = "scan"\nlanguage = "python"\n'
PROBLEM = """
[[problem]]
name = "double"
statement = "Twice a number."
entry_point = "f"
size = 9
source = '''

def f(n):
    return n + n
'''
tests = '''
def inputs(seed):
    return (SIZE,)

def expected(n):
    return 2 * n
'''
"""
REWRITE = """
[[problem.rewrite]]
kind = "faster"
technique = "Shift the bits."
source = '''
def f(n):
    return n << 1
'''
"""


def numbered(count):
    return HEAD + "".join(PROBLEM.replace('"double"', f'"p{n}"') for n in range(1, count + 1))


def names(items):
    return [item.task_id.removeprefix("scan/") for item in items]


def test_a_problem_becomes_an_item():
    tests = "def inputs(seed):\n    return (SIZE,)\n\ndef expected(n):\n    return 2 * n\n"
    item = OptimisationItem(
        "scan/double", "scan", "python", "Twice a number.", "f", "def f(n):\n    return n + n\n", tests, 9,
        rewrites=(Rewrite("faster", "Shift the bits.", "def f(n):\n    return n << 1\n"),),
    )  # fmt: skip
    assert parse(HEAD + PROBLEM + REWRITE, "here") == [item]
    assert parse(HEAD + PROBLEM, "here")[0].rewrites == ()


def test_the_tests_know_the_size():
    (item,) = parse(HEAD + PROBLEM, "here")
    actual = {}
    for size in (None, 4):
        space = {}
        exec(item.tests_of(size), space)
        actual[size] = space["inputs"](0)
    assert actual == {None: (9,), 4: (4,)}


def test_cpp_needs_a_signature():
    cpp = HEAD.replace("python", "c++") + PROBLEM
    with pytest.raises(ValueError, match=r"^here, problem 1 \(double\): signature is None; expected str$"):
        parse(cpp, "here")
    (item,) = parse(cpp.replace("size = 9", 'size = 9\nsignature = "int f(int n)"'), "here")
    assert (item.language, item.signature) == ("c++", "int f(int n)")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"scan"', '"scans"', r"^here: category is 'scans'; allowed: dense_la, fft, .*, transform$"),
        ('"python"', '"rust"', r"^here: language is 'rust'; allowed: python, c\+\+$"),
        ('name = "double"\n', "", r"^here, problem 1 \(without a name\): name is None; expected str$"),
        ('"Twice a number."', '""', r"^here, problem 1 \(double\): statement is ''; expected str$"),
        ('"f"', "3", r"^here, problem 1 \(double\): entry_point is 3; expected str$"),
        ("size = 9", "size = 9.5", r"^here, problem 1 \(double\): size is 9.5; expected int$"),
        ("size = 9", "size = 0", r"^here, problem 1 \(double\): size is 0; expected int$"),
        ("size = 9", "size = true", r"^here, problem 1 \(double\): size is True; expected a number from 1$"),
        ("size = 9", "size = -9", r"^here, problem 1 \(double\): size is -9; expected a number from 1$"),
        ("size = 9", "size = 9\nsizes = 8", r"^here, problem 1 \(double\): sizes is not a field of"),
        # A signature is for C++ only.
        ("size = 9", 'size = 9\nsignature = "f"', r"\(double\): signature is not a field of a problem$"),
        ('"faster"', '"best"', r"\(double\): a rewrite's kind is 'best'; allowed: faster, .*, broken$"),
        ("technique", "method", r"\(double\): a rewrite has \['kind', 'method', 'source'\]; expected kind, "),
        ('"Shift the bits."', "[]", r"\(double\): a rewrite has .*; expected .* source, texts$"),
        ("size = 9", "size 9", r"^here: not TOML \("),
        ("[[problem]]", "[problem]", r"^here: problem is .*; expected tables, each under \[\[problem\]\]$"),
        ("[[problem.rewrite]]", "rewrite = ['q']\n[other]",
         r"^here, problem 1 \(double\): rewrite is \['q'\]; expected tables, each under \[\[problem.rewrite\]\]$"),
        ("[[problem", "[[problems", r"^here: no \[\[problem\]\]$"),
    ],
)  # fmt: skip
def test_errors_name_file_problem_and_field(old, new, message):
    text = HEAD + PROBLEM + REWRITE
    assert old in text
    with pytest.raises(ValueError, match=message):
        parse(text.replace(old, new), "here")


@pytest.mark.parametrize("held", ["[1, 2]", "5", '"x"'])
def test_problems_are_tables(held):
    with pytest.raises(ValueError, match=r"^here: problem is .*; expected tables, each under \[\[problem\]\]$"):
        parse(f"{HEAD}problem = {held}\n", "here")


def test_errors_name_the_problem_by_its_number_too():
    third = PROBLEM.replace('"double"', '"p3"').replace("size = 9", "size = '9'")
    with pytest.raises(ValueError, match=r"^here, problem 3 \(p3\): size is '9'; expected int$"):
        parse(numbered(2) + third, "here")
    with pytest.raises(ValueError, match=r"^here: scan/double is there more than once$"):
        parse(HEAD + PROBLEM + PROBLEM, "here")


def test_splits_and_slices(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(numbered(9), "utf-8")
    # p4 is for validation, p8 for the test; a slice is taken after the split.
    assert names(load_items(str(path))) == [f"p{n}" for n in range(1, 10)]
    assert names(load_items(str(path), "validation")) == ["p4"]
    assert names(load_items(str(path), "test")) == ["p8"]
    assert names(load_items(str(path), "train")) == ["p1", "p2", "p3", "p5", "p6", "p7", "p9"]
    assert names(load_items(f"{path}[3:5]", "train")) == ["p5", "p6"]
    assert names(load_items(f"{path}[-1:]", "test")) == ["p8"]
    with pytest.raises(ValueError, match=r"own\.toml\[2:\]', split 'test' holds no problems"):
        load_items(f"{path}[2:]", "test")


def test_sources_that_are_none(tmp_path):
    with pytest.raises(ValueError, match=r"^source is 'rust'; allowed: python, cpp, or the path of a \.toml"):
        load_items("rust")
    with pytest.raises(ValueError, match=r"^split is 'held_out'; allowed: train, validation, test, all$"):
        load_items("python", "held_out")
    with pytest.raises(ValueError, match=r"nowhere\.toml: cannot be read"):
        load_items(str(tmp_path / "nowhere.toml"))


@pytest.mark.parametrize(("source", "language", "least"), [("python", "python", 40), ("cpp", "c++", 12)])
def test_the_package_has_problems_of_every_category(source, language, least):
    items = load_items(source)
    assert len(items) >= least
    assert {item.language for item in items} == {language}
    assert {item.category for item in items} == set(optimisation_items.CATEGORIES)
    assert len({item.task_id for item in items}) == len(items)
    # Files are in order of their names and hold one category each.
    assert [item.category for item in items] == sorted(item.category for item in items)
    train, validation, test = (load_items(source, split) for split in ("train", "validation", "test"))
    assert (validation, test) == (items[3::8], items[7::8])
    assert len(train) + len(validation) + len(test) == len(items)


@pytest.mark.parametrize("source", ["python", "cpp"])
def test_every_problem_has_rewrites_of_each_kind(source):
    for item in load_items(source):
        kinds = collections.Counter(rewrite.kind for rewrite in item.rewrites)
        assert kinds["faster"] >= 2 and kinds["slower"] >= 1 and kinds["wrong"] >= 1, item.task_id
        sources = [item.source, *(rewrite.source for rewrite in item.rewrites)]
        assert len(set(sources)) == len(sources), item.task_id
        for rewrite in item.rewrites:  # one sentence
            assert rewrite.technique[0].isupper() and rewrite.technique.endswith("."), rewrite.technique
