"""Packages that are allowed by name: importable at every level, and nothing beside them."""

import numpy as np
import pytest

from jaxmarl_llm.executor import Executor, Program

TESTS = """
import numpy as np

def check(candidate):
    assert np.allclose(candidate([1, 2]), [2, 4])
    assert candidate(np.array([[1.0], [2.0]])).tolist() == [[2.0], [4.0]]
    assert candidate(np.int64(3)) == 6 and candidate(np.array([True])).dtype == np.dtype('int64')
    xs = candidate(np.arange(3, dtype='>i2'))
    assert (xs == [0, 2, 4]).all()
"""
DOUBLE = """
import numpy as np
import numpy.linalg

def f(x):
    return 2 * np.asarray(x) if not np.isscalar(x) else 2 * x
"""


PARTS = """
import numpy as np

def f(x):
    drawn = np.random.default_rng(0).integers(10, size=3).tolist()
    return [drawn, np.fft.fft(np.ones(2)).real.tolist(), np.ma.masked_equal([1, 2], 2).sum()]
"""


@pytest.mark.parametrize("level", [1, 2, 3])
def test_numpy_in_programs_and_tests(level):
    programs = [Program({"main": text}, "f", TESTS) for text in (DOUBLE, DOUBLE.replace("2 * np", "3 * np"))]
    programs.append(Program({"main": "import ml_collections\n\ndef f(x):\n    return x\n"}, "f", TESTS))
    # Parts that load files of their own: three numbers of a known generator, 1 + 1 and 1 - 1, and 1 without the 2.
    drawn = np.random.default_rng(0).integers(10, size=3).tolist()
    tests = f"def check(candidate):\n    assert candidate(0) == [{drawn}, [2.0, 0.0], 1]\n"
    programs.append(Program({"main": PARTS}, "f", tests))
    with Executor(workers=1, min_level=1, level=level, modules=("numpy",)) as executor:
        reports = executor.run(programs)
    assert [report.verdict for report in reports] == ["pass", "fail", "load-error", "pass"], reports[3]
    assert reports[2].failures == ("main: ModuleNotFoundError: No module named 'ml_collections'",)


def test_numpy_between_agents_over_the_tests_side_and_directly():
    aux = "import numpy as np\n\ndef aux(x):\n    if x.size > 2:\n        raise ValueError(x.sum())\n"
    aux += "    return x + np.int16(1)\n"
    main = """
import numpy as np

def f(x, calls):
    texts = set()
    for _ in range(calls):
        try:
            aux(np.arange(3))
        except ValueError as error:
            texts.add(repr([aux(x), aux(x).dtype, type(error.args[0])]))
    return texts
"""
    tests = "import numpy as np\n\ndef check(candidate):\n    x = np.array([1, 2], dtype='int16')\n"
    tests += "    assert candidate(x, 600) == {repr([x + np.int16(1), x.dtype, np.int64])}\n"
    with Executor(workers=1, min_level=1, modules=("numpy",)) as executor:
        (report,) = executor.run([Program({"aux": aux, "main": main}, "f", tests)])
    assert (report.verdict, report.failures) == ("pass", ())
    assert report.interactions[0][3:6] == (1800, 1200, 600)


@pytest.mark.parametrize("names, message", [
    (("no_such_package",), "modules names 'no_such_package', which is not installed: pip install no_such_package"),
    (("numpy.linalg",), "modules names 'numpy.linalg'; allowed: top-level packages beside the standard library"),
    (("math",), "modules names 'math'; allowed"),
    (("scipy",), r"the sandbox cannot import scipy: No module named 'numpy'; allow what it needs, too"),
])
def test_what_is_not_there_is_refused_at_the_start(names, message):
    with pytest.raises(ValueError, match=message):
        Executor(workers=1, modules=names)


def test_without_being_allowed_nothing_is_there():
    with Executor(workers=1) as executor:
        programs = [Program({"main": text}, "f", tests) for text, tests in (
            (DOUBLE, "def check(candidate):\n    assert candidate(1) == 2\n"),
            ("def f(x):\n    return 2 * x\n", TESTS),
        )]
        (report, error) = executor.try_tests(programs)
    assert report.failures == ("main: ModuleNotFoundError: No module named 'numpy'",)
    assert str(error) == "tests of 'f' fail by themselves: ModuleNotFoundError: No module named 'numpy'"
