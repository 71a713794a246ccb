"""Train a team: rollout, credit, update, again. `python -m experiments.train --config=configs/coding.py`

If --workdir has a run, it is resumed, or shown if it is finished; a config that contradicts it is refused.
`--config.seeds=0,1,2` trains several seeds at the same time, in folders under --workdir.
Ctrl-C, SIGTERM or closing the terminal saves and stops within seconds; a second signal stops at once.
"""

import functools
import pathlib

from absl import flags

from jaxmarl_llm.cli import entry, process_flags
from jaxmarl_llm.config import validate
from jaxmarl_llm.config.programs import check_training
from jaxmarl_llm.runs import run_folder, summaries
from jaxmarl_llm.utils import device_memory, distributed


def train(config, workdir: str, accept_changes: bool = False, seat=None) -> dict:
    """Run or resume the training in ``workdir``; returns the summary written there, or the summaries by seed.

    ``accept_changes``: continue although problems, models or code changed since the run began. ``seat``: the
    run's place among others that are trained at the same time, see `jaxmarl_llm.runs.seat`.
    """
    validate(config)
    check_training(config)
    if config.seeds:
        return _train_seeds(config, workdir, accept_changes)
    if finished := summaries.finished(config, workdir):
        return finished
    if config.warm_up.steps and not _warmed_up(config, workdir, accept_changes, seat):
        return {}
    print(f"reading problems and models for {workdir}", flush=True)  # seconds, and minutes for large models
    from jaxmarl_llm.runs import training_loop  # imports JAX: the first line does not wait for it
    from jaxmarl_llm.runs.seat import ALONE

    return training_loop.run_to_end(config, workdir, accept_changes, _write_report, seat or ALONE)


def _train_seeds(config, workdir: str, accept_changes: bool) -> dict[int, dict]:
    """`train` of every seed, all at the same time; summaries by seed."""
    print(f"seeds {', '.join(map(str, config.seeds))} in folders under {workdir}", flush=True)
    from jaxmarl_llm.runs import seeds  # imports JAX

    summaries = seeds.train_all(config, workdir, functools.partial(train, accept_changes=accept_changes))
    seeds.show(summaries, workdir)
    if config.log.report and all(summaries.values()):
        from jaxmarl_llm.analysis.report import page

        folders = [seeds.folder_of(workdir, seed) for seed in summaries]
        print(f"a report: {page.write(folders, pathlib.Path(workdir) / 'report.html')[0]}", flush=True)
    return summaries


def _write_report(folder: pathlib.Path) -> None:
    from jaxmarl_llm.analysis.report import page
    from jaxmarl_llm.runs import final_table

    evaluations = [folder / final_table.FOLDER / f"{state}.json" for state in final_table.TITLES]
    written = page.write([folder], evaluations=[path for path in evaluations if path.is_file()])
    print(f"a report: {written[0]}", flush=True)


def _warmed_up(config, workdir: str, accept_changes: bool, seat) -> bool:
    """Train the warm-up that the run begins from if it is missing; False if that training was stopped."""
    print(f"a warm-up for {workdir}, unless it has one", flush=True)
    from jaxmarl_llm.runs import warm_up  # imports JAX

    return warm_up.made(config, workdir, functools.partial(train, accept_changes=accept_changes, seat=seat))


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    entry.define_config()
    flags.DEFINE_string("workdir", "", "Run folder; empty: a new folder under runs/.")
    flags.DEFINE_bool(
        "accept_changes", False, "Go on with other problems, models or code of yours than the run began with."
    )
    process_flags.define_flags()


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    if args.coordinator:  # several processes connect before the config is checked; this starts their devices
        device_memory.take(args.config.device.memory_fraction)
    with process_flags.joined():
        workdir = pathlib.Path(args.workdir or distributed.on_main(run_folder.new_workdir)())
        output = process_flags.redirected_output(distributed.own_folder(workdir))
        with process_flags.watched(workdir), output:
            train(args.config, workdir, args.accept_changes)


if __name__ == "__main__":
    define_flags()
    entry.run(main)
