"""Four levels at which models can work together, on one setting: three adapters of one base, each trained on
right answers to a third of the kinds of questions.

Command:   python -m experiments.levels --workdir=runs/levels --seeds=0,1,2
           trains the three experts, puts them into one team, runs `LEVELS` below, prints a table by kind
Result:    docs/levels.md: one seed of words
Cost:      the table has the answers and tokens of each row; see docs/levels.md
One alone: python -m experiments.train --config=configs/levels.py:expert_0 --workdir=runs/expert_0
Variants (after a colon, comma-separated):
  expert_0       sums of one and of two digits (of words: one step)
  expert_1       products (of words: the larger of two numbers)
  expert_2       a + b - c (of words: two steps)
  team           all three experts answer at the same time, and the majority's answer counts
  cascade        one expert after the other, until one is confident of its answer
  router         one expert answers; a router chooses it and learns from what was right
  weight         one agent with the experts' merged weights, on all kinds (the default)
  api, text, logit  the config that rows of this level begin with: router, team, team
  words          sums in words instead of sums of numbers
  smoke          tiny random models, everything else real
"""

import dataclasses

from jaxmarl_llm.config import UserError, parse_arg, presets
from jaxmarl_llm.config.files import experiment

reasoning = experiment("reasoning")

EXPERTS = ("expert_0", "expert_1", "expert_2")
# For each source, the grades that each expert learns; together they are all kinds.
KINDS = {"sums": ((1, 3), (2,), (4,)), "words": ((1,), (2,), (3,))}
TEAMS = ("team", "cascade", "router")
OF_LEVELS = {"api": "router", "text": "team", "logit": "team"}  # other names of variants
SHARED = ("words", "smoke")  # variants that can be joined with each of the others


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table: a command, and its further flags.

    Attributes:
      command: ``merge`` the experts' weights; ``evaluate`` them as a team; ``together``: one text by all of
        them; ``train`` what chooses among them; or ``fuse``: they teach one student.
      variant: of this file, the config of the command; '': the team's.
      flags: further flags.
    """

    command: str
    variant: str
    flags: tuple[str, ...] = ()


def _evaluated(protocol: str, total: str, *fields: str) -> Row:
    settings = (f"train.protocol={protocol}", f"task.total={total}", *fields)
    return Row("evaluate", "team", tuple(f"--config.{setting}" for setting in settings))


def _together(mode: str, *flags: str) -> Row:
    return Row("together", "team", (f"--together={mode}", "--noalone", *flags))


def _fused(weight: str) -> Row:
    return Row("fuse", "", ("--texts=reference", "--held_out=reference", "--steps=60", weight))


def _merged(method: str, *flags: str) -> Row:
    return Row("merge", "weight", (f"--method={method}", *flags))


# Rows by level. The first merge also evaluates the base and the experts.
LEVELS = {
    "api": {
        "cascade": Row("evaluate", "cascade"),
        # The first expert names who answers, and does not answer itself.
        "router_in_words": Row(
            "evaluate", "cascade", ("--config.router.kind=prompt", "--config.router.agent=expert_0")
        ),
        "router": Row("train", "router"),
    },
    "text": {
        "vote": Row("evaluate", "team"),
        "discussion": _evaluated("discussion", "vote"),
        # Each revises its own answer once after reading the others'; the majority of the last answers counts.
        "debate": _evaluated(
            "simultaneous", "vote", "train.turns=2", "train.later_samples=1", "task.feedback=heard"
        ),
        "review": _evaluated("review", "last"),
        "leader": _evaluated("leader", "last"),
    },
    "logit": {
        **{name: _together(name) for name in ("mean_logits", "mean_probabilities", "switch")},
        # The third expert, whose kind is the hardest, minus the two others.
        "contrast": _together("contrast", "--weights=-0.25,-0.25,1.5"),
        # On the same texts, right answers of all kinds, with and without teachers.
        "fusion": _fused("--weight=0.1"),
        "texts_alone": _fused("--weight=0"),
    },
    "weight": {
        "mean": _merged("mean"),
        "soup": _merged("soup"),
        "arithmetic": _merged("arithmetic"),
        "ties": _merged("ties", "--scales=0.6,0.8,1.0,1.4,1.8"),
        "dare": _merged("dare"),
        "search": _merged("search", "--trials=20"),
        "extrapolate": _merged("extrapolate"),
    },
}


def get_config(arg=None):
    """One agent with the experts' merged weights, or one of the variants named in the module's docstring."""
    options = parse_arg(arg, **dict.fromkeys((*EXPERTS, *TEAMS, *OF_LEVELS, "weight", *SHARED), False))
    chosen = [name for name in options if options[name] and name not in SHARED]
    if len(chosen) > 1:
        raise UserError(f"config options {chosen[0]} and {chosen[1]} exclude each other")
    variant = OF_LEVELS.get(chosen[0], chosen[0]) if chosen else "weight"
    config = reasoning.get_config("solo,words" if options.words else "solo")
    config.task.total, config.eval.vote, config.warm_up.steps = "mean", "", 0
    config.team.agents = ("solver",)
    if variant in TEAMS:
        config.team.agents, config.task.total, config.train.protocol = EXPERTS, "vote", "simultaneous"
    if variant in ("cascade", "router"):
        routed(config, variant)
    if variant in EXPERTS:
        expert(config, EXPERTS.index(variant))
    if options.smoke:
        presets.smoke(config)
        config.policy.remat = "none"
        # Questions of all grades: a slice such as [:4] would have only the first.
        config.task.eval_source, config.task.test_source = (f"{config.task.source}[::8]",) * 2
        config.eval.every, config.eval.problems = 0, 4
    return config


def expert(config, number):
    """One agent that imitates right answers of its own kinds."""
    config.team.agents = (EXPERTS[number],)
    config.task.grades = KINDS[config.task.source][number]
    config.train.system, config.sft.source, config.sft.batch = "sft", "reference", 16
    config.train.steps = 60
    config.eval.every, config.eval.before = 0, False


def routed(config, variant):
    """One expert answers at a time; in training only the router learns."""
    config.train.system, config.train.protocol, config.train.joint_mode = "der", "routed", "aligned"
    config.task.total = "mean"
    if variant == "cascade":
        config.router.kind, config.train.turns = "cascade", len(EXPERTS)
        return
    config.train.turns, config.train.lr = 1, 0.0
    config.train.group, config.train.steps = 4, 100
    config.train.prompts = config.train.prompts_per_microbatch = 12
    config.eval.every, config.eval.before = 0, False
