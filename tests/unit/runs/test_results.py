"""What is finished is not run again, and what another command left is no result of this one."""

import types

import pytest

from jaxmarl_llm.runs import results
from jaxmarl_llm.utils.errors import UserError


def leaving(path):
    def call(argv):
        path.write_text("{}")
        return types.SimpleNamespace(returncode=0)

    return call


def argv(place, samples):
    return ["python", "-m", "experiments.evaluate", f"--workdir={place}", f"--samples={samples}"]


def test_a_result_of_another_command_is_refused(tmp_path):
    path = tmp_path / "new" / "evaluation.json"
    results.run({path: argv("a", 2)}, leaving(path))
    results.run({path: argv("b", 2)}, lambda argv: pytest.fail("run again"))  # the folder may have moved
    wanted = (
        r"evaluation.json is the result of another command, with --samples=2 in place of --greedy --samples=8: "
        "give another --workdir, or remove the file"
    )
    with pytest.raises(UserError, match=wanted):
        results.run({path: [*argv("a", 8), "--greedy"]})


def test_what_earlier_versions_left_has_no_record_and_counts(tmp_path):
    path = tmp_path / "evaluation.json"
    path.write_text("{}")
    results.run({path: argv("a", 8)}, lambda argv: pytest.fail("run again"))


def test_a_command_that_was_stopped_may_be_replaced_by_another(tmp_path):
    path = tmp_path / "evaluation.json"
    with pytest.raises(UserError, match="failed or was stopped"):
        results.run({path: argv("a", 2)}, lambda argv: types.SimpleNamespace(returncode=1))
    results.run({path: argv("a", 8)}, leaving(path))
    results.run({path: argv("a", 8)}, lambda argv: pytest.fail("run again"))
