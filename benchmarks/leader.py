"""Compare a leader that reads its peers with votes of as many answers that read nothing.

    python -m experiments.compare --task=sums --workdir=runs/compare     # trains what is evaluated here
    python -m benchmarks.leader --workdir=runs/compare/sums

All rows of a number of answers draw equally many answers to a question: a leader after three peers, and a
majority of four answers of one agent. In two turns the peers read the leader's answer and revise theirs, and
the leader answers again: eight answers. Agents are those of `configs/compare.py`, for every seed: the start
(`warm_solo`), the leader trained by MLPO (`mlpo`; its peers are the start) and one agent trained by GRPO
(`grpo`). Nothing is trained here. If it is stopped, the same command continues. Writes leader.md and
leader.json.
"""

import json
import pathlib
import sys

from benchmarks import commands
from experiments.compare import folder_of
from jaxmarl_llm.analysis.report.methods import with_intervals
from jaxmarl_llm.cli import entry
from jaxmarl_llm.runs.results import run
from jaxmarl_llm.utils import console, files

PEERS = 3
PER_VOTE = {1: PEERS + 1, 2: 2 * (PEERS + 1)}  # by turns of the leader: answers to a question
TWO_TURNS = ["--config.train.system=magrpo", "--config.train.turns=2"]
CLONES = "--agent_map=second=first,third=first,leader=first"
# By row: the trained member that answers, how it answers, and flags. A vote has no turns.
LEADERS = {
    "leader with peers, the start": ("warm_solo", 1, [CLONES]),
    "leader with peers, MLPO": ("mlpo", 1, []),
    "leader with peers, the start, two turns": ("warm_solo", 2, [CLONES, *TWO_TURNS]),
    "leader with peers, MLPO, two turns": ("mlpo", 2, TWO_TURNS),
}
ALONE = {
    "majority of the start": ("warm_solo", []),
    "majority of MLPO's leader": ("mlpo", ["--agent_map=first=leader"]),
    "majority of GRPO's agent": ("grpo", []),
}


def commands_of(workdir: pathlib.Path, seed: int, task: str, samples: int) -> dict[str, list[str]]:
    """The commands that evaluate one seed's rows, by row; ``samples``: of a row of eight answers."""

    def evaluate(member: str, like: str, name: str, more: list[str]) -> list[str]:
        out = workdir / "leader" / f"seed{seed}" / f"{name.replace(' ', '_').replace(',', '')}.json"
        return [
            sys.executable, "-m", "experiments.evaluate", f"--config=configs/compare.py:task={task},member={like}",
            f"--config.seed={seed}", f"--workdir={folder_of(workdir, member, seed)}", "--step=latest", *more,
            f"--out={out}",
        ]  # fmt: skip

    made = {}
    for name, (member, turns, more) in LEADERS.items():
        drawn = samples * PER_VOTE[2] // PER_VOTE[turns]
        made[name] = evaluate(member, "mlpo", name, [*more, f"--samples={drawn}"])
    for name, (member, more) in ALONE.items():
        for answers in PER_VOTE.values():
            vote = ["--config.eval.vote=majority", f"--config.eval.chains={answers}"]
            vote.append(f"--config.eval.samples={samples * PER_VOTE[2]}")
            title = f"{name}, {answers} answers"
            made[title] = evaluate(member, "grpo", title, [*more, *vote])
    return made


def right(report: dict) -> dict[str, float]:
    """Share of right answers of the team in 100, of a report, and the answers and tokens that a question cost."""
    scores = {mode: report[mode]["scores"] for mode in ("sampled", "greedy")}
    tokens, greedy = report["sampled"]["answer_tokens"], scores["greedy"]["return"]["mean"]
    for answers in PER_VOTE.values():
        if vote := scores["sampled"].get(f"voted@{answers}"):
            return {"answers": answers, "tokens": answers * tokens, "sampled": vote["mean"], "greedy": greedy}
    turns = 2 if "return_turn2" in scores["sampled"] else 1
    mean = scores["sampled"]["return"]["mean"]
    return {"answers": PER_VOTE[turns], "tokens": tokens, "sampled": mean, "greedy": greedy}


def table(results: dict[str, dict[str, dict[str, float]]]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Headers and rows: means over the seeds with 95 % t-intervals, and the difference to the start's vote."""
    rows, seeds = [], list(results.values())
    for answers in PER_VOTE.values():
        base = f"majority of the start, {answers} answers"
        for name in seeds[0]:
            own = [seed[name] for seed in seeds]
            if own[0]["answers"] != answers:
                continue
            sampled = [one["sampled"] for one in own]
            more = [one["sampled"] - seed[base]["sampled"] for one, seed in zip(own, seeds, strict=True)]
            rows.append(
                (
                    name,
                    str(answers),
                    with_intervals([one["tokens"] for one in own]),
                    with_intervals(sampled),
                    "" if name == base else with_intervals(more, sign="+"),
                    with_intervals([one["greedy"] for one in own]),
                )
            )
    headers = ["right, 0..100", "answers", "tokens", "sampled", "less the start's majority", "greedy"]
    return headers, rows


def main() -> None:
    """Command line entry."""
    args = commands.arguments(
        __doc__.partition("\n")[0], "runs/compare/sums", "one vote of eight answers in place of three"
    )
    workdir, results = pathlib.Path(args.workdir), {}
    for seed in args.seeds:
        made = commands_of(workdir, seed, workdir.name, 1 if args.smoke else 3)
        outs = {name: pathlib.Path(argv[-1].removeprefix("--out=")) for name, argv in made.items()}
        run({outs[name]: argv for name, argv in made.items()})
        results[str(seed)] = {name: right(files.read_json(out)) for name, out in outs.items()}
        files.atomic_write_text(workdir / "leader.json", json.dumps(results, indent=1) + "\n")
        headers, rows = table(results)
        console.table(rows, headers, f"test questions of {workdir.name}, seeds {', '.join(results)}")
        files.atomic_write_text(workdir / "leader.md", console.markdown(rows, headers) + "\n")
    print(f"leader.md and leader.json are in {workdir}")


if __name__ == "__main__":
    entry.run_script(main)
