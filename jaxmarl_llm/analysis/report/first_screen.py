"""The first section of a page about one run: what was trained, test before and after, an example."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxmarl_llm.analysis.report.runs import EvaluationData, RunData
from jaxmarl_llm.analysis.report.tables import ends, number
from jaxmarl_llm.transcripts import JointAction

STATES = {"before": "untrained", "warm": "warmed up", "after": "trained"}


class Answer(NamedTuple):
    """A joint answer of one state of the team: title of the state, judgement, (agent, text) of all agents."""

    title: str
    judgement: str
    texts: tuple[tuple[str, str], ...]


class FirstScreen(NamedTuple):
    """Sentences, and the greedy answers to the first test problem (item: its id, '' without kept answers)."""

    sentences: tuple[str, ...]
    item: str
    answers: tuple[Answer, ...]


def first_screen(runs: Sequence[RunData], evaluated: Sequence[EvaluationData]) -> FirstScreen | None:
    """The first section for one finished run; None for several runs, or without results after training."""
    if len(runs) != 1 or "after" not in runs[0].summary:
        return None
    (run,) = runs
    answers, item = _answers(evaluated)
    return FirstScreen((_what(run), *_results(run.summary)), item, answers)


def _what(run: RunData) -> str:
    """A sentence: what was trained, with which method, on which problems, for how long."""
    config = run.config
    team, task, train = (config.get(name, {}) for name in ("team", "task", "train"))
    models = ", ".join(dict.fromkeys(team.get("models") or [str(config.get("model", ""))]))
    agents = " and ".join(run.agents) or "the team"
    method = f" by {train['system']}" if "system" in train else ""
    data = " ".join(filter(None, (task.get("kind"), "problems" if task.get("kind") else "")))
    problems = f" on {data or 'problems'} of {task['source']!r}" if task.get("source") else ""
    seconds, warm_up = run.summary.get("seconds"), run.summary.get("warm_up_seconds")
    duration = f", in {number(seconds / 60)} minutes" if seconds is not None else ""
    duration += f" after a warm-up of {number(warm_up / 60)} minutes" if warm_up is not None else ""
    return (
        f"{agents} ({models}) learned to answer together{problems}{method}: "
        f"{run.summary['after']['step']} iterations{duration}."
    )


def _results(summary: dict) -> list[str]:
    """Sentences with the test return of each state, then of the state that is best on validation."""
    entries = {title: summary[name] for name, title in STATES.items() if name in summary}
    returns = ", ".join(f"{title} {_return(entry)}" for title, entry in entries.items())
    lines = [
        f"Return on the test problems, which were not trained on (0..100, sampled answers): {returns}. "
        "In brackets: 95 % interval over the problems. Trained is the latest state."
    ]
    best = summary.get("best", {})
    if best.get("return") is not None and best.get("step") != summary["after"]["step"]:
        lines.append(
            f"The best state on validation is that of iteration {best['step']}: {_return(best)} on the test."
        )
    elif best.get("return") is not None:
        lines.append("The latest state is also the best one on validation.")
    return lines


def _return(entry: dict) -> str:
    return f"{number(entry.get('return'))} {ends(entry.get('return_low'), entry.get('return_high'))}".rstrip()


def _answers(evaluated: Sequence[EvaluationData]) -> tuple[tuple[Answer, ...], str]:
    """Greedy answers of every state to the first problem of its evaluation, and the id of that problem."""
    answers, item = [], ""
    for evaluation in evaluated:
        title = STATES.get(evaluation.report.get("state"))
        actions = evaluation.actions.get("greedy")
        if title is None or not actions:
            continue
        action = next(a for a in reversed(actions) if a.item == actions[0].item)  # the last of several turns
        if item in ("", action.item):
            item = action.item
            answers.append(Answer(title, action.outcome, _texts(action)))
    return tuple(answers), item


def _texts(action: JointAction) -> tuple[tuple[str, str], ...]:
    return tuple((agent, speech.message.strip("\n")) for agent, speech in action.agents.items())
