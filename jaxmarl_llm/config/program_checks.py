"""What may stand in a config about programs: tasks, protocols and systems that belong together."""

import math

from jaxmarl_llm.config import agent_settings, credit_checks, remote
from jaxmarl_llm.config.common import ConfigDict, base_config, field
from jaxmarl_llm.config.programs import JUDGED_ALONE, KINDS, METHODS

CHOICES = {
    "task.tests": ("given", "generated"),
    "lessons.select": ("full", "speed_only", "relevance_only", "random", "none", "dealt"),
    "lessons.factor": ("released", "cumulative", "off"),
    "lessons.bank": ("problem", "run"),
}
ENCODERS = ("policy", "ngrams")
RANGES = {
    "timing.min_pairs": (7, 999),
    "timing.max_pairs": (7, 999),
    "timing.width": (1e-6, None),
    "timing.cap": (1.001, None),
    "timing.seconds": (0.001, None),
    "timing.min_seconds": (1e-6, None),
    "lessons.shown": (1, None),
    "lessons.control": (0, None),
    "lessons.step": (0, 0.999),
    "lessons.gate": (0, None),
    "lessons.keep": (1, None),
    "search.problems": (1, None),
    "search.plans": (1, None),
}
# What rounds of programs leave no choice about.
NEEDED = {
    "train.joint_mode": ("aligned", "a round is a joint answer of all agents"),
    "train.hand_on": ("all", "chains of rounds do not branch"),
    "train.counterfactual": ("", "every program is judged by itself already"),
    "train.stop_above": (0.0, "search.stop_when_solved is its like"),
    "train.turn_weights": ((), "programs and lessons are turns of their own"),
    "train.turn_loss": ("return", "programs and lessons are turns of their own"),
    "task.centralised": (False, "every agent writes a program of its own"),
    "task.reward": ("", "programs are judged by time or by tests"),
}
# The credit of train.system=lessonl is its own: there the field must be as it is by default.
DECIDED = ("discount", "backup", "reduce", "local_weight")


def searches(config) -> bool:
    """Whether `experiments.evaluate` searches for programs, instead of taking one answer of each agent."""
    return config.task.kind in KINDS and config.train.protocol in METHODS


def check_training(config, name: str = "the config") -> None:
    """ValueError, which calls the config ``name``, for what a search can do and a training cannot."""
    if config.team.mode == "frozen":
        raise ValueError(
            f"{name} cannot be trained: team.mode='frozen': no agent learns; allowed are adapters and full"
        )
    agent_settings.check_training(config, name)
    if config.task.tests == "generated":
        raise ValueError(
            f"{name} cannot be trained: task.tests='generated': agents write tests in a search "
            "(experiments.evaluate, experiments.ablate); training allows 'given'"
        )


def problems(config: ConfigDict) -> list[str]:
    """One sentence per field that the task, protocol or system does not allow."""
    c, rounds = config.train, config.train.protocol in METHODS
    programs = config.task.kind in JUDGED_ALONE
    bad = _timing(config.timing) + _prices(config)
    encoder = config.lessons.encoder
    if encoder not in ENCODERS and not credit_checks.is_dotted(encoder):
        allowed = f"{', '.join(ENCODERS)}, or the dotted name of a function"
        bad.append(f"lessons.encoder={encoder!r}: allowed are {allowed}")
    if config.task.kind == "lock" and c.protocol not in ("simultaneous", "repeated", "lessonl"):
        bad.append(
            f"train.protocol={c.protocol!r}: task.kind='lock' allows simultaneous, repeated or lessonl"
        )
    elif rounds != programs and (rounds or c.protocol != "simultaneous"):
        allowed = "simultaneous or rounds of programs" if programs else "all but those"
        bad.append(
            f"train.protocol={c.protocol!r}: task.kind={config.task.kind!r} allows {allowed} "
            f"({', '.join(METHODS)})"
        )
    if config.task.tests == "generated" and not (rounds and config.task.kind == "generation"):
        bad.append(
            "task.tests='generated': needs task.kind='generation' and rounds of programs, they are "
            f"{config.task.kind!r} and {c.protocol!r}"
        )
    if "lessonl" in (c.system, c.protocol) and c.system != c.protocol:
        bad.append(f"train.system={c.system!r}: goes with the same train.protocol, it is {c.protocol!r}")
    return bad + (_rounds(config) if rounds and programs else [])


def _timing(t: ConfigDict) -> list[str]:
    bad = [f"timing.{name}={t[name]}: must be odd" for name in ("min_pairs", "max_pairs") if not t[name] % 2]
    if t.max_pairs < t.min_pairs:
        bad.append(f"timing.max_pairs={t.max_pairs}: must be at least timing.min_pairs={t.min_pairs}")
    return bad


def _prices(config: ConfigDict) -> list[str]:
    prices, form = config.search.prices, "(model, price of a million prompt tokens, of completion tokens)"
    for row in prices:
        numbers = row[1:] if isinstance(row, (tuple, list)) and len(row) == 3 else ()
        if not numbers or not all(type(n) in (int, float) and 0 <= n < math.inf for n in numbers):
            return [f"search.prices: {row!r} is not allowed, only {form}"]
    known = [row[0] for row in prices]
    without = [name for name in dict.fromkeys(remote.names(config)) if prices and name not in known]
    return [f"search.prices: there is none for {name!r}; give {form} of all models" for name in without]


def _rounds(config: ConfigDict) -> list[str]:
    """Fields that have no meaning for rounds of programs."""
    c, own, bad = config.train, config.lessons, []
    for path, (wanted, why) in NEEDED.items():
        given = field(config, path)
        if (tuple(given) if isinstance(wanted, tuple) else given) != wanted:
            bad.append(f"{path}={given!r}: train.protocol={c.protocol!r} needs {wanted!r}: {why}")
    if c.protocol == "lessonl":
        bad += credit_checks.decided(config, DECIDED)
        if own.control and own.select != "dealt":
            bad.append(f"lessons.control={own.control}: needs lessons.select='dealt', it is {own.select!r}")
        if own.control >= c.group:
            bad.append(f"lessons.control={own.control}: must leave some of the train.group={c.group} chains")
        if own.bank == "run" and c.overlap:
            bad.append(
                "train.overlap=True: lessons.bank='run' shows what came of an iteration in the next one"
            )
    else:
        bad += [
            f"lessons.{name}={own[name]!r}: train.protocol={c.protocol!r} has no lessons, leave it at "
            f"{default!r}"
            for name, default in base_config().lessons.items()
            if own[name] != default
        ]
    if c.protocol == "mapcoder" and c.turns % config.search.plans:
        bad.append(f"search.plans={config.search.plans}: must divide the train.turns={c.turns} programs")
    return bad
