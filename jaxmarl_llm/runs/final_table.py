"""What a finished run prints: test results of its states, side by side, and an answer before and after."""

import math
import pathlib

from jaxmarl_llm import transcripts
from jaxmarl_llm.tasks.judgement import is_of_a_kind
from jaxmarl_llm.utils import console, formats

PARTS = ("return", "structure", "syntax", "tests", "cooperation", "style", "coherence")
FOLDER = "test"  # in a run folder: every answer of the evaluations on the test
TITLES = {"before": "untrained", "warm": "warmed up", "after": "trained"}
LINES = 12  # printed lines of one agent's answer


def show(summary: dict, folder) -> None:
    """The closing table, the states with their intervals, and one problem's answers before and after."""
    _table(summary)
    lines = ["", *state_lines(summary), *memory_lines(summary), *example_lines(folder)]
    print("\n".join(lines), flush=True)


def _table(summary: dict) -> None:
    """Test results of the untrained state, the state after the warm-up (if there was one), and the latest."""
    after = summary["after"]
    states = {name: summary[name] for name in TITLES if name in summary}
    shown = (*PARTS, "return_greedy", "pass@1", *kinds_of_items(after))
    names = [n for n in shown if all(state.get(n) is not None for state in states.values())]
    gain = "before" in states
    headers = ("test, 0..100", *(TITLES[name] for name in states), *(["gain"] if gain else []))
    rows = []
    for name in names:
        values = [state[name] for state in states.values()]
        rows.append((name, *(f"{value:.1f}" for value in values)))
        rows[-1] += (f"{values[-1] - values[0]:+.1f}",) if gain else ()
    console.table(rows, headers, title=f"{after['step']} iterations")


def kinds_of_items(entry: dict) -> list[str]:
    """Names of the returns by grade and by statement in a summary entry, and of their pass@1."""
    return sorted(filter(is_of_a_kind, entry), key=lambda name: (name.startswith("pass@1_"), name))


def state_lines(summary: dict) -> list[str]:
    """The sampled return of every state on the test, with its 95 % interval over the problems."""
    after, best = summary["after"], summary.get("best", {})
    titles = {
        "before": "untrained",
        "warm": "warmed up",
        "after": f"trained, latest state (iteration {after['step']})",
        "best": f"trained, best state on validation (iteration {best.get('step')})",
    }
    known = {name: summary[name] for name in titles if summary.get(name, {}).get("return") is not None}
    width = max(len(titles[name]) for name in known) if known else 0
    lines = ["return on the test, sampled, with its 95 % interval over the problems:"]
    for name, entry in known.items():
        lines.append(f"  {titles[name]:{width}}  {entry['return']:5.1f}  {_interval(entry)}".rstrip())
    return lines


def memory_lines(summary: dict) -> list[str]:
    """Planned and used device memory; [] if the backend does not report it."""
    if "memory" not in summary:
        return []
    planned, most = (summary["memory"][name] / 1e3 for name in ("planned_mb", "peak_mb"))
    return [
        f"memory of a device: {most:.2f} GB at most; planned were {planned:.2f} GB of parameters, optimizer, "
        "gradients, caches and logits, without activations"
    ]


def _interval(entry: dict) -> str:
    ends = entry.get("return_low"), entry.get("return_high")
    known = all(end is not None and math.isfinite(end) for end in ends)
    return f"[{ends[0]:.1f}, {ends[1]:.1f}]" if known else ""


def example_lines(folder) -> list[str]:
    """Greedy answers to the first test problem, untrained and trained; [] if they were not kept.

    The first one is always shown: it is not selected for good results.
    """
    actions = {title: first_answer(folder, name) for name, title in TITLES.items()}
    actions = {title: action for title, action in actions.items() if action is not None}
    if not actions:
        return []
    item = next(iter(actions.values())).item
    lines = ["", f"greedy answers to {item}, the first of the test problems:"]
    for title, action in actions.items():
        lines += ["", f"--- {title}: {action.outcome}"]
        for agent, speech in action.agents.items():
            text = speech.message.strip("\n").split("\n")
            more = [f"  ... {len(text) - LINES} more lines"] if len(text) > LINES else []
            lines += [f"[{agent}]", *(f"  {line}" for line in text[:LINES]), *more]
    return [*lines, ""]


def sampled_items(folder: pathlib.Path, name: str) -> list[dict]:
    """Rows of the sampled answers by test problem, of an evaluation on the test; [] if it was not kept."""
    path = folder / FOLDER / f"{name}.json"
    return formats.read(path)["sampled"]["items"] if path.is_file() else []


def first_answer(folder, name: str) -> transcripts.JointAction | None:
    """The greedy answer to the first problem of an evaluation on the test ("before", ..), if it was kept.

    With several turns, the last one.
    """
    place = pathlib.Path(folder) / FOLDER
    if not (place / f"{name}.json").is_file():
        return None
    step = formats.read(place / f"{name}.json")["step"]
    actions = transcripts.read(place / name / "greedy", step)
    return next((a for a in reversed(actions) if a.item == actions[0].item), None)
