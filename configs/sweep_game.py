"""All trainers on `configs/game.py`, ten seeds each; MAGRPO is the baseline.

Command:   python -m experiments.sweep --config=configs/sweep_game.py --workdir=runs/game
Result:    docs/game.md; sweep.html, sweep.md and sweep.json in the workdir
Cost:      an hour and a quarter on one CPU core, one member after the other

Each iteration of each member judges 96 joint answers, 16 to each of the six games: 8 in each turn if there
are two turns, and with ``cross`` the 4 x 4 combinations of 4 samples of each agent.
"""

from jaxmarl_llm.config.files import experiment

get_config = experiment("game").get_config

SEEDS = range(10)
PAIRS = {"preference.pairs": 8, "preference.batch": 48}  # all pairs of an iteration in one update
# Trainers by name, and the config fields that they change.
TRAINERS = {
    "MAGRPO": {"train.system": "magrpo"},
    "MAREINFORCE": {"train.system": "mareinforce"},
    "MARLOO": {"train.system": "marloo"},
    "MAReMax": {"train.system": "maremax"},
    "MAGRPO, normalised": {"train.system": "magrpo", "train.normalise": True},
    "Dr. MAS": {"train.system": "dr_mas"},
    "MAGRPO, cross": {"train.system": "magrpo", "train.joint_mode": "cross", "train.group": 4},
    "CCPO, another sample": {"train.system": "ccpo", "train.counterfactual": "sample", "train.group": 5},
    "C3": {"train.system": "c3", "train.protocol": "tree", "train.group": 4},
    "AT-GRPO, two turns": {
        "train.system": "at_grpo", "train.turns": 2, "train.hand_on": "best", "train.group": 8,
    },
    # A tag and a word for each role, and the end: five tokens.
    "centralised MAGRPO": {
        "train.system": "centralised", "task.centralised": True, "team.agents": ("team",),
        "sampling.max_new_tokens": 5,
    },
    "IAC": {"train.system": "iac"},
    "IAC, head on the agent's body": {"train.system": "iac", "critic.shared": True},
    "IAC, Q form": {"train.system": "iac", "critic.form": "q", "critic.lr": 1e-2},
    "MAAC": {"train.system": "maac"},
    "MAAC, Q form": {"train.system": "maac", "critic.form": "q", "critic.lr": 1e-2},
    "MADPO": {"train.system": "madpo", **PAIRS},
    "MADPOIter": {"train.system": "madpo_iter", "preference.replay": "current", **PAIRS},
    "DPO by agent": {"train.system": "dpo", **PAIRS},
    "MARLHF": {
        "train.system": "marlhf", "preference.model_lr": 3e-3, "preference.model_updates": 200, **PAIRS,
    },
    "MARLHFIter": {
        "train.system": "marlhf_iter", "preference.replay": "nearest", "preference.model_lr": 1e-2,
        "preference.model_updates": 16, **PAIRS,
    },
}  # fmt: skip


def sweep(add):
    """A member per trainer and seed."""
    for name, fields in TRAINERS.items():
        for seed in SEEDS:
            add(fields | {"seed": seed}, name=name)
