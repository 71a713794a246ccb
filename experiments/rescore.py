"""Judge the answers of a finished run again with another reward: which advantages would change their sign?

Nothing is sampled and no model is loaded:

  python -m experiments.rescore --workdir=runs/x --reward=my_module.my_reward
  python -m experiments.rescore --workdir=runs/x --config=configs/coding.py --config.task.cooperation=observed

With --config the reward and the credit (baseline, normalisation, ..) are those of the config; the answers
and their structure (agents, samples, turns) stay those of the run.
"""

import dataclasses
import json
import math
from collections.abc import Sequence

import numpy as np
from absl import flags

from jaxmarl_llm import transcripts
from jaxmarl_llm.analysis.audit import rescoring
from jaxmarl_llm.analysis.audit.rescoring import Change, Order
from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import judged_by, programs, validate, workload
from jaxmarl_llm.config.general import refuse_seeds
from jaxmarl_llm.runs import run_folder
from jaxmarl_llm.transcripts import JointAction
from jaxmarl_llm.utils import console, files
from jaxmarl_llm.utils.errors import UserError

SHOWN = 5  # changes of sign that are printed


@dataclasses.dataclass(frozen=True)
class Rescored:
    """The result of `rescore`.

    changes: one entry per completion. before, after: total rewards of the joint answers, NaN if missing.
    error: largest difference between the recorded advantages and those computed from the recorded rewards.
    order: how both rewards rank the answers to a problem. missing: why advantages cannot be computed again;
    '' if they were. If they cannot, there are no changes and the error is NaN.
    """

    changes: list[Change]
    before: np.ndarray
    after: np.ndarray
    error: float
    order: Order
    missing: str = ""


def rescore(workdir, config=None, reward: str | None = None) -> Rescored:
    """Judge all transcripts of a run again.

    Args:
      workdir: run folder.
      config: whose task and credit to use; None: the run's.
      reward: dotted name that replaces ``task.reward``; "" is the task's own reward.

    Raises:
      ValueError: for a folder without a run or transcripts, items that the config's task does not have, and
        rounds of programs.
    """
    from jaxmarl_llm.factory import inputs, systems, tasks  # import JAX: --help does not wait for it

    run_config = run_folder.load_run(workdir)
    config = config or run_config
    if reward is not None:
        config = judged_by(config, reward)
    _check_protocols(run_config, config)
    validate(config)
    refuse_seeds(config, "a run")
    steps = transcripts.steps(workdir)
    if not steps:
        raise UserError(
            f"{workdir} has no transcripts (log.transcripts_every={run_config.log.transcripts_every})"
        )
    missing = (
        _missing(run_config)
        or _missing(config)
        or _unnumbered(run_config, transcripts.read(workdir, steps[0]))
    )
    run_credit, new_credit = (None, None) if missing else map(systems.from_forest, (run_config, config))
    # Without advantages nothing depends on nodes, so every answer may be a node of its own.
    per_node, cross = (
        1 if missing else workload.answers_per_node(run_config),
        workload.shares_samples(run_config),
    )
    group = run_config.train.group if run_config.train.partner_samples else None
    changes, rewards, groups, errors = [], [], [], [math.nan if missing else 0.0]
    with tasks.build_executor(config) as executor:
        task = tasks.build_task(config, executor, "train", None)
        inputs.warn(workdir, lambda: inputs.of_data(config, {"train": task}))
        items = {str(item.task_id): item for item in task.items}
        progress = console.LateProgress("iterations judged again")
        for number, step in enumerate(steps, 1):
            actions = transcripts.read(workdir, step)
            forest, before_R = rescoring.forest_of(actions, items, per_node, cross, group)
            again = rescoring.rejudged(forest, task)
            rewards.append((forest.totals(), again.totals()))
            groups += [(step, action.item, action.turn) for action in actions]
            if not missing:
                changes += rescoring.changes(step, forest, before_R, new_credit(again).advantages)
                errors.append(float(np.abs(run_credit(forest).advantages - before_R).max()))
            progress(number, len(steps))
    before, after = (np.concatenate(side) for side in zip(*rewards, strict=True))
    return Rescored(changes, before, after, max(errors), rescoring.order(groups, before, after), missing)


def _check_protocols(*configs) -> None:
    """ValueError for rounds of programs."""
    for c in (config.train for config in configs):
        if c.protocol in programs.METHODS:
            raise UserError(
                f"train.protocol={c.protocol!r}: agents learn from what each one's program earned, and from "
                "what was said between rounds; transcripts hold no such rewards"
            )


def _missing(config) -> str:
    """What a config's credit needs but transcripts do not contain; empty if nothing is missing."""
    from jaxmarl_llm.factory import systems

    c = config.train
    if systems.from_forest(config) is None:
        return f"train.system={c.system!r}: its credit came of more than rewards, which is not recorded"
    if c.system == "ccpo":
        return "train.system='ccpo': what answers earn without a part is not in transcripts"
    if c.later_samples:
        return f"train.later_samples={c.later_samples}: which answers are of one node is not in transcripts"
    if c.local_weight:
        return f"train.local_weight={c.local_weight}: local rewards are not in transcripts"
    return ""


def _unnumbered(config, actions: Sequence[JointAction]) -> str:
    """Why a tree cannot be rebuilt from its answers, if the transcripts are from an earlier version."""
    known = all(speech.id is not None for action in actions for speech in action.agents.values())
    if config.train.protocol != "tree" or known:
        return ""
    return (
        "train.protocol='tree': these transcripts do not say which answer continued which; those of new "
        "runs do"
    )


def show(result: Rescored) -> None:
    """Print how rewards and advantages compare, and the largest changes of sign."""
    known = ~np.isnan(result.before) & ~np.isnan(result.after)
    print(f"{len(known)} joint answers, {known.sum()} of them with both rewards")
    if known.any():
        before, after = result.before[known], result.after[known]
        print(f"mean reward {before.mean():.3g} before, {after.mean():.3g} after")
    print(_order(result.order))
    if result.missing:
        print(f"advantages: not recomputed, because of {result.missing}")
        return
    rows = []
    for agent in (*dict.fromkeys(change.agent for change in result.changes), "all"):
        changes = [change for change in result.changes if agent in (change.agent, "all")]
        shares = rescoring.shares(changes)
        correlation = f"{shares['correlation']:.2f}"
        rows.append((agent, len(changes), *(f"{shares[kind]:.1%}" for kind in rescoring.KINDS), correlation))
    console.table(rows, ("advantages of", "completions", *rescoring.KINDS, "correlation"), title="")
    flipped = [change for change in result.changes if change.kind == "flipped"]
    flipped.sort(key=lambda change: -abs(change.after - change.before))
    if flipped:
        rows = [(c.step, c.item, c.turn, c.agent, c.sample, c.before, c.after) for c in flipped[:SHOWN]]
        headers = ("step", "item", "turn", "agent", "sample", "before", "after")
        console.table(rows, headers, title="\nlargest changes of sign")
    print(
        "from the recorded rewards the recorded advantages follow with an error of at most "
        f"{result.error:.1e}"
    )


def _order(order: Order) -> str:
    """How both rewards rank the answers to a problem, as a line."""
    if not order.pairs:
        return "no problem has two answers with both rewards, so there is no order to compare"
    parts = ", ".join(
        f"{getattr(order, name) / order.pairs:.1%} {words}"
        for name, words in (("kept", "keep their order"), ("reversed", "reverse it"),
                            ("tied", "become equal"), ("parted", "are no longer equal"))
    )  # fmt: skip
    return (
        f"of {order.pairs} pairs of answers to a problem of an iteration {parts}; another answer is the best "
        f"in {order.moved} of {order.problems} problems"
    )


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    flags.DEFINE_string("workdir", None, "Run folder.", required=True)
    flags.DEFINE_string("reward", None, "Dotted name of a reward function; empty: the task's own reward.")
    flags.DEFINE_string("out", "", "File to write, a JSON line per completion.")
    entry.define_config(False, "Config file with task and credit, by default that of the run")


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    if args.config is None and args.reward is None:
        raise UserError("--reward or --config is needed: what to judge the answers with")
    if args.out:
        files.ensure_writable(args.out, "give another --out")
    print(f"reading the run in {args.workdir}", flush=True)
    result = rescore(args.workdir, args.config, args.reward)
    show(result)
    if args.out:
        rows = [dataclasses.asdict(change) | {"kind": change.kind} for change in result.changes]
        lines = [json.dumps(_plain(row), allow_nan=False) for row in rows]
        files.atomic_write_text(args.out, "".join(line + "\n" for line in lines))
        print(f"every completion is in {args.out}")


def _plain(row: dict) -> dict:
    """The row with None (null in JSON) for numbers that are not finite."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


if __name__ == "__main__":
    define_flags()
    entry.run(main)
