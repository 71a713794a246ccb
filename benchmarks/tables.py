"""Markdown tables of measurements."""

from collections.abc import Mapping, Sequence

from benchmarks.rounds import Seconds, medians, ratios


def markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [headers, ("---",) * len(headers), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def comparison(seconds: Mapping[str, Sequence[Seconds]], floors: Seconds) -> str:
    """A row per phase and for the whole: median seconds, the floor, ratios to ours, our share of the limit.

    Args:
      seconds: by system and round; ours is named ``ours``.
      floors: minimum seconds of the phases that ours has, by phase.
    """
    our_medians = medians(seconds["ours"])
    phases = dict.fromkeys(phase for rounds in seconds.values() for phase in medians(rounds))
    phases = [phase for phase in phases if phase != "whole"]
    phases += ["whole"] if len(phases) > 1 else []
    floors = {phase: floors[phase] for phase in our_medians if phase != "whole"}
    floors["whole"] = sum(floors.values())
    others = [name for name in seconds if name != "ours"]
    against = {name: ratios(seconds[name], seconds["ours"]) for name in others}
    rows = []
    for phase in phases:
        taken = [medians(rounds).get(phase) for rounds in seconds.values()]
        times = [str(against[name].get(phase, "-")) for name in others]
        share = f"{100 * floors[phase] / our_medians[phase]:.0f} %" if phase in floors else "-"
        rows.append((phase, *map(_number, [*taken, floors.get(phase)]), *times, share))
    headers = ("seconds", *seconds, "floor", *(f"{name} / ours" for name in others), "floor / ours")
    return markdown(headers, rows)


def _number(value: float | None) -> str:
    """The value with three digits, "-" for None."""
    return "-" if value is None else f"{value:#.3g}".rstrip(".")
