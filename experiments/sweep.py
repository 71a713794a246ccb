"""Train several runs that differ in some fields, and show their results in one table and on one page.

Command: python -m experiments.sweep --config=configs/sweep_coding.py --workdir=runs/learning_rates

The config file defines `sweep(add)`, see jaxmarl_llm/config/sweeps.py. Every member is a training run in its
own folder under --workdir and its own process. If the sweep stops, the same command continues: finished
members are kept, others resume, failed ones are tried again. You may add members to a sweep; a sweep that
removes or changes a member that was run is refused. At the end, or at once with --table_only, the
results are printed and written: sweep.md, sweep.json and, with the learning curves, sweep.html. The exit code
is 0 if all members are finished.

Members run one after the other; --parallel=2 runs two at a time, --devices=0,1 one on each of two GPUs.
"""

import functools
import pathlib
import sys
from collections.abc import Mapping, Sequence

from absl import flags

from jaxmarl_llm import resume_checks
from jaxmarl_llm.analysis.report import sweep_results
from jaxmarl_llm.analysis.report.sweep_results import MemberResult
from jaxmarl_llm.cli import entry, launch
from jaxmarl_llm.cli.launch import FAILED, FINISHED, Job, Outcome
from jaxmarl_llm.config import saved as saved_config
from jaxmarl_llm.config import sweeps
from jaxmarl_llm.config.sweeps import SweepRun
from jaxmarl_llm.runs import summaries
from jaxmarl_llm.utils import console, files, formats
from jaxmarl_llm.utils.errors import UserError


def contradiction(member: SweepRun, folder: pathlib.Path) -> str:
    """How the run in the folder contradicts the member's config; empty if it does not."""
    try:
        if saved := saved_config.in_folder(folder):
            resume_checks.check_same_run(saved, member.config.to_dict())
    except ValueError as error:
        return str(error)
    return ""


def finished(member: SweepRun, folder: pathlib.Path) -> bool:
    """Whether the member's run exists and is finished."""
    return summaries.complete(member.config, summaries.whole_summary(folder))


def check_workdir(workdir: pathlib.Path, members: Sequence[SweepRun]) -> None:
    """ValueError if a folder has runs of another sweep: runs of no member, or with another config.

    What members begin from, such as a warm-up that they share, may be there too.
    """
    known = {workdir / member.folder for member in members}
    strange = sorted(path.parent for path in workdir.glob("*/*/config.json") if path.parent not in known)
    if strange:
        from jaxmarl_llm.runs import begin  # imports JAX, which is slow and not always needed

        sources = [begin.source(member.config, workdir / member.folder) for member in members]
        begun_from = {source.resolve() for source in sources if source}
        strange = [folder for folder in strange if folder.resolve() not in begun_from]
    if strange:
        raise UserError(
            f"{', '.join(map(str, strange))}: no member of this sweep, which may gain members but not lose them; take "
            "another --workdir, or move what is there away"
        )
    changed = {member.name: contradiction(member, workdir / member.folder) for member in members}
    if any(changed.values()):
        changes = "; ".join(f"{name}: {text}" for name, text in changed.items() if text)
        raise UserError(f"{changes}. Take another --workdir, or move these runs away")


def unfinished(workdir: pathlib.Path, members: Sequence[SweepRun]) -> list[SweepRun]:
    """The members that are not finished."""
    return [member for member in members if not finished(member, workdir / member.folder)]


def jobs(workdir: pathlib.Path, members: Sequence[SweepRun], config: str, fixed: Mapping) -> list[Job]:
    """The jobs of the members that are not finished."""
    open_jobs = []
    for member in unfinished(workdir, members):
        folder = workdir / member.folder
        command = [sys.executable, "-m", f"{__package__}.train", f"--config={config}"]
        command += [*sweeps.as_flags({**fixed, **member.overrides}), f"--workdir={folder}"]
        open_jobs.append(Job(member.name, folder, command, functools.partial(finished, member, folder)))
    return open_jobs


def results(
    workdir: pathlib.Path, members: Sequence[SweepRun], outcomes: Mapping[pathlib.Path, Outcome]
) -> list[MemberResult]:
    """Result and state of every member, from its folder, else from ``outcomes``, else from sweep.json."""
    member_results = []
    for member in members:
        folder = workdir / member.folder
        outcome = outcomes.get(folder) or _failed_before(workdir, member)
        if changed := contradiction(member, folder):  # the config file was edited during the sweep
            outcome = Outcome(FAILED, changed)
        elif finished(member, folder):
            outcome = Outcome(FINISHED)
        elif outcome is None:
            outcome = Outcome("not finished" if (folder / "config.json").is_file() else "not begun")
        member_results.append(
            sweep_results.read_member(member.setting, member.seed, folder, outcome.state, outcome.reason)
        )
    return member_results


def _failed_before(workdir: pathlib.Path, member: SweepRun) -> Outcome | None:
    """The member's failure in the last call according to sweep.json; None if there is none."""
    for setting in summaries.read_json(workdir / "sweep.json").get("settings", []):
        for saved in setting["members"]:
            same_member = (setting["setting"], saved["seed"]) == (member.setting, member.seed)
            if same_member and saved["state"] == FAILED:
                return Outcome(FAILED, saved["reason"])
    return None


def show(workdir: pathlib.Path, read: Sequence[MemberResult], config: str, fixed: Mapping) -> None:
    """Print the tables, and write them with the page."""
    title = " ".join([f"Sweep of {config}", *sweeps.as_flags(fixed)])
    from jaxmarl_llm.analysis.report import sweep_page  # imports matplotlib, which no member needs

    tables, notes = sweep_page.tables(read), sweep_page.notes(read)
    for table in tables:
        console.table(table.rows, table.headers, f"\n{table.title}")
    print("\n" + "\n".join(notes))
    pieces = [console.markdown(table.rows, table.headers, f"## {table.title}") for table in tables]
    files.atomic_write_text(
        workdir / "sweep.md", "\n".join([f"# {title}\n", *pieces, "\n\n".join(notes), ""])
    )
    data = {"config": config, "fixed": dict(fixed), "settings": sweep_results.as_json(read)}
    formats.write(workdir / "sweep.json", data)
    page = sweep_page.write(read, workdir / "sweep.html", title)
    print(f"\nsweep.md, sweep.json and {page.name} are in {workdir}")


def run(open_jobs: Sequence[Job], slots: Sequence[Mapping[str, str]]) -> dict[pathlib.Path, Outcome]:
    """`launch.run_all` with a progress bar of finished members."""
    if not open_jobs:
        return {}
    with console.ProgressDisplay(len(open_jobs), label="members") as display:
        return launch.run_all(open_jobs, slots, display.print, lambda ended: display.update(ended, {}))


def places(parallel: int, devices: Sequence[str]) -> list[dict[str, str]]:
    """Environment of each of the parallel runs; ValueError for flags that contradict each other."""
    if devices and parallel != 1:
        raise UserError(f"--parallel={parallel} and --devices={','.join(devices)}: give one of the two")
    if len(set(devices)) != len(devices):
        raise UserError(f"--devices={','.join(devices)}: every device may be named once")
    return [{"CUDA_VISIBLE_DEVICES": device} for device in devices] or [{}] * parallel


def define_flags() -> None:
    """The command line. Not at import: other commands define flags of the same names in the same process."""
    entry.define_config()
    flags.DEFINE_string("workdir", None, "Folder with a run folder per member.", required=True)
    flags.DEFINE_integer("parallel", 1, "Members that run at a time.", lower_bound=1)
    flags.DEFINE_list("devices", [], "GPUs, by number, that run one member each.")
    flags.DEFINE_bool("table_only", False, "Run nothing, write the table and the page.")


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args, flag = flags.FLAGS, flags.FLAGS["config"]
    config, fixed = flag.config_filename, flag.override_values
    members = sweeps.collect(sweeps.load(config.partition(":")[0]), args.config, fixed)
    workdir = pathlib.Path(args.workdir)
    check_workdir(workdir, members)
    files.ensure_writable(workdir / "sweep.json", "take another --workdir, or a copy of this one")
    outcomes = {}
    if not args.table_only:
        slots, open_jobs = places(args.parallel, args.devices), jobs(workdir, members, config, fixed)
        print(f"{len(members)} members, {len(members) - len(open_jobs)} of them finished", flush=True)
        from jaxmarl_llm.factory import user_code  # imports JAX: the first line does not wait for it

        user_code.check_all({member.name: member.config for member in unfinished(workdir, members)})
        outcomes = run(open_jobs, slots)
    member_results = results(workdir, members, outcomes)
    show(workdir, member_results, config, fixed)
    missing = sum(result.state != FINISHED for result in member_results)
    if missing and not args.table_only:
        print(
            f"{missing} of {len(member_results)} members are not finished; the same command goes on",
            file=sys.stderr,
        )
        return 1


if __name__ == "__main__":
    define_flags()
    entry.run(main)
