"""Measure what experience with other problems is worth: one team with examples of several kinds, or none.

    python -m benchmarks.experience --workdir=runs/experience                       # scripted authors
    python -m benchmarks.experience --workdir=runs/experience_model --model --seeds 0 --memory=runs/experience/seed0

For each seed the team first writes versions for all problems without examples, in several chains per problem,
and the instructor is asked about the shortcuts. Then the team starts again with each way to choose examples
and this fixed memory. A problem's examples come from the other problems, never from itself. ``same kind`` is
not a method but shows the possible gain: it knows a problem's rewrites and takes experience whose technique
is of the same kind as one of them.

Filling the memory costs programs too, so a second table is at equal cost: for each problem it takes the
better of the programs that filled the memory and those written later, as measured in the search. ``none`` is
then a team that writes as many programs and remembers nothing.

All ways share their timings: a program is timed once (`timing.remember`), whichever agent or seed writes it,
and measured again once. So ways differ by what is written, not by noise. Every step is kept in the work
folder; if it is stopped, the same command continues.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence

from benchmarks.tables import markdown
from configs import experience as configs
from jaxmarl_llm.analysis.search import metrics, search
from jaxmarl_llm.analysis.search.metrics import ItemResult
from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import programs, validate
from jaxmarl_llm.factory import experts, protocols, randomness, tasks, teams
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.memory import Item, saved
from jaxmarl_llm.protocols import encoders
from jaxmarl_llm.protocols.experience import Experience, Recall
from jaxmarl_llm.protocols.experience_memory import CODE, NAME, ExperienceMemory, Mining
from jaxmarl_llm.rollout.journal import Journal
from jaxmarl_llm.runs import journals
from jaxmarl_llm.tasks.programs import techniques

NONE, ORACLE = "none", "same kind"
WAYS = (NONE, "random", "bm25", "cosine", "two_step", ORACLE)


@dataclasses.dataclass(frozen=True)
class SameKind:
    """Experience with a technique of the kind that the problem's rewrites have or the instruction names."""

    items: Sequence[Item]
    problems: Mapping[str, object]

    def __call__(self, problem: str, key: str, query: str, random) -> list[Item]:
        """One random item among those that fit; [] if none fits."""
        own = [rewrite.technique for rewrite in self.problems[problem].faster] if key == CODE else [query]
        wanted = frozenset[str]().union(*map(techniques.kinds, own))
        fits = [
            item
            for item in self.items
            if item.provenance["problem"] != problem and techniques.kinds(item.text) & wanted
        ]
        return [fits[random.integers(len(fits))]] if fits else []


@dataclasses.dataclass(frozen=True)
class Bench:
    """Shared by all ways: a team with its task, whose judge remembers its timings."""

    config: object
    by: search.Searchers
    task: object

    def played(self, folder: pathlib.Path, recall: Callable, mining: Mining | None = None, chains: int = 1):
        """The results of a way for all problems, and its forest."""
        config, task = self.config, self.task
        ids = range(len(task.items))
        protocol = Experience(task, config.team.agents[0], chains, config.train.turns, recall, mining)
        journal = Journal(folder, (), functools.partial(journals.known, task, ids))
        key = randomness.stream(config, "search")
        forest = search.rollout(config, protocol, self.by, task, ids, key, journal)
        return search.results_of(config, task, protocol, forest, journal)[0], forest


def opened(config, executor, judge) -> Bench:
    """The team of a seed."""
    task = tasks.build_programs(config, executor, "test", programs.writers(config), judge)
    team = teams.build_team(config, speakers=experts.build(config, task.items))
    trainables = [member.trainable for member in team.members]
    return Bench(config, search.Searchers(team, trainables, executor, None), task)


def filled(bench: Bench, folder: pathlib.Path, chains: int) -> tuple[Sequence[Item], Sequence[ItemResult]]:
    """The team's experience with all problems, which is kept in the seed's folder, and its best programs."""
    mining, kind = protocols.mining(bench.config), bench.config.task.kind
    results, first = bench.played(folder / "fill", Recall(), mining, chains)
    store = ExperienceMemory(kind, bench.task.given, mining)
    store.add(first)
    with store.kept_in(folder, 1):
        store.save(0)
    return store, results


def of_seed(
    bench: Bench, folder: pathlib.Path, ways: Sequence[str], items: Sequence[Item]
) -> dict[str, tuple]:
    """By way: results, and how well its examples fit if it has a memory."""
    print(
        f"{folder.name}: {len(items)} shortcuts of {len({i.provenance['problem'] for i in items})} problems",
        flush=True,
    )
    relevance = encoders.build(bench.config.experience.encoder, bench.by.team, "experience.encoder")
    problems = {str(item.task_id): item for item in bench.task.items}
    by_way = {}
    for way in ways:
        recall = SameKind(items, problems) if way == ORACLE else Recall(items, way, 1, relevance)
        results, forest = bench.played(folder / way.replace(" ", "_"), recall)
        by_way[way] = results, fitting(forest, items)
    return by_way


def at_equal_cost(
    filling: Sequence[ItemResult], by_way: Mapping[str, tuple]
) -> dict[str, tuple[list[ItemResult], list[float]]]:
    """By way and problem, the better (in the search) of what filled the memory and what was written later."""
    first = {result.item: result for result in filling}
    return {
        way: ([max(first[r.item], r, key=lambda each: each.searched) for r in results], fits)
        for way, (results, fits) in by_way.items()
    }


def fitting(forest: Forest, items: Sequence[Item]) -> list[float]:
    """For each instructor prompt with an example, whether the example's technique is of a rewrite's kind."""
    by_id, fits = {item.id: item for item in items}, []
    for turn in forest.turns:
        if turn.agent == configs.AGENTS[0] and turn.shown and hasattr(forest.items[turn.item], "faster"):
            texts = [by_id[i].text for i in turn.shown]
            fits.append(float(bool(techniques.alike(forest.items[turn.item], texts))))
    return fits


def measure(config) -> str:
    """What the scores measure."""
    return search.MEASURES[config.task.kind]


def table(by_way: Mapping[str, Sequence[tuple]], of: str) -> str:
    """A row for each way, over all seeds."""
    name, right = ("geomean", "correct") if of == "speed-up" else ("tests", "pass@1")
    every: dict[str, list[ItemResult]] = {
        way: [r for one, _ in seeds for r in one] for way, seeds in by_way.items()
    }
    rows = []
    for way, results in every.items():
        total = metrics.means(results, of)[metrics.TOTAL]
        row = [way, number(total[right]), number(total[name])]
        for other in (NONE, "random"):
            known = other in every and other != way
            row += versus(metrics.differences(results, every[other], of)[name], of) if known else ["", ""]
        fits = [fit for _, each in by_way[way] for fit in each]
        rows.append([*row, f"{sum(fits) / len(fits):.2f}" if fits else ""])
    heads = ["examples", "right, %", name, "against none", "p", "against random", "p", "fit"]
    return markdown(heads, rows)


def number(interval) -> str:
    """A mean with its interval."""
    return f"{interval.mean:.3g} [{interval.low:.3g}, {interval.high:.3g}]"


def versus(difference, of: str) -> list[str]:
    """A ratio, or a difference of shares, with its interval; and p."""
    sign = "×" if of == "speed-up" else ""
    return [sign + number(difference), f"{difference.p:.2g}"]


def main(arguments=None) -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.experience", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--workdir", default="runs/experience", help="folder of all steps; the same command goes on"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2, 3, 4))
    parser.add_argument("--source", default="", help="problems in place of the config's")
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS)
    parser.add_argument(
        "--variant", default="", help="of configs/experience.py, in place of scripted: such as generation"
    )
    parser.add_argument(
        "--model", action="store_true", help="the config's model in place of scripted authors"
    )
    parser.add_argument("--turns", type=int, default=0, help="versions of each program; 0: the config's")
    parser.add_argument("--chains", type=int, default=4, help="of each problem, which fill the memory")
    parser.add_argument("--memory", default="", help="folder of a seed of another run, whose memory is taken")
    parser.add_argument("--pairs", type=int, default=7, help="most pairs of a measurement")
    parser.add_argument("--tokens", type=int, default=0, help="most of an answer; 0: the config's")
    args = parser.parse_args(arguments)
    variant = ",".join(filter(None, [args.variant, "" if args.model else "scripted"]))
    config = configs.get_config(variant or None)
    config.train.turns = args.turns or config.train.turns
    config.sampling.max_new_tokens = args.tokens or config.sampling.max_new_tokens
    config.task.source, config.timing.max_pairs = args.source or config.task.source, args.pairs
    validate(config)
    by_way: dict[str, list[tuple]] = {way: [] for way in args.ways}
    equal: dict[str, list[tuple]] = {way: [] for way in args.ways}
    with tasks.build_executor(config) as executor:
        judge = tasks.build_judge(config, executor)  # one set of timings for all seeds
        for seeds_done, seed in enumerate(args.seeds, 1):
            config.seed = seed
            bench = opened(config.copy_and_resolve_references(), executor, judge)
            folder = pathlib.Path(args.workdir) / f"seed{seed}"
            given, filling = (args.memory and saved(args.memory, 0, Item, NAME)), None
            if not given:
                given, filling = filled(bench, folder, args.chains)
            rows = of_seed(bench, folder, args.ways, given)
            with_filling = at_equal_cost(filling, rows) if filling else {}
            for way, row in rows.items():
                by_way[way].append(row)
                equal[way] += [with_filling[way]] if with_filling else []
            print(f"\n{len(bench.task.items)} problems, seeds {args.seeds[:seeds_done]}\n")
            print(table(by_way, measure(config)), flush=True)
            if with_filling:
                print("\nThe better of what filled the memory and what was written afterwards\n")
                print(table(equal, measure(config)), flush=True)
    return 0


if __name__ == "__main__":
    entry.run_script(main)
