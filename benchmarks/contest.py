"""Code shared by benchmark commands: this package and its peers take turns at the same work."""

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable

import jax

from benchmarks import machine, ours, peers, rounds, tables
from benchmarks.work import Work
from jaxmarl_llm import weights
from jaxmarl_llm.factory import teams
from jaxmarl_llm.utils import host_memory
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import model_files

# Each peer's system, and whether it always fine-tunes all weights; in the order within a round.
SYSTEMS = {"comlrl": ("comlrl", False), "comlrl-full": ("comlrl", True), "torch": ("torch", False)}
Measure = Callable[[Callable[..., rounds.Seconds]], rounds.Seconds]


def parser(doc: str, *, mode: str, group: int, against: str) -> argparse.ArgumentParser:
    """The argument parser of a benchmark, described by its module's docstring; the rest are its defaults."""
    new_parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def add(name, default, text, **options):
        new_parser.add_argument(
            name, default=default, help=f"{text} ({default})", type=type(default), **options
        )

    add("--mode", mode, "what is trained", choices=("full", "adapters"))
    add("--rounds", 5, "rounds that count, after one that does not", metavar="N")
    add("--group", group, "completions of each agent", metavar="N")
    add("--prompt-tokens", 85, "tokens of each agent's prompt", metavar="N")
    add("--new-tokens", 128, "tokens of each completion; none ends earlier", metavar="N")
    add("--model", model_files.DEFAULT, "as config.model", metavar="NAME")
    text = "number format of our weights while sampling; the peers' is always float32"
    add("--sampling-dtype", "float32", text, choices=("float32", "bfloat16"))
    add("--against", against, f"peers, of {', '.join(SYSTEMS)}; empty: none", metavar="NAMES")
    new_parser.add_argument(
        "--json", type=pathlib.Path, metavar="FILE", help="write all that was measured there"
    )
    return new_parser


def chosen(against: str) -> list[str]:
    """The peers of a comma-separated list. ValueError for an unknown one."""
    names = [name for name in against.split(",") if name]
    for name in names:
        if name not in SYSTEMS:
            raise UserError(f"--against names {name!r}, which is not one of {', '.join(SYSTEMS)}")
    return names


@dataclasses.dataclass(frozen=True)
class Result:
    """What was measured, and on which machine."""

    given: dict
    devices: dict[str, str]
    limits: machine.Limits
    floors: rounds.Seconds
    seconds: dict[str, list[rounds.Seconds]]

    def __str__(self) -> str:
        devices = "\n".join(f"{name}: {device}" for name, device in self.devices.items())
        settings = ", ".join(f"{name} {value}" for name, value in self.given.items() if value)
        table = tables.comparison(self.seconds, self.floors)
        return f"{devices}\nmeasured limits: {self.limits}\n{settings}\n\n{table}"

    def write(self, path: pathlib.Path) -> None:
        """Everything as JSON, with the ratios."""
        data = dataclasses.asdict(self)
        data["ratios"] = {
            name: {
                phase: dataclasses.asdict(x)
                for phase, x in rounds.ratios(taken, self.seconds["ours"]).items()
            }
            for name, taken in self.seconds.items()
            if name != "ours"
        }
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def run_contest(given: argparse.Namespace, measure: Measure) -> Result:
    """Run the same work on all sides in turns.

    Args:
      given: from `parser`.
      measure: does one unit of work through the ``ask`` of a side, returns the seconds of its phases.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # torch shares the GPU
    host_memory.keep()  # as in every command
    names, device = chosen(given.against), machine.describe()
    config = ours.make_config(
        model=given.model,
        mode=given.mode,
        group=given.group,
        prompt_tokens=given.prompt_tokens,
        new_tokens=given.new_tokens,
        sampling_dtype=given.sampling_dtype,
    )
    with contextlib.ExitStack() as stack:
        our_side = ours.Ours(config)
        sides = {"ours": our_side, **_start(names, our_side, stack)}
        devices = {name: side.ask()["device"] for name, side in sides.items() if name != "ours"}
        devices = {"ours": device, **devices}
        formats = tuple(dict.fromkeys(("float32", given.sampling_dtype)))
        before = machine.measure(formats)
        turns = {name: functools.partial(_tell, name, measure, side.ask) for name, side in sides.items()}
        seconds = rounds.alternate(turns, given.rounds)
        limits = before.best(machine.measure(formats))
    floors = make_work(config, our_side.policy_config).floors(limits, given.sampling_dtype)
    settings = {name: value for name, value in vars(given).items() if name != "json"}
    return Result(settings, devices, limits, floors, seconds)


def _tell(name: str, measure: Measure, ask) -> rounds.Seconds:
    """Seconds of a side's phases, printed at once: a round may last minutes."""
    seconds = measure(ask)
    print(f"{name}: {sum(seconds.values()):.1f} s", file=sys.stderr, flush=True)
    return seconds


def make_work(config, policy_config) -> Work:
    """The work of one problem under a config."""
    team, sampling = config.team, config.sampling
    rank = team.rank if team.mode == "adapters" else 0
    tokens = sampling.max_prompt_tokens, sampling.max_new_tokens
    return Work(policy_config, len(team.agents), config.train.group, *tokens, rank, tuple(team.targets))


def _start(names: list[str], our_side: ours.Ours, stack: contextlib.ExitStack) -> dict[str, peers.Peer]:
    """The peers, on copies of our weights."""
    if not names:
        return {}
    python = peers.make_environment(peers.default_folder())
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model"
    config = our_side.config
    weights.save(teams.load_model(config, config.model), folder)
    described = {"texts": our_side.texts, "prompts": our_side.prompts}
    described["vocabulary"] = our_side.policy_config.vocab_size
    device = "cuda" if jax.default_backend() == "gpu" else "cpu"
    started = {
        name: peer(name, python, peer_settings(name, config, folder, device, described)) for name in names
    }
    return {name: stack.enter_context(each) for name, each in started.items()}


def peer(name: str, python: pathlib.Path, settings: dict) -> peers.Peer:
    """A process of `torch_peer`; settings from `peer_settings`."""
    program = pathlib.Path(__file__).with_name("torch_peer.py")
    return peers.Peer([python, program, json.dumps(settings)], name)


def peer_settings(name: str, config, folder, device: str, described: dict) -> dict:
    """The settings with which `torch_peer` acts as a system: model folder, torch device, our settings.

    ``described``: texts and tokens of one problem's prompts by agent, and the size of the vocabulary.
    """
    system, full = SYSTEMS[name]
    return {
        "system": system,
        "mode": "full" if full else config.team.mode,
        "folder": str(folder),
        "dtype": config.policy.dtype,
        "device": device,
        "group": config.train.group,
        "advantages": ours.advantages(config.train.group),
        "lr": config.train.lr,
        "rank": config.team.rank,
        "alpha": config.team.alpha,
        "targets": list(config.team.targets),
        **described,
    }


def report(given: argparse.Namespace, measure: Measure) -> None:
    """Print the result of `run_contest`, and write it to --json if that is set."""
    result = run_contest(given, measure)
    print(result)
    if given.json:
        result.write(given.json)
