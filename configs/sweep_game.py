"""All trainers on `configs/game.py`, ten seeds each; MAGRPO is the baseline.

Command:   python -m experiments.sweep --config=configs/sweep_game.py --workdir=runs/game
Result:    docs/game.md; sweep.html, sweep.md and sweep.json in the workdir
Cost:      TODO

Each iteration of each member judges 96 joint answers, 16 to each of the six games: of two turns 8 in each, of
``cross`` the 4 x 4 combinations of 4 samples of each agent.
"""

from configs.game import get_config  # noqa: F401  what --config reads

SEEDS = range(10)
CENTRALISED = {
    "task.centralised": True,
    "team.agents": ("team",),
    "sampling.max_new_tokens": 5,  # a tag and a word for each role, and the end
}
# What a trainer changes of the config: a line each.
TRAINERS = {
    "MAGRPO": {},
    "MAREINFORCE": {"train.baseline": "none"},
    "MARLOO": {"train.baseline": "leave_one_out"},
    "MAReMax": {"train.baseline": "max"},
    "MAGRPO, divided by the deviation": {"train.normalise": True},
    "Dr. MAS": {"train.normalise": True, "train.normalise_by": "agent"},
    "MAGRPO, cross": {"train.joint_mode": "cross", "train.group": 4},
    "MAGRPO, two turns": {"train.turns": 2, "train.hand_on": "best", "train.group": 8},
    "centralised": CENTRALISED,
    "IAC": {"train.system": "iac"},
    "MAAC": {"train.system": "maac"},
}


def sweep(add):
    """A member per trainer and seed."""
    for fields in TRAINERS.values():
        for seed in SEEDS:
            add(fields | {"seed": seed})
