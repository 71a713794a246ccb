"""The summary of a run: what is logged and written of its evaluations, and what it prints at its end."""

import math
import pathlib
import time

from jaxmarl_llm import resume_checks
from jaxmarl_llm.config import saved as saved_config
from jaxmarl_llm.runs import final_table
from jaxmarl_llm.runs.budgets import MARKS
from jaxmarl_llm.runs.final_table import PARTS
from jaxmarl_llm.utils import formats
from jaxmarl_llm.utils.errors import UserError


def headline(values: dict, agents) -> dict[str, float]:
    """The few numbers of an iteration that fit on a line."""
    names = {f"train/{part}": part for part in PARTS}
    names |= {f"{agent}/completion_length": f"{agent} tokens" for agent in agents}
    if "sft/tokens" in values:
        names |= {f"{agent}/loss": f"{agent} loss" for agent in agents}
    # Iterations that draw nothing: what was imitated, or preferred.
    names |= {f"{agent}/{of}_loss": f"{agent} {of} loss" for of in ("sft", "dpo") for agent in agents}
    names |= {"madpo/loss": "madpo loss"}
    # A reward that takes long shows it: most take next to nothing.
    names |= {"seconds/score": "reward s"} if values.get("seconds/score", 0) > values["seconds"] / 10 else {}
    return {short: values[name] for name, short in names.items() if name in values} | {"s": values["seconds"]}


def eval_metrics(sampled: dict, greedy: dict, prefix: str = "eval") -> dict[str, float]:
    """Metric names of an evaluation: ``eval/...`` sampled, ``eval_greedy/...`` greedy, numbers only.

    prefix: "eval" of validation, "test" of the test.
    """
    row = {f"{prefix}/{k}": v for k, v in sampled.items() if isinstance(v, (int, float))}
    row |= {f"{prefix}_greedy/{k}": v for k, v in greedy.items() if isinstance(v, (int, float))}
    return row | {f"{prefix}/return_greedy": greedy["return"]}


def entry(values: dict, step: int, prefix: str = "test") -> dict:
    """An evaluation as it stands in summary.json: sampled parts, their interval, and the greedy return."""
    start = f"{prefix}/"
    parts = {name.removeprefix(start): value for name, value in values.items() if name.startswith(start)}
    return {**parts, "step": step}


def eval_line(title: str, entry: dict) -> str:
    """One line for an evaluation; in brackets the 95 % interval over the problems, if there are several."""
    ends = f" [{entry['return_low']:.1f}, {entry['return_high']:.1f}]" if "return_low" in entry else ""
    return f"{title}: return {entry['return']:.1f}{ends} sampled, {entry['return_greedy']:.1f} greedy"


def read_json(path: pathlib.Path) -> dict:
    """The JSON object in a file of a run folder; {} if it is not there. UserError names a damaged one."""
    return formats.read(path) if path.is_file() else {}


def seconds(summary: dict) -> float:
    """How long a run has lasted, earlier sessions included, of its summary while it runs."""
    return summary["seconds"] + time.time() - summary["resumed"]


def write_summary(run) -> None:
    """Write summary.json with the seconds spent so far, earlier sessions included."""
    run.summary |= {"seconds": seconds(run.summary), "resumed": time.time()}
    shown = {k: v for k, v in run.summary.items() if k != "resumed"} | {"seed": run.config.seed}
    for name in {"before", "warm", "best", "after", *MARKS} & set(shown):
        # JSON knows no NaN; what an earlier session wrote holds None in its place.
        shown[name] = {k: None if v is None or not math.isfinite(v) else v for k, v in shown[name].items()}
    formats.write(run.output_folder / "summary.json", shown)


def finished(config, folder) -> dict:
    """Show and return the summary of a run that has done all its iterations; {} if there is more to do.

    ValueError if the run was made with another config.
    """
    folder = pathlib.Path(folder)
    saved, summary = saved_config.in_folder(folder), whole_summary(folder)
    if not saved or "after" not in summary:
        return {}
    resume_checks.check_same_run(saved, config.to_dict(), folder)
    if not complete(config, summary):
        return {}
    final_table.show(summary, folder)
    constant = config.train.decay == "constant"
    more = "a larger train.steps goes on from here" if constant else "its learning rate has decayed"
    print(f"the run in {folder} is finished; nothing was done ({more})")
    return summary


def whole_summary(folder: pathlib.Path) -> dict:
    """summary.json; {} where it is not there or damaged, as a run that is not finished has it."""
    try:
        return read_json(folder / "summary.json")
    except formats.NewerFormatError:
        raise
    except UserError:
        return {}


def complete(config, summary: dict) -> bool:
    """Whether a run with this summary has done all iterations, spent its budgets or lasted long enough."""
    best = summary.get("best", {})
    if "after" not in summary or "validation_return" in best and "return" not in best:
        return False  # it was stopped before the best state was tested
    budgets = [mark for mark, (field, _) in MARKS.items() if config.train[field]]
    spent = bool(budgets) and all(mark in summary for mark in budgets)
    limit = 60 * config.train.max_minutes or math.inf
    return summary["after"]["step"] == config.train.steps or spent or summary["seconds"] >= limit


def minutes(summary: dict) -> str:
    """How long a run took, its warm-up apart."""
    text = f"{summary['seconds'] / 60:.1f} minutes"
    warm_up = summary.get("warm_up_seconds")
    return text if warm_up is None else f"{text} after {warm_up / 60:.1f} of warm-up"
