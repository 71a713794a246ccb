"""Flags of experiments.merge that a method does not read are refused."""

from types import SimpleNamespace

import pytest

from experiments import merge
from jaxmarl_llm.utils.errors import UserError


class Flags(dict):
    """Parsed flags: those that are given, the others as by default."""

    def __init__(self, **given):
        defaults = dict(workdir="", members=["a", "b"], method="mean", out="o", weights=[], scales=[], density=0.0,
                        trials=20, seed=0, rank=0, form="adapter", samples=0, report="all")  # fmt: skip
        own = defaults | given
        super().__init__({n: SimpleNamespace(value=value, present=n in given) for n, value in own.items()})

    def __getattr__(self, name):
        return self[name].value


@pytest.mark.parametrize("name, value", [
    ("weights", ["1", "2"]), ("scales", ["1"]), ("density", 0.1), ("trials", 3), ("seed", 7), ("rank", 1),
    ("form", "full"), ("samples", 9), ("report", "none"),
])  # fmt: skip
def test_a_team_of_members_reads_none(name, value):
    with pytest.raises(UserError, match=f"--{name}: --method=join does not read it, only members"):
        merge.merge(Flags(method="join", **{name: value}), None, "best")


def test_a_mean_reads_some():
    with pytest.raises(UserError, match="--trials: --method=mean does not read it, only scales"):
        merge.merge(Flags(trials=3, rank=2), None, "best")
    with pytest.raises(UserError, match="a holds no run|a/checkpoints"):  # then it reads the members
        merge.merge(Flags(rank=2, report="none", scales=["1"]), None, "best")
