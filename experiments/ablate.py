"""Compare LessonL with ablations of it and other methods, on the same problems with equally many programs.

    python -m experiments.ablate --config=configs/lessonl.py --workdir=runs/ablation
    python -m experiments.ablate --config=configs/lessonl.py:scripted --workdir=runs/scripted
    python -m experiments.ablate --config=configs/qstar.py:model=runs/values --workdir=runs/qstar
    python -m experiments.ablate --config=configs/experience.py:scripted --workdir=runs/experience

The third command compares Q* with other search orders: what is solved within equal numbers of programs and
tokens. The last one compares experience with examples chosen in several ways, and without examples.

Runs the members of `configs/ablation.py` one after the other and writes ablation.json, .md and .html when all
are done. If it is stopped, the same command continues within the interrupted round. Members whose rounds
begin in the same way share the answers drawn there. The measured time of a program counts for all members
(`timing.remember`), also when it is returned and measured again. So members differ by method, not by noise.
"""

import pathlib

from absl import flags

from jaxmarl_llm import resume_checks
from jaxmarl_llm.analysis.search import results as search_results
from jaxmarl_llm.cli import entry
from jaxmarl_llm.config import experience, validate
from jaxmarl_llm.config.files import experiment
from jaxmarl_llm.config.general import refuse_seeds
from jaxmarl_llm.config.programs import searches
from jaxmarl_llm.runs import run_folder
from jaxmarl_llm.utils.errors import UserError

ablation = experiment("ablation")


def ablate(config, workdir, names=()) -> list[search_results.SearchResult]:
    """Search with every member, or with those in ``names``; returns the results in order, the baseline first.

    Raises:
      ValueError: for a name that no member has, and a config that does not search for programs.
    """
    # Imported here, so that --help and flag errors do not wait for JAX.
    from jaxmarl_llm.analysis.search import search
    from jaxmarl_llm.factory import chat_options, protocols, step_search, tasks, teams

    known = ablation.members(config)
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"--members={unknown[0]!r}: allowed are {', '.join(known)}")
    config = chat_options.dated(config, *sorted(pathlib.Path(workdir).glob("*/")))
    members = {name: known[name] for name in names or known}
    configs = {name: ablation.config_of(config, member) for name, member in members.items()}
    for name, settings in configs.items():
        if not searches(settings):
            raise UserError(
                f"task.kind={settings.task.kind!r}: nothing to search for in it; take configs/lessonl.py, "
                "configs/qstar.py or configs/experience.py"
            )
        validate(settings, f"the config of {name!r}")
        refuse_seeds(settings, "a search")
        step_search.check_model(settings)
    resume_checks.ensure_writable(workdir)
    results, folders = [], []
    # All members share the searchers, so they are opened for a member with lessons if there is one.
    with search.open_searchers(next(filter(protocols.has_lessons, configs.values()), config)) as searchers:
        judge = tasks.build_judge(config, searchers.executor)
        for name, settings in configs.items():
            print(f"\n{name}", flush=True)
            agents = ablation.agents_of(config, members[name])
            task = tasks.build_programs(settings, searchers.executor, "test", agents, judge)
            teams.check_prompts(settings, searchers.team, task)
            folders.append(pathlib.Path(workdir) / name.replace(" ", "_"))
            results.append(search.search(settings, folders[-1], searchers, task, name, like=folders[:-1]))
    return results


def main(argv):
    """Command line entry."""
    entry.refuse_arguments(argv)
    args = flags.FLAGS
    workdir = pathlib.Path(args.workdir or run_folder.new_workdir())
    resume_command = "the same command" if args.workdir else f"the same command with --workdir={workdir}"
    print(f"searching in {workdir}; when it is stopped, {resume_command} goes on", flush=True)
    results = ablate(args.config, workdir, args.members)
    from jaxmarl_llm.analysis.search import search  # imports JAX

    over_steps = args.config.train.protocol == "qstar"
    title = "Q* and other orders" if over_steps else "LessonL, and what is left without its parts"
    title = "Experience, by how examples are chosen" if experience.of(args.config) else title
    for path in search.show(results, workdir / "ablation.json", title):
        print(f"written: {path}")


if __name__ == "__main__":
    entry.define_config()
    flags.DEFINE_string("workdir", "", "Folder with a folder per member; empty: a new one under runs/.")
    flags.DEFINE_list("members", [], "Only these, the baseline first; empty: all of configs/ablation.py.")
    entry.run(main)
