"""What a row of the zoo is: a system, what was published of it, what was measured here, and the commands that run it.

The rows are in configs/zoo.py and the files that it names; `experiments.zoo` lists, checks and runs them.
"""

import dataclasses
import shlex

SMOL = "SmolLM2-135M-Instruct"  # the default model
STARTER = "starter, 112 problems"
GRADIENT = "policy gradient"
COMPARE = "python -m experiments.compare --task=coding --have=docs/comparison_runs.json --norun"
NOT_FOUND = "not found"  # of a cell of `Published`: no source that was read has it
# Of what a result shows beside what was published: the difference has the same sign, the other one; the interval
# of ours holds 0; or ours has a sign, and no published number was found to compare it with.
SAME, OPPOSITE, NOT_SHOWN, NOTHING_TO_COMPARE = "same", "opposite", "not shown", "no published number"
SIGNS = (SAME, OPPOSITE, NOT_SHOWN, NOTHING_TO_COMPARE)
LEVELS = ("none", "api", "text", "logit", "weight", "all")
NOT_MEASURED = "not measured"


@dataclasses.dataclass(frozen=True)
class Published:
    """What was published of a system; each cell `NOT_FOUND` where no source that was read has it.

    Attributes:
      model, data, metric: what was measured.
      number: the system's.
      baseline: what it is compared with there, with its number.
      known_from: who says so: the paper's abstract, the authors' repository, or others (second-hand).
    """

    model: str = NOT_FOUND
    data: str = NOT_FOUND
    metric: str = NOT_FOUND
    number: str = NOT_FOUND
    baseline: str = NOT_FOUND
    known_from: str = NOT_FOUND


@dataclasses.dataclass(frozen=True)
class Result:
    """A number of ours, which a page reports with the command that makes it.

    Attributes:
      model, data, metric: what was measured.
      before, after: the number untrained (or without the system), and with it.
      baseline: what it is compared with, with its number; at the same budget, or what differs.
      interval: the 95 % interval of ``after``, or of its difference to the baseline, and of what it is taken over.
      seeds: how many, or which.
      budget: what the system, and the baseline, spent.
      command: as a shell has it.
      page: the page of ``docs/`` that reports it; every number of the cells before stands there.
      sign: one of `SIGNS`.
    """

    model: str
    data: str
    metric: str
    before: str
    after: str
    baseline: str
    interval: str
    seeds: str
    budget: str
    command: str
    page: str
    sign: str


@dataclasses.dataclass(frozen=True)
class Row:
    """A system.

    Attributes:
      title: what it is called.
      source: arXiv number, or where it comes from.
      trained: what learns.
      protocol: who answers when, and reads what.
      credit: what an answer learns from.
      loss: what an update descends.
      level: one of `LEVELS`: what the models give each other while they answer.
      differs: what differs from the publication, a sentence.
      run, smoke: commands in their order, as `trained` and its kin below make them, of the system and of its form
        that takes seconds.
      page: of ``docs/``, with a heading after ``#``.
      test: a file of ``tests/``.
      covers: choices of this project that are this system, such as ``train.system=c3``.
      published, ours: numbers.
    """

    title: str
    source: str
    trained: str
    protocol: str
    credit: str
    loss: str
    level: str
    differs: str
    run: tuple[str, ...]
    smoke: tuple[str, ...]
    page: str
    test: str
    covers: tuple[str, ...] = ()
    published: Published = Published()
    ours: tuple[Result, ...] = ()

    @property
    def state(self) -> str:
        """``measured``, `NOT_SHOWN` where no result has a sign, or `NOT_MEASURED`."""
        if not self.ours:
            return NOT_MEASURED
        return NOT_SHOWN if all(result.sign == NOT_SHOWN for result in self.ours) else "measured"


def _command(name: str, config: str, place: str, flags: tuple[str, ...]) -> str:
    start = [name, f"--config=configs/{config}"] if config else [name]
    return shlex.join([*start, *flags, place])


def trained(config: str, *flags: str, to: str = "run") -> str:
    """A training with a config file, such as ``systems.py:c3``, in the folder ``to`` of the row's."""
    return _command("train", config, f"--workdir={{folder}}/{to}", flags)


def evaluated(config: str, *flags: str, to: str = "evaluation.json") -> str:
    """An evaluation, or a search, with a config file; '': with that of a run which a flag names."""
    return _command("evaluate", config, f"--out={{folder}}/{to}", flags)


def made(name: str, *flags: str, config: str = "", to: str = "made") -> str:
    """A command that writes a folder ``--out``: merge, fuse, values."""
    return _command(name, config, f"--out={{folder}}/{to}", flags)


def together(*flags: str, of: str = "run") -> str:
    """Members of the run in the folder ``of`` that write one text."""
    return _command("together", "", "--out={folder}/together.json", (f"--workdirs={{folder}}/{of}", *flags))
