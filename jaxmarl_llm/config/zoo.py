"""The rows of the zoo: a system, its published results, our measurements, and the commands that run it.

The rows are in configs/zoo.py and the files that it names; `experiments.zoo` lists, checks and runs them.
"""

import dataclasses
import shlex

SMOL = "SmolLM2-135M-Instruct"  # the default model
STARTER = "starter, 112 problems"
GRADIENT = "policy gradient"
COMPARE = "python -m experiments.compare --task=coding --have=docs/comparison_runs.json --norun"
NOT_FOUND = "not found"  # a cell of `Published`: no source that was read has the value
# A result compared with the publication: the difference has the same sign, or the opposite one; our interval
# holds 0; or our difference has a sign, but no published number was found.
SAME, OPPOSITE, NOT_SHOWN, NOTHING_TO_COMPARE = "same", "opposite", "not shown", "no published number"
SIGNS = (SAME, OPPOSITE, NOT_SHOWN, NOTHING_TO_COMPARE)
LEVELS = ("none", "api", "text", "logit", "weight", "all")
NOT_MEASURED = "not measured"


@dataclasses.dataclass(frozen=True)
class Published:
    """Published results of a system; a cell is `NOT_FOUND` if no source that was read has it.

    Attributes:
      model, data, metric: what was measured.
      number: the system's result.
      baseline: the published baseline, with its number.
      known_from: the source: the paper's abstract, the authors' repository, or others (second-hand).
    """

    model: str = NOT_FOUND
    data: str = NOT_FOUND
    metric: str = NOT_FOUND
    number: str = NOT_FOUND
    baseline: str = NOT_FOUND
    known_from: str = NOT_FOUND


@dataclasses.dataclass(frozen=True)
class Result:
    """A number that we measured; a page reports it with the command that reproduces it.

    Attributes:
      model, data, metric: what was measured.
      before, after: the number untrained (or without the system), and with it.
      baseline: the baseline, with its number; at the same budget, or with what differs.
      interval: the 95 % interval of ``after``, or of its difference to the baseline, and what it is over.
      seeds: how many, or which.
      budget: what the system, and the baseline, spent.
      command: the shell command.
      page: the page of ``docs/`` that reports it; it contains every number of the cells above.
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
      title: its name.
      source: arXiv number, or another origin.
      trained: what learns.
      protocol: the order of answers, and what agents read.
      credit: the advantage of an answer, or other signal that it learns from.
      loss: what an update minimises.
      level: one of `LEVELS`: what the models give each other while they answer.
      differs: what differs from the publication, a sentence.
      run, smoke: commands in their order, made by `trained` and the functions after it: of the system, and of
        a form that takes seconds.
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
        """``measured``, `NOT_SHOWN` if no result has a sign, or `NOT_MEASURED`."""
        if not self.ours:
            return NOT_MEASURED
        return NOT_SHOWN if all(result.sign == NOT_SHOWN for result in self.ours) else "measured"


def _command(name: str, config: str, place: str, flags: tuple[str, ...]) -> str:
    start = [name, f"--config=configs/{config}"] if config else [name]
    return shlex.join([*start, *flags, place])


def trained(config: str, *flags: str, to: str = "run") -> str:
    """A training with a config file, such as ``systems.py:c3``, in the row's subfolder ``to``."""
    return _command("train", config, f"--workdir={{folder}}/{to}", flags)


def evaluated(config: str, *flags: str, to: str = "evaluation.json") -> str:
    """An evaluation, or a search, with a config file; '': with the config of the run that a flag names."""
    return _command("evaluate", config, f"--out={{folder}}/{to}", flags)


def made(name: str, *flags: str, config: str = "", to: str = "made") -> str:
    """A command that writes a folder ``--out``: merge, fuse or values."""
    return _command(name, config, f"--out={{folder}}/{to}", flags)


def together(*flags: str, of: str = "run") -> str:
    """A command in which members of the run in the folder ``of`` write one text together."""
    return _command("together", "", "--out={folder}/together.json", (f"--workdirs={{folder}}/{of}", *flags))
