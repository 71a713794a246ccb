"""Credit options side by side in a world: who closes the gap to what is best for all.

Command:   python -m experiments.sweep --config=configs/sweep_world.py --workdir=runs/philosophers
           python -m experiments.sweep --config=configs/sweep_world.py:kitchen --workdir=runs/kitchen
Result:    docs/worlds.md; sweep.html, sweep.md and sweep.json in the workdir
Cost:      docs/worlds.md: three to five minutes of one CPU core a member of 150 iterations, one after the other
Variants (after a colon): those of configs/world.py, such as philosophers,agents=3
"""

from jaxmarl_llm.config.files import experiment

get_config = experiment("world").get_config

SEEDS = range(3)
# What a variant is called and what it changes; the first one is the baseline of the tables.
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
    for seed in SEEDS:  # a seed of all variants first: a table of one seed is there early
        for name, fields in VARIANTS.items():
            add(fields | {"seed": seed}, name=name)
