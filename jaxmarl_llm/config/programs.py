"""Tasks in which every agent writes a whole program: timing, lessons (LessonL, arXiv 2505.23946), searches."""

import math

from jaxmarl_llm.config import agent_settings, experience, qstar, remote, systems
from jaxmarl_llm.config.fields import Read, choice, number, value, wrong_encoder
from jaxmarl_llm.config.options import ConfigDict, field
from jaxmarl_llm.utils.errors import UserError

KINDS = ("optimisation", "generation")
# Tasks in which every agent is judged by itself: programs, and words that may open a lock.
JUDGED_ALONE = (*KINDS, "lock")
# Protocols of such tasks: rounds in which every agent writes a program.
METHODS = ("lessonl", "repeated", "reflexion", "mapcoder", "mixture", qstar.NAME, experience.NAME)
# Fields that rounds of programs allow one value of: (value, why).
NEEDED = {
    "train.joint_mode": ("aligned", "a round is a joint answer of all agents"),
    "train.hand_on": ("all", "chains of rounds do not branch"),
    "train.later_samples": (0, "a round has a program of each agent"),
    "train.counterfactual": ("", "every program is judged by itself already"),
    "train.stop_above": (0.0, "search.stop_when_solved is its like"),
    "train.turn_weights": ((), "programs and lessons are turns of their own"),
    "train.turn_loss": ("return", "programs and lessons are turns of their own"),
    "task.centralised": (False, "every agent writes a program of its own"),
    "task.reward": ("", "programs are judged by time or by tests"),
}
# The credit of train.system=lessonl is its own: there each field of ``train`` must have its default.
DECIDED = ("discount", "backup", "reduce", "local_weight")


def writers(config: ConfigDict) -> tuple[str, ...]:
    """The agents whose programs, or answers, are judged."""
    return tuple(config.team.agents)[1:] if experience.of(config) else qstar.writers(config)


def searches(config) -> bool:
    """Whether `experiments.evaluate` searches for programs or answers, instead of sampling one per agent."""
    methods = qstar.OF_QUESTIONS if config.task.kind == "reasoning" else METHODS
    return config.task.kind in (*KINDS, "reasoning") and config.train.protocol in methods


_TIMED = Read(
    lambda c: c.task.kind == "optimisation" and not c.task.reward,
    "only task.kind='optimisation' times programs, and no task.reward does",
)
_LESSONS = Read(lambda c: c.train.protocol == "lessonl", "only train.protocol='lessonl' has lessons")
_SEARCH = Read(
    searches,
    "only rounds of programs (task.kind='optimisation' and 'generation') are searches, and of task.kind='reasoning' "
    "train.protocol='qstar' and 'repeated'",
)
FIELDS = (
    # For task.kind=optimisation: a program and the given one are timed in pairs, see docs/executor.md.
    number("timing.min_pairs", 7, "Pairs of calls at least, odd; 7 is the smallest number with a 95 % "
           "interval.",
           low=7, high=999, read=_TIMED),
    number("timing.max_pairs", 21, "Pairs of calls at most, odd.", low=7, high=999, read=_TIMED),
    number("timing.width", 0.1, "No more pairs follow once the width of the interval is at most this share "
           "of the median.",
           low=1e-6, read=_TIMED),
    number("timing.cap", 10.0, "Greatest speed-up that counts.", low=1.001, read=_TIMED),
    number("timing.seconds", 20.0, "CPU seconds of a measurement after which no more pairs are begun.",
           low=0.001, read=_TIMED),
    number("timing.min_seconds", 0.01, "CPU seconds that a given program must take; otherwise the problem "
           "is refused.",
           low=1e-6, read=_TIMED),
    value("timing.remember", True,
          "Reuse an earlier measurement of an equal program; final measurements reuse only other final "
          "ones.",
          _TIMED),
    # For train.protocol=lessonl: a problem has train.group chains of train.turns rounds.
    number("lessons.shown", 4, "k: lessons in a prompt, at most.", low=1, read=_LESSONS),
    choice("lessons.select", "full", "Lessons that a prompt shows.",
           {"full": "half by benefit, half by relevance", "speed_only": "", "relevance_only": "", "random": "",
            "none": "", "dealt": "in training: the chains of a problem see different lessons, all equally "
            "often"},
           read=_LESSONS),
    number("lessons.control", 0,
           "With select=dealt: chains of a problem that see no lesson; with bank=run not in the first "
           "round, in which all chains see the same.", low=0, read=_LESSONS),
    choice("lessons.factor", "released", "What changes the factor of a lesson.",
           {"released": "the last round that showed it", "cumulative": "all rounds that showed it",
            "off": "nothing"}, read=_LESSONS),
    number("lessons.step", 0.1, "A vote multiplies the factor by 1 + step or 1 - step.", low=0, high=0.999,
           read=_LESSONS),
    number("lessons.gate", 1.1,
           "Smallest product of speed-up and factor with which a lesson is shown for its benefit; 0: no "
           "limit. Only for speed-ups, not for numbers of tests.", low=0, read=_LESSONS),
    value("lessons.encoder", "policy",
          "Encoder of lessons and sources, for relevance: policy (mean of the first model's last hidden states), "
          "ngrams (needs no model), or the dotted name of a function, texts -> vectors.", _LESSONS),
    choice("lessons.bank", "problem", "How long lessons are kept.",
           {"problem": "for one problem", "run": "lessons of earlier problems are kept"},
           read=_LESSONS),
    number("lessons.keep", 200, "With bank=run: lessons that are kept at most; the newest stay.",
           low=1, read=_LESSONS),
    # Of experiments.evaluate and experiments.ablate with these tasks.
    number("search.problems", 8, "Problems searched at the same time; a stopped run loses at most one "
           "round of them.", low=1,
           read=_SEARCH),
    value("search.stop_when_solved", False, "No more rounds for a problem once all its tests pass.",
          Read(lambda c: searches(c) and c.task.kind == "generation",
               "only rounds of task.kind='generation' know when a problem is solved")),
    number("search.plans", 2, "mapcoder: plans; the train.turns programs are divided equally among them.",
           low=1,
           read=Read(lambda c: c.train.protocol == "mapcoder", "only train.protocol='mapcoder' has plans")),
    value("search.by_budget", False,
          "Also measure again every program that was the best one, or answer that won the vote, at some "
          "time of the search. The tables of what is solved within a number of programs, tokens and "
          "expansions need it.", _SEARCH),
    value("search.prices", (),
          "Prices for the ledger, one row for every model of the team, named as in team.models: (name, "
          "price of a million prompt tokens, of a million completion tokens), such as (('expert:gpt-4o', "
          "2.5, 10.0),).", _SEARCH),
)  # fmt: skip


def check_training(config, name: str = "the config") -> None:
    """ValueError, with ``name`` for the config, for settings that only a search allows."""
    if config.team.mode == "frozen":
        raise UserError(
            f"{name} cannot be trained: team.mode='frozen': no agent learns; allowed are adapters and full"
        )
    agent_settings.check_training(config, name)
    if qstar.of(config) or config.task.kind == "reasoning" and searches(config):
        raise UserError(
            f"{name} cannot be trained: train.protocol={config.train.protocol!r}: a search, whose values "
            "experiments.values fits; experiments.evaluate and experiments.ablate search"
        )
    if config.task.tests == "generated":
        raise UserError(
            f"{name} cannot be trained: task.tests='generated': agents write tests in a search "
            "(experiments.evaluate, experiments.ablate); training allows 'given'"
        )


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that the task, protocol or system does not allow."""
    c, rounds = config.train, config.train.protocol in METHODS
    programs = config.task.kind in JUDGED_ALONE
    bad = _timing(config.timing) + _prices(config) + wrong_encoder(config, "lessons.encoder")
    if config.task.kind == "lock" and c.protocol not in ("simultaneous", "repeated", "lessonl"):
        bad.append(
            f"train.protocol={c.protocol!r}: task.kind='lock' allows simultaneous, repeated or lessonl"
        )
    elif rounds != programs and (rounds or c.protocol != "simultaneous") and not searches(config):
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
    return bad + (_rounds(config, base) if rounds and (programs or searches(config)) else [])


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


def _rounds(config: ConfigDict, base: ConfigDict) -> list[str]:
    """Fields that have no meaning for rounds of programs."""
    c, own, bad = config.train, config.lessons, []
    for path, (wanted, why) in NEEDED.items():
        given = field(config, path)
        if (tuple(given) if isinstance(wanted, tuple) else given) != wanted:
            bad.append(f"{path}={given!r}: train.protocol={c.protocol!r} needs {wanted!r}: {why}")
    if c.protocol == "lessonl":
        bad += systems.decided(config, DECIDED, base)
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
            for name, default in base.lessons.items()
            if own[name] != default
        ]
    if c.protocol == "mapcoder" and c.turns % config.search.plans:
        bad.append(f"search.plans={config.search.plans}: must divide the train.turns={c.turns} programs")
    return bad
