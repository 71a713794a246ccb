"""A system of the user's own, named in a config."""

import re

import numpy as np
import pytest
import smoke_runs
from hand_made_forests import forest
from method_runs import SMALL
from repository import ROOT

from configs import coding
from experiments import train
from jaxmarl_llm import transcripts
from jaxmarl_llm.config import validate
from jaxmarl_llm.factory import systems
from jaxmarl_llm.runs import training_loop
from jaxmarl_llm.systems import custom
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.utils import dotted

MADE = forest("aligned", [1.0, 2.0, 6.0], samples=3)
HEAD = """import dataclasses
import numpy as np
from jaxmarl_llm.systems import magrpo
def assign(forest, config):
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes a module that can be imported; its name is new each time."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(source):
        name = f"own_{abs(hash(source))}"
        (tmp_path / f"{name}.py").write_text(source)
        return f"{name}.assign"

    return write


def example():
    """The file in docs/systems.md."""
    page = (ROOT / "docs/systems.md").read_text()
    return re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1)


def test_the_example_of_the_docs_by_hand(written):
    credit = custom.resolve(written(example()))(MADE, CreditConfig())
    assert credit.returns.tolist() == [0, 1, 2] * 2  # of three, how many it beats
    assert credit.advantages.tolist() == [-1, 0, 1] * 2


@pytest.mark.model
@pytest.mark.usefixtures("programs_shared")
def test_a_run_learns_from_it(tmp_path, written, monkeypatch):
    monkeypatch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))
    config = coding.get_config("smoke")
    config.update_from_flattened_dict(SMALL | {"train.system": written(example())})
    train.train(config, tmp_path / "run")
    actual = [(a.total, a.agents["aux"].advantage) for a in transcripts.read(tmp_path / "run", 0)]
    for (first, one), (second, other) in zip(actual[::2], actual[1::2], strict=True):
        sign = np.sign(first - second) / 2  # beats one of one, or none: 0.5 more or less than the mean
        assert (one, other) == (sign, -sign)
    (row,) = [row for row in smoke_runs.rows(tmp_path / "run") if "aux/loss" in row]
    assert row["aux/grad_norm"] > 0


@pytest.mark.parametrize("body, text", [
    ("    return 3", "returned a int; expected a Credit"),
    ("    return dataclasses.replace(magrpo.assign(forest, config), advantages=np.zeros(2))",
     r"advantages have shape \(2,\); expected \(6,\)"),
    ("    return dataclasses.replace(magrpo.assign(forest, config), advantages=np.full(6, np.nan))",
     "advantages are not finite"),
])  # fmt: skip
def test_what_it_must_return(written, body, text):
    name = written(f"{HEAD}{body}\n")
    with pytest.raises(ValueError, match=f"train.system '{name}'.*{text}"):
        custom.resolve(name)(MADE, CreditConfig())


def test_one_that_raises_says_where(written):
    name = written(f"{HEAD}    return len(forest.turns) / 0\n")
    message = rf"^train.system '{name}' raised on a forest of 6 turns \(ZeroDivisionError: division by "
    with pytest.raises(dotted.UserCodeError, match=message) as caught:
        custom.resolve(name)(MADE, CreditConfig())
    (frame,) = caught.value.user_frames()
    assert re.search(r"own_.*\.py\", line 5, in assign", frame)


def test_what_a_config_may_name():
    config = coding.get_config("smoke")
    config.train.system = "nowhere_at_all.assign"
    validate(config)  # nothing is imported
    with pytest.raises(ValueError, match="train.system 'nowhere_at_all.assign': cannot import"):
        systems.from_forest(config)
    config.train.system = "mine"
    with pytest.raises(ValueError, match="train.system='mine': allowed are magrpo, "):
        validate(config)
