"""Several runs that differ in some fields, and what came of them, in one table and on one page.

Command: python -m experiments.sweep --config=configs/sweep_coding.py --workdir=runs/learning_rates

The config file defines `sweep(add)`, see jaxmarl_llm/config/sweeps.py. Every member is a training run in a folder of its
own under --workdir and in a process of its own. Whatever stops it, the same command goes on: finished members
are kept, others resume, failed ones are tried again. A sweep may gain members; one that lacks a member that
was run, or would change it, is refused. At the end, or at once with --table_only, what was found is printed
and written: sweep.md, sweep.json and, with the learning curves, sweep.html. The exit code is 0 if all members
are finished.

Members are run one after the other; --parallel=2 runs two at a time, --devices=0,1 one on each of two GPUs.
"""

import functools
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence

from absl import flags

from jaxmarl_llm import resume_checks
from jaxmarl_llm.analysis.report import sweep_page, sweep_results
from jaxmarl_llm.analysis.report.sweep_results import MemberResult
from jaxmarl_llm.cli import entry, launch
from jaxmarl_llm.cli.launch import FAILED, FINISHED, Job, Outcome
from jaxmarl_llm.config import sweeps
from jaxmarl_llm.config.sweeps import SweepRun
from jaxmarl_llm.factory import user_code
from jaxmarl_llm.runs import summaries
from jaxmarl_llm.utils import console, files


def change(member: SweepRun, folder: pathlib.Path) -> str:
    """In what the run in its folder contradicts the member's config; empty if in nothing."""
    saved = summaries.read_json(folder / "config.json")
    try:
        if saved:
            resume_checks.check_same_run(saved, member.config.to_dict())
    except ValueError as error:
        return str(error)
    return ""


def finished(member: SweepRun, folder: pathlib.Path) -> bool:
    """Whether the member's run is there and has come to its end."""
    return summaries.complete(member.config, summaries.read_json(folder / "summary.json"))


def check_workdir(workdir: pathlib.Path, found: Sequence[SweepRun]) -> None:
    """ValueError if a folder holds runs of another sweep: of no member, or with another config."""
    known = {workdir / member.folder for member in found}
    strange = sorted(str(path.parent) for path in workdir.glob("*/*/config.json") if path.parent not in known)
    if strange:
        raise ValueError(
            f"{', '.join(strange)}: no member of this sweep, which may gain members but not lose them; take "
            "another --workdir, or move what is there away"
        )
    changed = {member.name: change(member, workdir / member.folder) for member in found}
    if any(changed.values()):
        said = "; ".join(f"{name}: {text}" for name, text in changed.items() if text)
        raise ValueError(f"{said}. Take another --workdir, or move these runs away")


def left(workdir: pathlib.Path, found: Sequence[SweepRun]) -> list[SweepRun]:
    """The members that are not finished."""
    return [member for member in found if not finished(member, workdir / member.folder)]


def jobs(workdir: pathlib.Path, found: Sequence[SweepRun], config: str, fixed: Mapping) -> list[Job]:
    """What is to be run of the members that are not finished."""
    wanted = []
    for member in left(workdir, found):
        folder = workdir / member.folder
        command = [sys.executable, "-m", "experiments.train", f"--config={config}"]
        command += [*sweeps.as_flags({**fixed, **member.overrides}), f"--workdir={folder}"]
        wanted.append(Job(member.name, folder, command, functools.partial(finished, member, folder)))
    return wanted


def results(
    workdir: pathlib.Path, found: Sequence[SweepRun], outcomes: Mapping[pathlib.Path, Outcome]
) -> list[MemberResult]:
    """Every member with its state: as its folder says, else by ``outcomes``, else by sweep.json."""
    read = []
    for member in found:
        folder = workdir / member.folder
        outcome = outcomes.get(folder) or _failed_before(workdir, member)
        if changed := change(member, folder):  # the config file was edited while the sweep went on
            outcome = Outcome(FAILED, changed)
        elif finished(member, folder):
            outcome = Outcome(FINISHED)
        elif outcome is None:
            outcome = Outcome("not finished" if (folder / "config.json").is_file() else "not begun")
        read.append(
            sweep_results.read_member(member.setting, member.seed, folder, outcome.state, outcome.reason)
        )
    return read


def _failed_before(workdir: pathlib.Path, member: SweepRun) -> Outcome | None:
    """The failure of an earlier call, if that was the member's last."""
    for setting in summaries.read_json(workdir / "sweep.json").get("settings", []):
        for told in setting["members"]:
            mine = (setting["setting"], told["seed"]) == (member.setting, member.seed)
            if mine and told["state"] == FAILED:
                return Outcome(FAILED, told["reason"])
    return None


def show(workdir: pathlib.Path, read: Sequence[MemberResult], config: str, fixed: Mapping) -> None:
    """Print the tables, and write them with the page."""
    title = " ".join([f"Sweep of {config}", *sweeps.as_flags(fixed)])
    tables, notes = sweep_page.tables(read), sweep_page.notes(read)
    for table in tables:
        console.table(table.rows, table.headers, f"\n{table.title}")
    print("\n" + "\n".join(notes))
    pieces = [console.markdown(table.rows, table.headers, f"## {table.title}") for table in tables]
    files.atomic_write_text(
        workdir / "sweep.md", "\n".join([f"# {title}\n", *pieces, "\n\n".join(notes), ""])
    )
    data = {"config": config, "fixed": dict(fixed), "settings": sweep_results.as_json(read)}
    files.atomic_write_text(workdir / "sweep.json", json.dumps(data, indent=2, allow_nan=False) + "\n")
    page = sweep_page.write(read, workdir / "sweep.html", title)
    print(f"\nsweep.md, sweep.json and {page.name} are in {workdir}")


def places(parallel: int, devices: Sequence[str]) -> list[dict[str, str]]:
    """The environment of each run that is made at a time; ValueError for flags that contradict each other."""
    if devices and parallel != 1:
        raise ValueError(f"--parallel={parallel} and --devices={','.join(devices)}: give one of the two")
    if len(set(devices)) != len(devices):
        raise ValueError(f"--devices={','.join(devices)}: every device may be named once")
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
    given, flag = flags.FLAGS, flags.FLAGS["config"]
    config, fixed = flag.config_filename, flag.override_values
    found = sweeps.collect(sweeps.load(config.partition(":")[0]), given.config, fixed)
    workdir = pathlib.Path(given.workdir)
    check_workdir(workdir, found)
    outcomes = {}
    if not given.table_only:
        slots, wanted = places(given.parallel, given.devices), jobs(workdir, found, config, fixed)
        user_code.check_all({member.name: member.config for member in left(workdir, found)})
        print(f"{len(found)} members, {len(found) - len(wanted)} of them finished", flush=True)
        outcomes = launch.run_all(wanted, slots, functools.partial(print, flush=True))
    read = results(workdir, found, outcomes)
    show(workdir, read, config, fixed)
    missing = sum(result.state != FINISHED for result in read)
    if missing and not given.table_only:
        print(f"{missing} of {len(read)} members are not finished; the same command goes on", file=sys.stderr)
        return 1


if __name__ == "__main__":
    define_flags()
    entry.run(main)
