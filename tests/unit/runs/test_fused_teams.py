"""Teams that are fused: agents of the student's name, what a team remembers, teams with tools."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from configs import coding, experience, game, reasoning
from jaxmarl_llm.config import validate
from jaxmarl_llm.factory import tasks
from jaxmarl_llm.fusion import cache, scores, texts
from jaxmarl_llm.fusion.align import Seen
from jaxmarl_llm.memory import Item
from jaxmarl_llm.runs import fused_report, fused_rollouts, fused_student, fused_teachers, fusing
from jaxmarl_llm.runs.fusing import Asked
from jaxmarl_llm.utils.errors import UserError

TRAINING = {"train.steps": 1, "train.lr": 1e-3, "sft.batch": 2}


def seen(nats):
    """Two tokens of two bytes with this many nats each, and the end."""
    logprobs = np.array([-nats, -nats, -1.0], np.float32)
    return Seen(np.arange(3), np.array([2, 4, 4]), logprobs, np.zeros((3, 2), int), np.zeros((3, 2), np.float16))


def test_a_teacher_called_student_is_not_the_student(tmp_path, monkeypatch):
    """The student has 1 nat at each of two tokens of a text of four bytes, teachers have 3 and 5."""
    monkeypatch.setattr(scores, "score", lambda model, units, top: [seen(1.0) for _ in units])
    prompt = ({"role": "user", "content": "q"},)
    names = {"student": 3.0, "other": 5.0}
    rows = [texts.Text("fused", prompt, "abcd", tuple(texts.whole(name, "abcd", prompt) for name in names), "g")]
    for name, nats in names.items():
        folder = tmp_path / "teachers" / name
        tokens = lambda ids: cache.Tokens({i: b"x" for i in ids}, "m")  # noqa: E731
        cache.fill(folder, {"teacher": name}, [0], lambda units, nats=nats: [seen(nats)], tokens)
    report = fused_report.by_group(fused_report.measure(None, rows, tmp_path / "texts.jsonl"))
    got = {row["reader"]: (row["bytes"], row["nats_per_byte"], row["student_nats_per_byte"]) for row in report}
    assert got == {"student": (4, 0.5, 0.5), "teacher student": (4, 1.5, 0.5), "other": (4, 2.5, 0.5)}


def test_the_student_has_a_name_of_its_own():
    config = reasoning.get_config("smoke")
    config.team.agents = ("student", "teacher")
    validate(config)
    made = fused_student.of_team(config, TRAINING)
    assert tuple(made.team.agents) == ("fused_student",)
    config = game.get_config()
    made = fused_student.of_team(config, TRAINING)
    assert tuple(made.team.agents) == ("team",)
    made.team.agents = ("first",)
    with pytest.raises(UserError, match=r"team.agents=\('first',\) of the student: allowed is a name that no agent of"):
        fusing._with_source(Asked("x", "y", "latest"), config, made, "texts.jsonl")


def test_the_student_begins_as_an_agent_of_the_team():
    config = game.get_config()
    asked = Asked("x", "y", "latest", begin="mian")
    with pytest.raises(UserError, match=f"--begin='mian': the team has the agents {', '.join(config.team.agents)}"):
        fusing._with_source(asked, config, fused_student.of_team(config, TRAINING), "texts.jsonl")


class Stopped(Exception):
    """Stands for the answers, which are not drawn."""


def test_a_team_answers_with_what_it_remembers(tmp_path, monkeypatch):
    config = experience.get_config("train,smoke")
    item = Item("Use a table", {"code": "x"}, provenance={"task": config.task.kind})
    folder = tmp_path / "system" / "experience"
    folder.mkdir(parents=True)
    (folder / "000005.jsonl").write_text(json.dumps(dataclasses.asdict(item)) + "\n")

    def build(config, task, team, samples, memory=()):
        raise Stopped([entry.text for entry in memory])

    monkeypatch.setattr(fused_rollouts.protocols, "build", build)
    monkeypatch.setattr(fused_rollouts.TaskScorer, "of_team", lambda *args: None)
    monkeypatch.setattr(fused_rollouts.teams, "prompt_sizes", lambda *args: None)
    asked, one = Asked(str(tmp_path), "y", "best"), SimpleNamespace(task=SimpleNamespace(items=[1]))
    with pytest.raises(Stopped, match="Use a table"):
        fusing._texts(asked, config, None, SimpleNamespace(members=()), {"train": one}, {}, tmp_path, 5)


@pytest.mark.parametrize("tools", [
    {"tools.functions": ("jaxmarl_llm.tasks.toys.letters:distinct",)}, {"tools.servers": ("python -m x",)},
    {"tools.of_task": True},
])
def test_answers_with_tools_of_any_kind_are_refused(tools):
    config = coding.get_config("smoke")
    config.update_from_flattened_dict(tools | {"train.joint_mode": "aligned"})
    validate(config)
    student = fused_student.of_team(config, TRAINING)
    with tasks.build_executor(config) as executor, pytest.raises(UserError, match="call tools, cannot be fused"):
        fusing._lesson(Asked("x", "y", "latest"), config, student, executor, "train")


def test_a_teacher_is_there_once(tmp_path):
    folder = tmp_path / "day 12:30"
    folder.mkdir()
    (folder / "team.json").write_text(json.dumps({"format": 1, "agents": {"main": {}, "aux": {}}, "step": 1}))
    others = fused_teachers.parse_all((f"{folder}:main", f"{folder}:aux", "models/x"), ("first",))
    assert [(other.folder, other.agent) for other in others] == [(str(folder), "main"), (str(folder), "aux"), ("", "")]
    for names, message in (
        (("x", "x", "y"), "--teachers=x,x,y: 'x' is there twice"),
        ((f"{folder}:main", f"{folder}/:main"), "--teachers=.*: '.*/:main' is there twice"),
        (("x", ""), "--teachers=x,: '' names no teacher"),
        (("first",), "--teachers=first: 'first' is an agent of the team, whose members teach already"),
    ):
        with pytest.raises(UserError, match=message):
            fused_teachers.parse_all(names, ("first", "second"))
