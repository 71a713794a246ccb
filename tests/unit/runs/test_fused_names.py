"""Who is who in a fusion: a team whose agents have the student's name, and the report that names all readers."""

import numpy as np
import pytest

from configs import game, reasoning
from jaxmarl_llm.config import validate
from jaxmarl_llm.fusion import cache, scores, texts
from jaxmarl_llm.fusion.align import Seen
from jaxmarl_llm.runs import fused_report, fused_student, fusing
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
