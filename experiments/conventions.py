"""Show what the runs of a convention sweep learned: who does which step, and whether skill alone explains it.

  python -m experiments.conventions --workdir=runs/convention

prints how each finished run of every variant of `configs/sweep_convention.py` answers after the warm-up and
after training, in percent of the sampled answers to the test problems. It writes conventions.json, .md and
.png to the workdir. ``--have=<conventions.json>`` adds runs that were finished elsewhere.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import flags

from jaxmarl_llm import metrics
from jaxmarl_llm.analysis.report import methods
from jaxmarl_llm.cli import entry as cli
from jaxmarl_llm.cli.launch import FINISHED
from jaxmarl_llm.runs import budgets, final_table, summaries
from jaxmarl_llm.tasks.toys.convention import AGENTS, CONVENTIONS
from jaxmarl_llm.utils import console, files
from jaxmarl_llm.utils.errors import UserError

CLEAR = 0.75  # an agent follows a convention if at least this share of its right answers belongs to it
STATES = ("warm", "after")
NUMBERS = {  # numbers of a team, and their names in tables
    "joint": "joint success",
    "able": "able",
    "by_skill": "joint success by skill alone",
    "beside_fixed": "beside a fixed partner",
    "most_alone": "one needs no convention",
}
COSTS = {
    "answers": "answers judged",
    "tokens": "tokens drawn",
    "optimizer_tokens": "tokens learned from",
    "seconds": "seconds an iteration",
}
UPPER = "fixed convention"  # the variant that has a convention from its demonstrations
OTHER_START = (UPPER, "c3")  # warmed up on other demonstrations; answers in a tree


class Team(NamedTuple):
    """A team's answers, in percent.

    Attributes:
      joint: joint answers that earn the reward.
      first, second: per agent of `AGENTS`, answers that do one step and are right with a partner who follows
        the convention.
      alone: per agent, answers that need no convention.
    """

    joint: float
    first: tuple[float, ...]
    second: tuple[float, ...]
    alone: tuple[float, ...]

    @property
    def able(self) -> float:
        """Answers that are right with a partner of either convention, mean over the agents."""
        return float(np.mean([one + two for one, two in zip(self.first, self.second, strict=True)]))

    @property
    def by_skill(self) -> float:
        """Joint success that agents with these abilities would have without a convention.

        Each would follow either convention with probability 1/2, independently of the other.
        """
        return float(np.prod([one + two for one, two in zip(self.first, self.second, strict=True)])) / 200

    @property
    def beside_fixed(self) -> float:
        """Success of an agent with reference partners of fixed conventions: the mean over both partners.

        An agent that settles on a convention gains with one partner and loses with the other. So this mean
        does not change, however well the agents fit together.
        """
        return self.able / 2

    @property
    def most_alone(self) -> float:
        """Answers that need no convention, of the agent that gives more of them; they earn nothing."""
        return max(self.alone)

    def convention(self, n: int) -> str:
        """Which of `CONVENTIONS` agent n follows; ``both`` if it does not clearly follow one."""
        shares = np.array([self.first[n], self.second[n]])
        share = shares / max(shares.sum(), 1e-9)
        return CONVENTIONS[int(share.argmax())] if share.max() >= CLEAR else "both"


def team(entry: Mapping) -> Team:
    """The numbers of an entry of summary.json; ValueError if the run was not of the convention task."""
    names = [f"{agent}_{which}" for which in (*CONVENTIONS, "alone") for agent in AGENTS]
    if missing := [name for name in names if name not in entry]:
        raise UserError(f"summary.json has no {missing[0]!r}: the run is not of the convention task")
    first, second, alone = (
        tuple(100 * entry[f"{agent}_{which}"] for agent in AGENTS) for which in (*CONVENTIONS, "alone")
    )
    return Team(entry["return"], first, second, alone)


def rows(workdir: pathlib.Path) -> list[dict]:
    """A row per finished run and state (``warm``, ``after``) of a sweep's folder, in the sweep's order.

    ValueError if there is no sweep.json, or a run that it names is gone.
    """
    sweep = summaries.read_json(workdir / "sweep.json")
    if not sweep:
        raise UserError(f"--workdir={workdir}: there is no sweep.json; run experiments.sweep first")
    entries = []
    for setting in sweep["settings"]:
        for member in setting["members"]:
            if member["state"] == FINISHED:
                entries += _of_run(setting["setting"], member["seed"], pathlib.Path(member["folder"]))
    return entries


def read(path: str) -> list[dict]:
    """The rows of a conventions.json. UserError, with its number from 0, for an invalid row."""
    numbers = [*NUMBERS, *COSTS, *(f"{agent}_first" for agent in AGENTS)]
    kinds: dict[str, tuple] = {"setting": (str,), "seed": (int,), "state": (str,), "problems": (list,)}
    kinds |= dict.fromkeys(numbers, (int, float)) | dict.fromkeys(AGENTS, (str,))
    rows = files.read_json(path, list)
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise UserError(f"{path}: is no conventions.json, row {number} is {row!r:.40}")
        for name, kind in kinds.items():
            if type(row.get(name)) not in kind:
                raise UserError(
                    f"{path}: is no conventions.json, {name!r} of row {number} is {row.get(name)!r:.40}"
                )
    return rows


def merged(entries: Sequence[Mapping], have: Sequence[Mapping]) -> list[Mapping]:
    """``entries``, and the rows of ``have`` for other runs, ordered by variant and seed."""
    present = {(row["setting"], row["seed"]) for row in entries}
    rows = [*(row for row in have if (row["setting"], row["seed"]) not in present), *entries]
    order = list(dict.fromkeys(row["setting"] for row in [*have, *entries]))
    return sorted(rows, key=lambda row: (order.index(row["setting"]), row["seed"]))


def _of_run(setting: str, seed: int, folder: pathlib.Path) -> list[dict]:
    if not (folder / "summary.json").is_file():
        raise UserError(f"{folder}: this run of sweep.json is gone; run experiments.sweep with --table_only")
    summary, spent = summaries.read_json(folder / "summary.json"), _spent(folder)
    entries = []
    for state in STATES:
        if state in summary:
            percentages = team(summary[state])
            followed = {agent: percentages.convention(n) for n, agent in enumerate(AGENTS)}
            numbers = {name: getattr(percentages, name) for name in NUMBERS}
            shares = {f"{agent}_first": percentages.first[n] for n, agent in enumerate(AGENTS)}
            cost = spent if state == "after" else dict.fromkeys(spent, 0)
            about = {"setting": setting, "seed": seed, "state": state, "problems": _problems(folder, state)}
            entries.append(about | numbers | shares | followed | cost)
    return entries


def _problems(folder: pathlib.Path, state: str) -> list[float]:
    """Sampled joint success by test problem; [] if the run did not keep its answers in that state."""
    return [row["return"] for row in final_table.sampled_items(folder, state)]


def _spent(folder: pathlib.Path) -> dict[str, float]:
    """Joint answers judged, tokens drawn, tokens learned from, and seconds per iteration, after a warm-up."""
    rows = [row for row in metrics.read_metrics(folder) if budgets.TOKENS in row]
    totals = {name.removeprefix("spent/"): rows[-1][name] for name in budgets.NAMES}
    # The median: the first iteration compiles.
    return totals | {"seconds": float(np.median([row["seconds"] for row in rows]))}


def table(entries: Sequence[Mapping]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headers and rows as texts, a row per run and state."""
    headers = ["variant", "seed", "state", *NUMBERS.values(), *(f"{agent}'s convention" for agent in AGENTS)]
    texts = [
        (
            row["setting"], str(row["seed"]), row["state"], *(f"{row[name]:.1f}" for name in NUMBERS),
            *(row[agent] for agent in AGENTS),
        )
        for row in entries
    ]  # fmt: skip
    return headers, texts


def by_variant(entries: Sequence[Mapping]) -> dict[str, list[Mapping]]:
    """Rows by variant: the warmed-up teams first, one per seed, then the trained teams of each variant.

    Warmed-up teams are those of variants with the same start (see `OTHER_START`) that kept their answers.
    """
    warmed_up = [row for row in entries if row["state"] == "warm" and row["setting"] not in OTHER_START]
    warm = {row["seed"]: row for row in reversed(warmed_up) if row["problems"]}
    groups = {"warmed up": [warm[seed] for seed in sorted(warm)]} if warm else {}
    for row in entries:
        if row["state"] == "after":
            groups.setdefault(row["setting"], []).append(row)
    return groups


def summary(entries: Sequence[Mapping]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headers and rows as texts, a row per variant: means over its seeds after training.

    The share is joint success relative to that of the variant `UPPER`.
    """
    headers = ["variant", "runs", *NUMBERS.values(), f"share of {UPPER}", *COSTS.values(), "conventions"]
    groups = by_variant(entries)
    upper = [row["joint"] for row in groups.get(UPPER, [])]
    return headers, [_variant(name, runs, upper) for name, runs in groups.items()]


def _variant(name: str, runs: Sequence[Mapping], upper: Sequence[float]) -> tuple[str, ...]:
    joint = [run["joint"] for run in runs]
    share = f"{100 * np.mean(joint) / np.mean(upper):.0f} %" if upper else ""
    others = [
        methods.with_intervals([run[number] for run in runs]) for number in NUMBERS if number != "joint"
    ]
    costs = [f"{np.mean([run[cost] for run in runs]):,.0f}" for cost in COSTS]
    settled = ", ".join(_convention(run) for run in runs)
    with_problems = methods.with_intervals(joint, [run["problems"] for run in runs])
    return name, str(len(runs)), with_problems, *others, share, *costs, settled


def _convention(run: Mapping) -> str:
    """The convention that both agents of a run follow, ``none`` if they do not follow the same one."""
    followed = {run[agent] for agent in AGENTS}
    return followed.pop() if len(followed) == 1 and followed < set(CONVENTIONS) else "none"


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    flags.DEFINE_string("workdir", None, "Folder of the sweep.", required=True)
    flags.DEFINE_string("have", "", "conventions.json of an earlier call: its runs are added.")


def main(argv):
    """Command line entry."""
    cli.refuse_arguments(argv)
    workdir = pathlib.Path(flags.FLAGS.workdir)
    files.ensure_writable(workdir / "conventions.json", "copy the folder to where you may write")
    have = read(flags.FLAGS.have) if flags.FLAGS.have else []
    entries = merged(rows(workdir), have)
    pages = []
    for title, (headers, texts) in {"Variants": summary(entries), "Runs": table(entries)}.items():
        console.table(texts, headers, title)
        pages.append(console.markdown(texts, headers, f"## {title}"))
    files.atomic_write_text(workdir / "conventions.json", json.dumps(entries, indent=1) + "\n")
    files.atomic_write_text(workdir / "conventions.md", "\n".join(pages))
    # Imported here, so that --help does not wait for matplotlib.
    from jaxmarl_llm import plots
    from jaxmarl_llm.analysis.report import convention_figure

    plots.write_png(convention_figure.draw, workdir / "conventions.png", by_variant(entries))
    print(f"\nconventions.json, conventions.md and conventions.png are in {workdir}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
