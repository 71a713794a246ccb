"""Tokens per second and model FLOP utilisation of sampling and update, ours and the peers' on the same work."""

import contextlib
import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence

from benchmarks import contest, peers, rounds
from benchmarks.gpu.cells import Case
from jaxmarl_llm.weights import model_files

PHASES = ("generate", "update")
NOT_INSTALLED = "not installed"


def measure(case: Case, model: str, against: Sequence[str], number: int) -> list[dict]:
    """A row for our side, and one for each peer (of `contest.SYSTEMS`).

    Peers answer one problem at a time: with more of them our side is measured alone.
    """
    names, python = list(against) if case.problems == 1 else [], peers.installed()
    settings = json.dumps(dataclasses.asdict(case) | {"model_path": model})
    with peers.Peer([sys.executable, "-m", "benchmarks.gpu.side", settings], "ours") as side:
        described = side.ask()
        starts: dict[str, Callable[[], peers.Peer]] = {"ours": lambda: side}
        for name in names if python else []:
            starts[name] = functools.partial(
                contest.peer, name, python, _of_peer(name, case, model, described)
            )
        seconds, problems = timed(starts, case.new_tokens, number, case.together)
    rows = [row(case, described, name, seconds["ours"], taken) for name, taken in seconds.items()]
    problems |= {} if python else dict.fromkeys(names, NOT_INSTALLED)
    rows += [{"side": name, "note": note} for name, note in problems.items()]
    return [described["machine"] | each for each in rows]


def _of_peer(name: str, case: Case, model: str, described: dict) -> dict:
    """The settings of a peer that does what our side does."""
    own = {key: described[key] for key in ("texts", "prompts", "vocabulary")}
    device = "cuda" if described["machine"]["platform"] == "gpu" else "cpu"
    folder = model_files.find(model)
    return contest.peer_settings(name, case.config(model), folder, device, own)


def timed(
    starts: Mapping[str, Callable[[], peers.Peer]], new_tokens: int, number: int, together: bool
) -> tuple[dict[str, list[rounds.Seconds]], dict[str, str]]:
    """Seconds by side and round, and of peers that failed the reason.

    Sides that a card has room for together take turns; else each begins when the one before it has ended.
    """
    groups = [list(starts)] if together else [[name] for name in starts]
    seconds, problems = {}, {}
    for names in groups:
        try:
            with contextlib.ExitStack() as stack:
                sides = {name: stack.enter_context(starts[name]()) for name in names}
                units = {
                    name: functools.partial(_iteration, side, new_tokens) for name, side in sides.items()
                }
                seconds |= rounds.alternate(units, number)
        except RuntimeError as error:
            if "ours" in names:
                raise
            problems |= dict.fromkeys(names, str(error).splitlines()[-1][:200])
    return seconds, problems


def _iteration(side: peers.Peer, new_tokens: int) -> rounds.Seconds:
    return side.ask(unit="iteration", new_tokens=new_tokens)


def row(
    case: Case, described: dict, name: str, ours: list[rounds.Seconds], taken: list[rounds.Seconds]
) -> dict:
    """What a side's seconds come to; of a peer also how many times as long as ours it took."""
    medians = rounds.medians(taken)
    values: dict = {"side": name}
    for phase in PHASES:
        values[f"{phase}, s"] = medians[phase]
        values[f"{phase}, tokens/s"] = case.drawn / medians[phase]
        values[f"{phase}, MFU %"] = 100 * described["work"][phase] / medians[phase] / described["peak"]
    values["peak is"] = described["peak_is"]
    if name != "ours":
        ratios = rounds.ratios(taken, ours)
        values |= {f"{phase}, times ours": str(ratios[phase]) for phase in (*PHASES, "whole")}
    return values
