"""README.md of an exported agent or team: how it was trained, and the scores of the team on the test."""

from collections.abc import Mapping

from jaxmarl_llm.analysis.report.tables import number

STATES = {"before": "untrained", "warm": "warmed up"}


def card(config: Mapping, summary: Mapping, meta: Mapping, agent: str, form: str, base: str = "") -> str:
    """The model card of an exported agent, in the format of the Hugging Face hub.

    Args:
      config: config of the run.
      summary: its summary.json; {} if the run has not finished.
      meta: metadata of the checkpoint: ``step``, and ``agents`` with the model of each.
      agent: name of the exported agent.
      form: ``merged`` or ``adapter``.
      base: public name of the base model; empty: the name in the run.
    """
    base = base or meta["agents"][agent]["model"]
    agents = ", ".join(config["team"]["agents"])
    merged = form == "merged"
    exported_as = "merged with its base model" if merged else "as adapters of its base model"
    lines = [
        "---", f"base_model: {base}", f"library_name: {'transformers' if merged else 'peft'}", "---",
        f"# {agent}", "",
        f"One agent of a team ({agents}), {exported_as} `{base}`: {_training(config, meta['step'])}", "",
        *_results(summary, meta["step"], " They say nothing about this agent without its partners."), "",
    ]  # fmt: skip
    return "\n".join(lines)


def team_card(config: Mapping, summary: Mapping, team: Mapping) -> str:
    """The card of an exported team, see `card`; ``team`` is the content of its team.json."""
    bases = sorted({entry["base"] for entry in team["agents"].values()})
    adapted = any(entry.get("form") == "adapter" for entry in team["agents"].values())
    library = "peft" if adapted else "transformers"
    rows = [
        f"| {agent} | {entry.get('folder') or 'as its base'} | {entry.get('form', entry['mode'])} | {entry['base']} |"
        for agent, entry in team["agents"].items()
    ]
    lines = [
        "---", "base_model:", *(f"- {base}" for base in bases), f"library_name: {library}", "---",
        f"# A team of {len(rows)}: {', '.join(team['agents'])}", "",
        f"Agents that learned together: {_training(config, team['step'])} `team.json` has the whole config.", "",
        "| agent | folder | form | base model |", "|---|---|---|---|", *rows, "",
        f"The folders load with {library}; `python -m experiments.evaluate --team=<this folder>` plays the team.", "",
        *_results(summary, team["step"]), "", *_prompts(team["prompts"]),
    ]  # fmt: skip
    return "\n".join(lines)


def _training(config: Mapping, step: int) -> str:
    """How a team was trained, as a sentence."""
    train, task = config["train"], config["task"]
    return (
        f"{step} iterations of `train.system={train['system']}` on "
        f"`task.kind={task['kind']}`, source `{task['source']}`, seed {config['seed']}. Trained with jaxmarl_llm."
    )


def _prompts(prompts: Mapping) -> list[str]:
    """What every agent reads of one problem."""
    lines = ["## What each agent reads", ""] if prompts else []
    for agent, messages in prompts.items():
        lines += [f"{agent}, of the first test problem:", "", "````"]
        lines += [f"[{message['role']}]\n{message['content']}" for message in messages]
        lines += ["````", ""]
    return lines


def _results(summary: Mapping, step: int, remark: str = "") -> list[str]:
    """The team's test return in the untrained, warmed-up and exported state, with a remark on the last."""
    rows = {title: summary[name] for name, title in STATES.items() if name in summary}
    states = {"after": "latest", "best": "best on validation"}
    exported = {states[name]: summary[name] for name in states if name in summary}
    exported = {
        title: entry for title, entry in exported.items() if entry["step"] == step and "return" in entry
    }
    if not exported:
        return ["This state was not evaluated on the test problems."]
    rows[f"this state ({' and '.join(exported)})"] = next(iter(exported.values()))
    table = [f"| {title} | {_return(entry)} | {_score(entry, 'pass@1')} |" for title, entry in rows.items()]
    return [
        "Return (0..100) and pass@1 (%) of the whole team's sampled answers to the test problems, which were "
        "neither trained on nor used to choose a state; in brackets the 95 % interval over the problems." + remark, "",
        "| state | return | pass@1 |", "|---|---|---|", *table,
    ]  # fmt: skip


def _return(entry: Mapping) -> str:
    ends = [entry.get(name) for name in ("return_low", "return_high")]
    interval = f" [{number(ends[0])}, {number(ends[1])}]" if None not in ends else ""
    return f"{_score(entry, 'return')}{interval}"


def _score(entry: Mapping, name: str) -> str:
    return "" if entry.get(name) is None else number(entry[name])
