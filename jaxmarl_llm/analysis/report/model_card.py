"""README.md of an exported agent: how it was trained, and the scores of its team on the test."""

from collections.abc import Mapping

from jaxmarl_llm.analysis.report.tables import number

STATES = {"before": "untrained", "warm": "warmed up"}


def card(config: Mapping, summary: Mapping, meta: Mapping, agent: str, form: str) -> str:
    """The model card of an exported agent, in the format of the Hugging Face hub.

    Args:
      config: of the run.
      summary: its summary.json; {} if the run has not finished.
      meta: metadata of the checkpoint: ``step``, and ``agents`` with the model of each.
      agent: name of the exported agent.
      form: ``merged`` or ``adapter``.
    """
    base, train, task = meta["agents"][agent]["model"], config["train"], config["task"]
    agents = ", ".join(config["team"]["agents"])
    merged = form == "merged"
    exported_as = "merged with its base model" if merged else "as adapters of its base model"
    lines = [
        "---", f"base_model: {base}", f"library_name: {'transformers' if merged else 'peft'}", "---",
        f"# {agent}", "",
        f"One agent of a team ({agents}), {exported_as} `{base}`: {meta['step']} iterations of "
        f"`train.system={train['system']}` on `task.kind={task['kind']}`, source `{task['source']}`, "
        f"seed {config['seed']}. Trained with jaxmarl_llm.", "",
        *_results(summary, meta["step"]), "",
    ]  # fmt: skip
    return "\n".join(lines)


def _results(summary: Mapping, step: int) -> list[str]:
    """The team's test return of the untrained, the warmed up and the exported state."""
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
        "neither trained on nor used to choose a state; in brackets the 95 % interval over the problems. "
        "They say nothing about this agent without its partners.", "",
        "| state | return | pass@1 |", "|---|---|---|", *table,
    ]  # fmt: skip


def _return(entry: Mapping) -> str:
    ends = [entry.get(name) for name in ("return_low", "return_high")]
    interval = f" [{number(ends[0])}, {number(ends[1])}]" if None not in ends else ""
    return f"{_score(entry, 'return')}{interval}"


def _score(entry: Mapping, name: str) -> str:
    return "" if entry.get(name) is None else number(entry[name])
