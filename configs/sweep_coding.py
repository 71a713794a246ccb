"""Learning rates for `configs/coding.py`, three seeds each; the first, that of the default, is the baseline.

Command:   python -m experiments.sweep --config=configs/sweep_coding.py --workdir=runs/learning_rates
Result:    sweep.html, sweep.md and sweep.json in the workdir; the baseline is the default run; not completed
           again since the prompts were made equal
Cost:      nine runs of the default config; with :smoke nine of under a minute
The variants are those of configs/coding.py.
"""

from jaxmarl_llm.config.files import experiment

get_config = experiment("coding").get_config

RATES = (5e-4, 2.5e-4, 1e-3)
SEEDS = (0, 1, 2)


def sweep(add):
    """A member per learning rate and seed."""
    for lr in RATES:
        for seed in SEEDS:
            add({"train.lr": lr, "seed": seed})
