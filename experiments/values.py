"""Fit the values of a search over steps (Q*): draw answers to training problems, learn what lines led to.

    python -m experiments.values --config=configs/qstar.py --out=runs/values
    python -m experiments.ablate --config=configs/qstar.py:model=runs/values --workdir=runs/qstar

No agent learns. With --workdir a trained team gives the answers. If it is stopped, the same command continues
with the answers drawn so far. docs/qstar.md has the equations.
"""

import pathlib

from absl import flags

from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import qstar, validate
from jaxmarl_llm.config.general import refuse_seeds
from jaxmarl_llm.utils import console, files
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.saved_names import BEST, LATEST


def fit(config, out, workdir="", which=BEST) -> dict[str, float]:
    """Fit a config's values to answers to its training problems; see `analysis.search.fitting.fit`.

    Raises:
      ValueError: for a config without such a search.
    """
    if not qstar.of(config):
        raise UserError(
            f"train.protocol={config.train.protocol!r}: experiments.values fits the values of 'qstar'; take "
            "configs/qstar.py"
        )
    # Imported here, so that --help and flag errors do not wait for JAX.
    from jaxmarl_llm.analysis.search import fitting, search
    from jaxmarl_llm.factory import chat_options, tasks, teams

    config = chat_options.dated(config, workdir, out)
    pair = config.qstar.labels == "completions"
    agents = tuple(config.team.agents) if pair else qstar.writers(config)
    with search.open_searchers(config, workdir, which) as by:
        task = tasks.build_programs(config, by.executor, "train", agents)
        teams.check_prompts(config, by.team, task)
        return fitting.fit(config, out, by, task, tell=lambda line: print(line, flush=True))


def define_flags() -> None:
    """The command line."""
    entry.define_config()
    flags.DEFINE_string("workdir", "", "Run folder to take trained agents from; empty: the untrained team.")
    flags.DEFINE_enum("step", BEST, [BEST, LATEST], "Checkpoint of the run.")
    flags.DEFINE_string(
        "out", None, "Folder to write: the model, values.json, and the answers that it is fitted to."
    )
    flags.mark_flag_as_required("out")


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    validate(args.config)
    refuse_seeds(args.config, "fitting values")
    out = pathlib.Path(args.out)
    files.ensure_writable(out / "values.json", "give --out=<folder> where you may write")
    print(f"drawing answers in {out}; when it is stopped, the same command goes on", flush=True)
    metrics = fit(args.config, out, args.workdir, args["step"].value)
    console.table([(name, f"{value:.4g}") for name, value in metrics.items()], ("values", ""), "\nFitted")
    print(f"written: {out}")


if __name__ == "__main__":
    define_flags()
    entry.run(main)
