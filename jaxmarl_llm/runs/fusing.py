"""Fuse teachers into one student: texts, every teacher's predictions, a training, a report.

Everything is kept in ``fusion/`` of the student's run folder, one file or shard at a time, so that the same
command continues where it was stopped: ``about.json`` (the settings), ``rollouts/``, ``texts.jsonl`` and
``teachers/``, ``held_out/`` with the same for held-out texts, and ``report.json``.
"""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxmarl_llm import saved_agents
from jaxmarl_llm.config import agent_settings, remote, tools, validate
from jaxmarl_llm.factory import chat_options, evaluations, experts, protocols, tasks, teams
from jaxmarl_llm.fusion import scores, texts
from jaxmarl_llm.fusion.scores import Model
from jaxmarl_llm.fusion.texts import Text
from jaxmarl_llm.runs import fused_report, fused_rollouts, fused_teachers, fused_texts
from jaxmarl_llm.runs.fused_teachers import Other
from jaxmarl_llm.runs.fused_texts import REFERENCE, Lesson
from jaxmarl_llm.systems import demonstrations
from jaxmarl_llm.systems.demonstrations import Demonstration
from jaxmarl_llm.tasks.judgement import is_sequential
from jaxmarl_llm.team import Team
from jaxmarl_llm.utils import console, content, files, formats
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.saved_names import LATEST

FOLDER = "fusion"


@dataclasses.dataclass(frozen=True)
class Asked:
    """The settings of a fusion, from the flags of `experiments.fuse`.

    Attributes:
      workdir: run folder of the team.
      out: run folder of the student.
      step: checkpoint of the team: best, latest or a number.
      texts: '' for the team's own answers, `REFERENCE`, or a JSONL file.
      samples, above: of its own answers, see `fused_texts.drawn`.
      members: whether the team's members teach.
      teachers: names of others.
      held_out: share of the prompts that is held out, or names of JSONL files or `REFERENCE`.
      begin: agent of the team that the student starts from; '' for a new one.
    """

    workdir: str
    out: str
    step: Any
    texts: str = ""
    samples: int = 4
    above: float | None = None
    members: bool = True
    teachers: tuple[str, ...] = ()
    held_out: Any = 0.1
    begin: str = ""


def run(asked: Asked, config, student, train: Callable[[Any, str], dict]) -> list[dict]:
    """Do what is missing of a fusion; returns the report, [] if it was stopped.

    Args:
      asked: see `Asked`.
      config: the team's.
      student: the student's; ``sft.source`` and ``team.begin`` are filled in.
      train: runs or resumes the training of a config in a folder and returns its summary.

    Raises:
      ValueError: for what cannot be done; if possible before any model is loaded.
    """
    out = pathlib.Path(asked.out)
    student = _with_source(asked, config, student, out / FOLDER / "texts.jsonl")
    others = fused_teachers.parse_all(asked.teachers, config.team.agents if asked.members else ())
    step = saved_agents.read_meta(asked.workdir, asked.step)["step"]
    _keep_about(out / FOLDER, asked, step)
    _prepare(asked, config, student, others, step)
    _keep_source(out, student.sft.source)
    if not train(student, str(out)):
        return []
    return report(student, out)


def _with_source(asked: Asked, team, student, source: pathlib.Path):
    """The student's config with its texts and its start; ``team``: the team's config."""
    if asked.begin and asked.begin not in team.team.agents:
        raise UserError(f"--begin={asked.begin!r}: the team has the agents {', '.join(team.team.agents)}")
    made = student.copy_and_resolve_references()
    made.sft.source = str(source)
    if asked.begin:
        made.team.begin, made.team.begin_step = asked.workdir, str(asked.step)
        made.team.begin_map = (f"{made.team.agents[0]}={asked.begin}",)
    validate(made, "the student's config")
    if made.train.system != "sft" or len(made.team.agents) != 1:
        raise UserError(
            f"train.system={made.train.system!r} with team.agents={tuple(made.team.agents)!r}: a student is one agent "
            "with train.system='sft'"
        )
    if made.team.agents[0] in team.team.agents:
        raise UserError(
            f"team.agents={tuple(made.team.agents)!r} of the student: allowed is a name that no agent of the team has, "
            f"which are {tuple(team.team.agents)!r}"
        )
    return made


def _keep_about(folder: pathlib.Path, asked: Asked, step: int) -> None:
    """Write the settings; ValueError with the differences if the folder was made with other ones."""
    fields = {name: value for name, value in dataclasses.asdict(asked).items() if name not in ("out", "step")}
    now = json.loads(json.dumps(fields | {"step": step}))
    hashes = _hashes(asked)
    path = folder / "about.json"
    if not any(folder.rglob("*.jsonl")):  # nothing was made: refused settings may be changed
        files.ensure_writable(path, "give another --out")
        formats.write(path, now | {"files": hashes})
        return
    kept = formats.read(path)
    differing = [
        f"{name} was {kept.get(name)!r}, is {now[name]!r}" for name in now if kept.get(name) != now[name]
    ]
    before = kept.get("files", {})  # earlier versions did not record it
    differing += [f"{name} has changed" for name in hashes if before.get(name, hashes[name]) != hashes[name]]
    if differing:
        raise UserError(f"{folder} holds another fusion: {'; '.join(differing)}; give another --out")


def _hashes(asked: Asked) -> dict[str, str]:
    """SHA-256 by path of the existing files of texts; one deleted since then is not needed again."""
    held = [] if isinstance(asked.held_out, float) else asked.held_out
    paths = [path for path in (asked.texts, *held) if path not in ("", REFERENCE)]
    return {path: content.of_file(pathlib.Path(path)) for path in paths if pathlib.Path(path).is_file()}


def _keep_source(out: pathlib.Path, source: str) -> None:
    """In the config of a student that was begun, update the path of its texts to its folder's present place.

    Its training is refused if the texts differ, see `inputs.of_data`.
    """
    path = out / "config.json"
    held = files.read_json(path) if path.is_file() else {}
    saved = held.get("sft", {}).get("source", "")
    if saved != source and pathlib.Path(saved).parts[-2:] == pathlib.Path(source).parts[-2:]:
        files.atomic_write_text(
            path, json.dumps(held | {"sft": held["sft"] | {"source": source}}, indent=2) + "\n"
        )


def _prepare(asked: Asked, config, student, others, step: int) -> None:
    """Make the texts and caches of all teachers that are missing."""
    folder = pathlib.Path(asked.out) / FOLDER
    done = folder / "prepared.json"
    if done.is_file():
        return
    config = chat_options.dated(config, asked.workdir)
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(tasks.build_executor(config))
        made = {split: _lesson(asked, config, student, executor, split) for split in ("train", "validation")}
        team = teams.build_team(
            config, speakers=experts.build(config, made["train"].task.items, asked.workdir)
        )
        team, _ = saved_agents.restore_team(asked.workdir, asked.step, team)
        loaded = {other: fused_teachers.load(other, config) for other in others}
        readers = _readers(team, student, loaded)
        learned, held = _texts(asked, config, student, team, made, readers, folder, step)
        _check(asked, learned, held, readers, student)
        sets = {folder / "texts.jsonl": learned, folder / "held_out" / "texts.jsonl": held}
        members = made["train"].members
        for source, rows in sets.items():
            texts.write(source, rows)
            (source.parent / "teachers").mkdir(parents=True, exist_ok=True)
            teachers = fused_teachers.models(team, members, loaded)
            fused_teachers.fill(source, rows, teachers, step, _progress())
    formats.write(done, {"texts": len(learned), "held_out": len(held)})


def _lesson(asked: Asked, config, student, executor, split: str) -> Lesson:
    """What texts are made for, with the problems of a split."""
    task = evaluations.build_split(config, executor, split)
    if is_sequential(task) or tools.offered(config):
        raise UserError(
            f"task.kind={config.task.kind!r}: answers that are steps of an episode, or that call tools, cannot be fused"
        )
    own = evaluations.build_split(student, executor, split)
    members = tuple(a for a in config.team.agents if asked.members and a not in remote.agents(config))
    joint = bool(student.task.centralised)
    if joint and set(own.roles) != set(task.agents):
        raise UserError(
            f"task.roles={own.roles!r} of the student: the team's roles are {tuple(task.agents)!r}"
        )
    return Lesson(task, own, joint, members, tuple(asked.teachers))


def _readers(team: Team, student, others: Mapping[Other, Model]) -> dict[str, Any]:
    """Tokenizers of the student and of all teachers, by name."""
    readers = {agent: team[agent].tokenizer for agent in team.agents if not team[agent].remote}
    readers |= {other.name: model.tokenizer for other, model in others.items()}
    own = chat_options.dated(student)
    return readers | {student.team.agents[0]: teams.load_model(own, own.model).tokenizer}


def _texts(asked, config, student, team, made, readers, folder, step) -> tuple[list[Text], list[Text]]:
    """The texts that the student learns, and those that are held out."""
    lesson = made["train"]
    if asked.texts == REFERENCE:
        rows = fused_texts.references(lesson)
    elif asked.texts:
        rows = fused_texts.of_file(asked.texts, lesson, "--texts")
    else:
        (folder / "rollouts").mkdir(parents=True, exist_ok=True)
        memory = protocols.saved_memory(config, asked.workdir, step, team)
        fixed = config, team, lesson, folder / "rollouts", asked.samples, asked.above, readers, memory
        progress = _progress()
        rows, left_out = fused_rollouts.drawn(*fixed, lambda done, every: progress("the team", done, every))
        shown = ", ".join(f"{number} {reason}" for reason, number in left_out.items())
        print(f"{len(rows)} texts of the team's answers; left out: {shown}", flush=True)
    if asked.texts in ("", REFERENCE):
        longest, every = agent_settings.longest(student), len(rows)
        rows = fused_texts.fitting(rows, readers[lesson.student], longest)
        if len(rows) < every:
            print(
                f"{every - len(rows)} texts are longer than sampling.max_new_tokens={longest}: left out",
                flush=True,
            )
    if isinstance(asked.held_out, float):
        return fused_texts.held_out(rows, asked.held_out)
    held: list[Text] = []
    for name in asked.held_out:
        own = made["validation"]
        held += (
            fused_texts.references(own) if name == REFERENCE else fused_texts.of_file(name, own, "--held_out")
        )
    return rows, held


def _check(asked: Asked, learned: Sequence[Text], held: Sequence[Text], readers, student) -> None:
    """Refuse texts that the student cannot learn from, before any teacher is asked."""
    if not learned:
        raise UserError(
            f"--texts={asked.texts!r}: there is no text to learn from; --above and --hold leave out some"
        )
    prompts = {json.dumps(text.messages, sort_keys=True) + text.text for text in learned}
    both = sum(json.dumps(text.messages, sort_keys=True) + text.text in prompts for text in held)
    if both:
        raise UserError(
            f"--held_out: {both} of {len(held)} texts are among those of --texts; allowed are others"
        )
    (agent,) = student.team.agents
    names = [agent, *texts.teachers([*learned, *held])]
    fused_texts.check([*learned, *held], names, readers, "--texts")
    c = student.sampling
    demonstrations.encode(
        [Demonstration(t.agent, t.messages, t.text, name=f"text {n}") for n, t in enumerate(learned)],
        {agent: readers[agent]},
        max_prompt_tokens=c.max_prompt_tokens,
        max_new_tokens=agent_settings.limits(student, [agent]),
        stop=tuple(c.stop),
        truncate=c.long_prompts == "truncate",
    )


def _progress() -> Callable[[str, int, int], None]:
    """Prints the progress of each part of the work that takes long."""
    shown: dict[str, console.LateProgress] = {}

    def tell(name: str, done: int, every: int) -> None:
        shown.setdefault(name, console.LateProgress(f"texts of {name}"))(done, every)

    return tell


def report(student, out: pathlib.Path) -> list[dict]:
    """Measure the trained student on the held-out texts, print and keep the result."""
    source = out / FOLDER / "held_out" / "texts.jsonl"
    rows = texts.read(source)
    if not rows:
        print("no text was held out, so there is no report", flush=True)
        return []
    team, _ = saved_agents.restore_team(out, LATEST, teams.build_team(chat_options.dated(student, out)))
    (agent,) = student.team.agents
    measured = fused_report.measure(scores.of_agent(team[agent], agent), rows, source)
    made = fused_report.by_group(measured)
    fused_report.show(made)
    lines = "".join(f"{json.dumps(row)}\n" for row in measured)
    files.atomic_write_text(out / FOLDER / "report_texts.jsonl", lines)
    files.atomic_write_text(out / FOLDER / "report.json", json.dumps(made, indent=2))
    return made
