"""Methods side by side at an equal budget, on the default model and two CPU cores.

Command:   python -m experiments.compare --task=coding --workdir=runs/compare
           runs every member below that has not been run, three seeds of the trained ones, and prints a table
Result:    docs/comparison.md
Cost:      on two cores 90 minutes for writing, 3.5 hours for coding
One alone: python -m experiments.train --config=configs/compare.py:task=coding,member=magrpo_1turn

The budget is what may be drawn in training, and a member's number of iterations follows from it: with
unit=tokens completion tokens, per iteration at most completions times the longest length; with unit=samples
completions. With unit=minutes every member trains that long, whatever it gets done, at a constant rate.
"""

import dataclasses

from configs import arithmetic, coding, common, writing

SEEDS = (0, 1, 2)
BUDGET = {
    "coding": {"tokens": 45_000, "samples": 1_100, "minutes": 10},
    "writing": {"tokens": 30_000, "samples": 400, "minutes": 10},
}
COST = {"tokens": arithmetic.tokens, "samples": arithmetic.completions}  # of an iteration
UNITS = (*COST, "minutes")


@dataclasses.dataclass(frozen=True)
class Member:
    """A method: the fields that differ from its task's default config, and whether it is trained."""

    fields: dict
    trained: bool = False


SOLO_CODE = {"team.agents": ("main",), "sampling.max_new_tokens": 80}
SOLO_TEXT = {"team.agents": ("writer",), "sampling.max_new_tokens": 144}
ALIGNED = {"train.joint_mode": "aligned"}
TURNS = {**ALIGNED, "train.turns": 2, "train.group": 4}

MEMBERS = {
    "coding": {
        "single": Member({**SOLO_CODE, **ALIGNED}),
        "concat": Member({}),
        "pipeline": Member({**ALIGNED, "train.protocol": "pipeline"}),
        "discussion": Member({**ALIGNED, "train.protocol": "discussion"}),
        "centralised": Member({**SOLO_CODE, **ALIGNED, "team.agents": ("team",), "task.centralised": True}),
        "two_turns": Member(TURNS),
        "grpo": Member({**SOLO_CODE, **ALIGNED}, trained=True),
        "magrpo_1turn": Member({}, trained=True),
        "magrpo_2turn": Member(TURNS, trained=True),
    },
    "writing": {
        "single": Member({**SOLO_TEXT, **ALIGNED}),
        "concat": Member({}),
        "pipeline": Member({**ALIGNED, "train.protocol": "pipeline"}),
        "discussion": Member({**ALIGNED, "train.protocol": "discussion"}),
        "grpo": Member({**SOLO_TEXT, **ALIGNED}, trained=True),
        "magrpo": Member({}, trained=True),
    },
}


def get_config(arg=None):
    """The training config of one member."""
    options = common.parse_arg(arg, task="coding", member="", unit="tokens")
    if options.task not in MEMBERS:
        raise ValueError(f"config option task={options.task!r}: known are {', '.join(MEMBERS)}")
    members = MEMBERS[options.task]
    if options.member not in members:
        raise ValueError(f"config option member={options.member!r}: known are {', '.join(members)}")
    if options.unit not in UNITS:
        raise ValueError(f"config option unit={options.unit!r}: known are {', '.join(UNITS)}")
    config = {"coding": coding, "writing": writing}[options.task].get_config()
    config.update_from_flattened_dict(members[options.member].fields)
    budget = BUDGET[options.task][options.unit]
    if options.unit == "minutes":
        config.train.max_minutes, config.train.decay, config.train.steps = float(budget), "constant", 10_000
    else:
        config.train.steps = max(1, budget // COST[options.unit](config))
    config.train.grade_every = min(config.train.grade_every, config.train.steps // 2)
    config.eval.every = 0
    config.eval.before = False
    return config
