"""Who does which step: all credit options side by side on the convention task, with the controls.

Command:   python -m experiments.sweep --config=configs/sweep_convention.py --workdir=runs/convention
           python -m experiments.conventions --workdir=runs/convention
Result:    docs/convention.md says what is measured and how
Cost:      eleven variants, three seeds: 33 runs, of which 30 share three warm-ups
The baseline of the tables is the control: more demonstrations in place of rewards.
"""

from jaxmarl_llm.config.files import experiment

convention = experiment("convention")
get_config = convention.get_config

SEEDS = range(3)
FIRST = ("control_sft", "fixed_convention")  # two in parallel do not wait for each other's warm-up


def sweep(add):
    """A member per variant of configs/convention.py and seed."""
    for seed in SEEDS:  # one seed of all variants first, to have its table early
        for name in [*FIRST, *(name for name in convention.VARIANTS if name not in FIRST)]:
            add(convention.VARIANTS[name] | {"seed": seed}, name=name.replace("_", " "))
