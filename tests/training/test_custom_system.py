"""A system of the user's own, named in a config."""

import dataclasses
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
from jaxmarl_llm.systems import custom, magrpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.testing import small_forest
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


def test_the_example_groups_by_what_the_config_says(written):
    """Two items, with the same prompt to the agent as turns of one: train.group_by=prompt puts them in one group."""
    made = small_forest(rewards=((1.0, 2.0, 5.0), (3.0, 0.0, 4.0)))
    prompt = np.arange(1, 3, dtype=np.int32)
    turns = tuple(dataclasses.replace(turn, item=0, turn=turn.item, prompt=prompt) for turn in made.turns)
    joints = tuple(dataclasses.replace(joint, item=0, turn=joint.item) for joint in made.joints)
    one = dataclasses.replace(made, items=made.items[:1], turns=turns, joints=joints)
    assign, agents = custom.resolve(written(example())), {turn.agent for turn in turns}
    for by, number in (("turn", 2 * len(agents)), ("prompt", len(agents))):
        assert len(set(assign(one, CreditConfig(group_by=by)).groups.tolist())) == number


@pytest.mark.parametrize("form", ["list", "jnp.asarray"])
def test_lists_and_arrays_of_jax_become_arrays_of_numpy(written, form):
    expected = magrpo.assign(MADE, CreditConfig())
    parts = ", ".join(f"{part}={form}(made.{part})" for part in ("advantages", "returns", "groups"))
    body = f"    made = magrpo.assign(forest, config)\n    return dataclasses.replace(made, {parts})\n"
    credit = custom.resolve(written(f"{HEAD}    import jax.numpy as jnp\n{body}"))(MADE, CreditConfig())
    for part, dtype in (("advantages", np.float32), ("returns", np.float32), ("groups", np.int32)):
        array = getattr(credit, part)
        assert type(array) is np.ndarray and array.dtype == dtype
        np.testing.assert_array_equal(array, getattr(expected, part))
    assert credit.metrics() == expected.metrics()


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
    ("    return dataclasses.replace(magrpo.assign(forest, config), returns=None)", r"returns have shape \(\); exp"),
    ("    return dataclasses.replace(magrpo.assign(forest, config), advantages=['a'] * 6)",
     "advantages are no array of numbers .ValueError"),
    ("    return dataclasses.replace(magrpo.assign(forest, config), advantages=['1'] * 6)",
     "advantages are no array of numbers .ValueError: they are <U1"),
    ("    return dataclasses.replace(magrpo.assign(forest, config), advantages=np.full(6, 1j))",
     "advantages are no array of numbers .ValueError: they are complex128"),
    ("    return dataclasses.replace(magrpo.assign(forest, config), returns=np.full(6, np.inf))",
     "returns are infinite; a turn without a reward has NaN"),
    ("    return dataclasses.replace(magrpo.assign(forest, config), forest=None)", "its forest is a NoneType; "),
    ("    return dataclasses.replace(magrpo.assign(forest, config), extra_metrics=None)",
     "extra_metrics is None; expected a dict of numbers by name"),
    ("    return dataclasses.replace(magrpo.assign(forest, config), extra_metrics={'x': [1, 2]})",
     r"extra_metrics: x has shape \(2,\); expected a number"),
    ("    return dataclasses.replace(magrpo.assign(forest, config), token_advantages=[1.0])",
     r"token_advantages is \[1.0\]; expected an array for each of 6 turns"),
    ("    return dataclasses.replace(magrpo.assign(forest, config), token_advantages=[np.ones(9)] * 6)",
     r"token_advantages of turn 0 have shape \(9,\); expected \(\d,\), all finite"),
    ("    return dataclasses.replace(magrpo.assign(forest, config), groups=np.full(6, 0.5))",
     "groups are not all whole numbers"),
    ("    return dataclasses.replace(magrpo.assign(forest, config), groups=np.full(6, np.nan))",
     "groups are not all whole numbers"),
])  # fmt: skip
def test_what_it_must_return(written, body, text):
    name = written(f"{HEAD}{body}\n")
    with pytest.raises(ValueError, match=f"train.system '{name}'.*{text}"):
        custom.resolve(name)(MADE, CreditConfig())


def test_what_was_drawn_stays_as_it_is(written):
    name, made = written(f"{HEAD}    forest.turns[0].logprobs[:] = 0\n"), small_forest()
    before = made.turns[0].logprobs.tolist()
    with pytest.raises(dotted.UserCodeError, match="raised .*: assignment destination is read-only"):
        custom.resolve(name)(made, CreditConfig())
    assert made.turns[0].logprobs.tolist() == before


def test_metrics_and_advantages_of_tokens_become_numbers(written):
    tokens = "[[0.5] * len(turn.completion) for turn in forest.turns]"
    change = f"token_advantages={tokens}, extra_metrics={{'x': np.float32(0.5)}}"
    name = written(f"{HEAD}    return dataclasses.replace(magrpo.assign(forest, config), {change})\n")
    credit = custom.resolve(name)(MADE, CreditConfig())
    assert credit.metrics()["x"] == 0.5 and type(credit.extra_metrics["x"]) is float
    for turn, array in zip(MADE.turns, credit.token_advantages, strict=True):
        assert array.dtype == np.float32 and array.tolist() == [0.5] * len(turn.completion)


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
