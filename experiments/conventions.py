"""What the runs of a convention sweep learned: who does which step, and if one agent's skill explains it.

  python -m experiments.conventions --workdir=runs/convention

prints, for every run of `configs/sweep_convention.py` that is finished, its team after the warm-up and after
training, in percent of the sampled answers to the test problems, and writes conventions.json and .md there.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import flags

from configs import arithmetic
from configs.common import ConfigDict
from experiments import cli, closing, setup
from jaxmarl_llm import console, files
from jaxmarl_llm.report.settings import FINISHED
from jaxmarl_llm.tasks.convention import AGENTS, CONVENTIONS

CLEAR = 0.75  # share of one convention among an agent's right answers from which on it is called the agent's


class Team(NamedTuple):
    """A team's answers, in percent.

    Attributes:
      joint: joint answers that pass all tests.
      first, second: per agent of `AGENTS`, answers that are right beside a partner of the convention.
    """

    joint: float
    first: tuple[float, ...]
    second: tuple[float, ...]

    @property
    def able(self) -> float:
        """Answers that are right beside a partner of one convention or the other, mean of the agents."""
        return float(np.mean([one + two for one, two in zip(self.first, self.second, strict=True)]))

    @property
    def beside_fixed(self) -> float:
        """Success of an agent beside reference partners of fixed conventions: the mean over both of them.

        An agent that settles on a convention gains beside one and loses beside the other, so that this stays
        where it was, however well the agents fit together.
        """
        return self.able / 2

    def convention(self, n: int) -> str:
        """Which of `CONVENTIONS` agent n follows, ``both`` if none clearly."""
        shares = np.array([self.first[n], self.second[n]])
        share = shares / max(shares.sum(), 1e-9)
        return CONVENTIONS[int(share.argmax())] if share.max() >= CLEAR else "both"


def team(entry: Mapping) -> Team:
    """The numbers of an entry of summary.json; ValueError if the run was not of the convention task."""
    names = [f"{agent}_{convention}" for convention in CONVENTIONS for agent in AGENTS]
    if missing := [name for name in names if name not in entry]:
        raise ValueError(f"summary.json has no {missing[0]!r}: the run is not of the convention task")
    percent = [100 * entry[name] for name in names]
    return Team(entry["return"], tuple(percent[: len(AGENTS)]), tuple(percent[len(AGENTS) :]))


def rows(workdir: pathlib.Path) -> list[dict]:
    """A row per finished run and state (``warm``, ``after``) of a sweep's folder, in the sweep's order.

    ValueError if there is no sweep.json.
    """
    sweep = closing.read_json(workdir / "sweep.json")
    if not sweep:
        raise ValueError(f"--workdir={workdir}: there is no sweep.json; run experiments.sweep first")
    entries = []
    for setting in sweep["settings"]:
        for member in setting["members"]:
            if member["state"] == FINISHED:
                entries += _of_run(setting["setting"], member["seed"], pathlib.Path(member["folder"]))
    return entries


def _of_run(setting: str, seed: int, folder: pathlib.Path) -> list[dict]:
    summary, config = closing.read_json(folder / "summary.json"), setup.load_run(folder)
    entries = []
    for state in ("warm", "after"):
        if state in summary:
            own = team(summary[state])
            followed = {agent: own.convention(n) for n, agent in enumerate(AGENTS)}
            numbers = {"joint": own.joint, "able": own.able, "beside_fixed": own.beside_fixed}
            shares = {f"{agent}_first": own.first[n] for n, agent in enumerate(AGENTS)}
            cost = {"judged": _judged(config, summary[state]["step"]), "minutes": summary["seconds"] / 60}
            entries.append(
                {"setting": setting, "seed": seed, "state": state, **numbers, **shares, **followed, **cost}
            )
    return entries


def _judged(config: ConfigDict, steps: int) -> int:
    """Joint answers that were judged in training."""
    return steps * (arithmetic.joint_answers(config) + arithmetic.counterfactual_answers(config))


def table(entries: Sequence[Mapping]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headers and rows as texts."""
    headers = ["setting", "seed", "state", "joint", "able", "beside a fixed partner"]
    headers += [f"{agent}'s convention" for agent in AGENTS] + ["answers judged", "minutes"]
    texts = [
        (
            row["setting"], str(row["seed"]), row["state"],
            *(f"{row[name]:.1f}" for name in ("joint", "able", "beside_fixed")),
            *(row[agent] for agent in AGENTS),
            str(row["judged"]), f"{row['minutes']:.1f}",
        )
        for row in entries
    ]  # fmt: skip
    return headers, texts


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    flags.DEFINE_string("workdir", None, "Folder of the sweep.", required=True)


def main(argv):
    """Command line entry."""
    cli.refuse_arguments(argv)
    workdir = pathlib.Path(flags.FLAGS.workdir)
    entries = rows(workdir)
    headers, texts = table(entries)
    console.table(texts, headers)
    files.atomic_write_text(workdir / "conventions.json", json.dumps(entries, indent=1) + "\n")
    files.atomic_write_text(workdir / "conventions.md", console.markdown(texts, headers, "# Conventions"))
    print(f"\nconventions.json and conventions.md are in {workdir}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
