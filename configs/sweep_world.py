"""Compare credit options in a world: which ones close the gap to the best joint behaviour.

Command:   python -m experiments.sweep --config=configs/sweep_world.py --workdir=runs/philosophers
           python -m experiments.sweep --config=configs/sweep_world.py:kitchen --workdir=runs/kitchen
Result:    docs/worlds.md; sweep.html, sweep.md and sweep.json in the workdir
Cost:      docs/worlds.md: three to five minutes of one CPU core per member of 150 iterations, one by one
Variants (after a colon): those of configs/world.py, such as philosophers,agents=3
"""

from jaxmarl_llm.config.files import experiment

get_config = experiment("world").get_config

SEEDS = range(3)
# Variants by name, and the fields that they change; the first one is the baseline of the tables.
VARIANTS = {
    "actions in the same turn": {"train.group_by": "turn"},
    "actions in the same state": {},
    "same state, normalised": {"train.normalise": True},
    "CCPO, waiting in its place": {"train.system": "ccpo", "train.counterfactual": "nothing"},
    "each reads those before it": {"train.protocol": "pipeline"},
    "IAC": {"train.system": "iac", "train.group_by": "turn"},
    "MAAC": {"train.system": "maac", "train.group_by": "turn"},
}


def sweep(add):
    """A member per variant and seed."""
    for seed in SEEDS:  # one seed of all variants first, to have its table early
        for name, fields in VARIANTS.items():
            add(fields | {"seed": seed}, name=name)
