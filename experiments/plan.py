"""Estimate memory, work and time of a config on hardware you may not have here, and whether it fits.

`python -m experiments.plan --config=configs/coding.py:he_1turn --topology=v5e:4x4` compiles the sampler and
the update ahead of time for that slice, or without --topology for the devices of this machine. Nothing is
run, and neither weights nor data are read. See docs/plan.md.
"""

from absl import flags

from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import validate
from jaxmarl_llm.config.programs import check_training
from jaxmarl_llm.utils.errors import UserError


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    entry.define_config()
    flags.DEFINE_string("topology", "", "TPU slice such as v5e:4x4; empty: the devices that are here.")
    flags.DEFINE_float("memory_gib", None, "Memory of a device; without it what is known of the device.")
    flags.DEFINE_integer(
        "tries", 12, "Most settings to compile in search of some that fit; 0: no search.", lower_bound=0
    )


def main(argv) -> int:
    """Print the plan; 0 if everything fits, 2 if not."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    config, memory = args.config, args.memory_gib
    if memory is not None and memory <= 0:  # the command line itself refuses nan and inf
        raise UserError(f"--memory_gib={memory}: allowed are numbers above 0")
    validate(config)
    check_training(config)
    print(f"compiling for {args.topology or 'the devices that are here'} ...", flush=True)
    from jaxmarl_llm.analysis.planning import printing  # imports JAX: --help does not wait for it

    return printing.print_plan(config, args.topology, memory, args.tries)


if __name__ == "__main__":
    define_flags()
    entry.run(main)
