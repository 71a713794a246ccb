"""The summary of a run: logged and saved results of evaluations, and the lines printed at the end."""

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
    """The most important numbers of an iteration, for one line."""
    names = {f"train/{part}": part for part in PARTS}
    names |= {f"{agent}/completion_length": f"{agent} tokens" for agent in agents}
    if "sft/tokens" in values:
        names |= {f"{agent}/loss": f"{agent} loss" for agent in agents}
    # For iterations without sampling: demonstrations or preferences.
    names |= {f"{agent}/{of}_loss": f"{agent} {of} loss" for of in ("sft", "dpo") for agent in agents}
    names |= {"madpo/loss": "madpo loss"}
    # Shown only if rewards take long; most are fast.
    names |= {"seconds/score": "reward s"} if values.get("seconds/score", 0) > values["seconds"] / 10 else {}
    return {short: values[name] for name, short in names.items() if name in values} | {"s": values["seconds"]}


def eval_metrics(sampled: dict, greedy: dict, prefix: str = "eval") -> dict[str, float]:
    """Metric names of an evaluation: ``eval/...`` sampled, ``eval_greedy/...`` greedy, numbers only.

    prefix: "eval" for validation, "test" for the test.
    """
    row = {f"{prefix}/{k}": v for k, v in sampled.items() if isinstance(v, (int, float))}
    row |= {f"{prefix}_greedy/{k}": v for k, v in greedy.items() if isinstance(v, (int, float))}
    return row | {f"{prefix}/return_greedy": greedy["return"]}


def entry(values: dict, step: int, prefix: str = "test") -> dict:
    """The entry of an evaluation in summary.json: sampled parts, their interval, and the greedy return."""
    start = f"{prefix}/"
    parts = {name.removeprefix(start): value for name, value in values.items() if name.startswith(start)}
    return {**parts, "step": step}


def eval_line(title: str, entry: dict) -> str:
    """One line for an evaluation; in brackets the 95 % interval over the problems, if there are several."""
    ends = f" [{entry['return_low']:.1f}, {entry['return_high']:.1f}]" if "return_low" in entry else ""
    return f"{title}: return {entry['return']:.1f}{ends} sampled, {entry['return_greedy']:.1f} greedy"


def read_json(path: pathlib.Path) -> dict:
    """The JSON object in a file of a run folder; {} if there is no file. UserError names a damaged file."""
    return formats.read(path) if path.is_file() else {}


def seconds(summary: dict) -> float:
    """Duration of a run, earlier sessions included, from its summary while it runs."""
    return summary["seconds"] + time.time() - summary["resumed"]


def write_summary(run) -> None:
    """Write summary.json with the seconds spent so far, earlier sessions included."""
    run.summary |= {"seconds": seconds(run.summary), "resumed": time.time()}
    shown = {k: v for k, v in run.summary.items() if k != "resumed"} | {"seed": run.config.seed}
    for name in {"before", "warm", "best", "after", *MARKS} & set(shown):
        # JSON has no NaN; summaries of earlier sessions hold None instead.
        shown[name] = {k: None if v is None or not math.isfinite(v) else v for k, v in shown[name].items()}
    formats.write(run.output_folder / "summary.json", shown)


def finished(config, folder) -> dict:
    """Print and return the summary of a complete run; {} if iterations remain.

    ValueError if the run has another config.
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
    """summary.json; {} if it is missing or damaged, as if the run were not finished."""
    try:
        return read_json(folder / "summary.json")
    except formats.NewerFormatError:
        raise
    except UserError:
        return {}


def complete(config, summary: dict) -> bool:
    """Whether a run with this summary has done all iterations or reached its budgets or time limit."""
    best = summary.get("best", {})
    if "after" not in summary or "validation_return" in best and "return" not in best:
        return False  # stopped before the best state was tested
    budgets = [mark for mark, (field, _) in MARKS.items() if config.train[field]]
    spent = bool(budgets) and all(mark in summary for mark in budgets)
    limit = 60 * config.train.max_minutes or math.inf
    return summary["after"]["step"] == config.train.steps or spent or summary["seconds"] >= limit


def minutes(summary: dict) -> str:
    """Duration of a run in words; its warm-up is listed separately."""
    text = f"{summary['seconds'] / 60:.1f} minutes"
    warm_up = summary.get("warm_up_seconds")
    return text if warm_up is None else f"{text} after {warm_up / 60:.1f} of warm-up"
