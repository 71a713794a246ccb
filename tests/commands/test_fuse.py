"""experiments/fuse.py: a team into one model that others read; stopped anywhere it goes on; what is refused."""

import io
import json
import pathlib
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import smoke_runs
from absl import app
from checkpoint_teams import filled

from configs import coding, game, reasoning
from experiments import export, fuse, train
from jaxmarl_llm import update
from jaxmarl_llm.checkpoint import Checkpointer
from jaxmarl_llm.config import validate
from jaxmarl_llm.factory import evaluations, fusion, teams, training
from jaxmarl_llm.fusion import cache, scores, texts
from jaxmarl_llm.runs import (
    fused_report,
    fused_rollouts,
    fused_student,
    fused_teachers,
    fused_texts,
    fusing,
    run_folder,
)
from jaxmarl_llm.runs.fusing import Asked
from jaxmarl_llm.utils.saved_names import LATEST

TRAINING = {"train.steps": 4, "train.lr": 1e-2, "sft.batch": 4}


def nearly(tree):
    """Adapters that differ from new ones a little."""
    return jax.tree.map(lambda x, noise: x + 0.05 * noise, tree, filled(tree, 1))


def make_team(folder, config):
    """A run folder of a team with random adapters, after 3 iterations."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    team = teams.build_team(config)
    states = {
        i: update.init_state(nearly(m.trainable), training.build_optimizer(config))
        for i, m in enumerate(team.members) if m.trainable is not None
    }  # fmt: skip
    with Checkpointer(folder / "checkpoints") as saver:
        saver.save(3, states, team, {})
    return folder


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """A team of the game: two agents of a model over words."""
    config = game.get_config()
    config.train.group, config.log.report, config.eval.samples = 2, False, 2
    validate(config)
    return make_team(tmp_path_factory.mktemp("fuse") / "team", config)


def asked(team, out, **changes):
    return Asked(str(team), str(out), LATEST, **{"samples": 2, "held_out": 0.3} | changes)


def student_of(team, **fields):
    made = fused_student.of_team(run_folder.load_run(team), TRAINING)
    made.distil.weight, made.save.every, made.log.report = 0.5, 2, False
    made.update_from_flattened_dict(fields)
    return made


def run(team, out, student=None, **changes):
    config = run_folder.load_run(team)
    return fusing.run(asked(team, out, **changes), config, student or student_of(team), train.train)


@pytest.fixture(scope="module")
def fused(team):
    out = team.parent / "fused"
    return out, run(team, out)


@pytest.mark.slow
def test_the_student_writes_what_its_teachers_wrote(team, fused):
    """The texts are answers of both roles, each part with its author's own prompt."""
    out, report = fused
    rows = texts.read(out / "fusion" / "texts.jsonl") + texts.read(out / "fusion" / "held_out" / "texts.jsonl")
    assert {row.agent for row in rows} == {"team"} and len({str(row.messages) for row in rows}) > 1
    for row in rows:
        by_role = {part.teacher: row.content(part) for part in row.parts}
        assert row.text == "\n".join(f"[{role}]\n{by_role.get(role, '')}" for role in ("first", "second"))
        for part in row.parts:
            assert f"You are {part.teacher}" in part.messages[0]["content"]
    assert {row["reader"] for row in report} == {"student", "first", "second"}
    for row in report:
        assert 0 < row["bytes"] and np.isfinite([row["nats_per_byte"], row["student_nats_per_byte"]]).all()
    assert json.loads((out / "fusion" / "report.json").read_text()) == report


@pytest.mark.slow
def test_the_report_is_the_cross_entropy_of_both(team, fused):
    """Against sums over all tokens, of a model that is read from the folders again."""
    out, report = fused
    held = texts.read(out / "fusion" / "held_out" / "texts.jsonl")
    teacher = fused_teachers.load(fused_teachers.parse(f"{team}:first"), None)
    student = fused_teachers.load(fused_teachers.parse(f"{out}:team"), None)
    group = report[0]["group"]
    rows = [row for row in held if row.group == group]
    nats = [-s.logprobs[:-1].sum() for s in scores.score(student, [(row.messages, row.text) for row in rows])]
    size = sum(len(row.text.encode()) for row in rows)
    by_reader = {row["reader"]: row for row in report if row["group"] == group}
    assert by_reader["student"]["nats_per_byte"] == pytest.approx(sum(nats) / size, rel=1e-4)
    parts = [(part.messages, row.content(part)) for row in rows for part in row.parts if part.teacher == "first"]
    nats = [-s.logprobs[:-1].sum() for s in scores.score(teacher, parts)]
    want = sum(nats) / sum(len(text.encode()) for _, text in parts)
    first = by_reader["first"]
    assert first["nats_per_byte"] == pytest.approx(want, rel=1e-4)
    assert first["difference"] == pytest.approx(first["student_nats_per_byte"] - want, rel=1e-4)
    by_text = [json.loads(line) for line in (out / "fusion" / "report_texts.jsonl").read_text().splitlines()]
    of_first = [row["nats"] for row in by_text if (row["group"], row["reader"]) == (group, "first")]
    assert len(of_first) == first["texts"] == len(rows) and sum(of_first) == pytest.approx(sum(nats), rel=1e-4)


def test_intervals_of_a_report_are_over_its_texts():
    """Two texts of one byte and of three; one of another group, which has no interval."""

    def row(text, group, size, nats, mine):
        return dict(text=text, group=group, reader="first", bytes=size, nats=nats, student_nats=mine)

    made = fused_report.by_group([row(0, "a", 1, 1.0, 3.0), row(1, "a", 3, 1.0, 1.0), row(2, "b", 2, 1.0, 1.0)])
    two, one = made
    assert (two["texts"], two["bytes"], two["nats_per_byte"], two["difference"]) == (2, 4, 0.5, 0.5)
    # resamples 2/2, 2/4, 2/4, 2/6 and 4/2, 2/4, 2/4, 0/6
    assert (two["low"], two["high"]) == pytest.approx((1 / 3, 1)) and two["difference_high"] == 2
    assert two["difference_low"] == 0 and "low" not in one
    output = io.StringIO()
    fused_report.show(made, output)
    assert "0.500 [0.333, 1.000]" in output.getvalue() and "+0.500 [+0.000, +2.000]" in output.getvalue()


class Killed(Exception):
    """Stands for a process that is killed."""


def killed_at(monkeypatch, module, name, call):
    """Let a function raise at one of its calls."""
    function, calls = getattr(module, name), []

    def dying(*args, **options):
        calls.append(args)
        if len(calls) == call:
            raise Killed
        return function(*args, **options)

    monkeypatch.setattr(module, name, dying)


@pytest.mark.slow
def test_a_fusion_that_is_killed_goes_on_as_if_it_had_not_been(team, fused, monkeypatch):
    whole, report = fused
    out = team.parent / "killed"
    monkeypatch.setattr(cache, "SHARD", 5)
    for module, name, call in (
        (fused_rollouts, "_of_forest", 1), (scores, "score", 2), (train, "train", 1), (fusing, "report", 1),
    ):  # fmt: skip
        with monkeypatch.context() as patched:
            killed_at(patched, module, name, call)
            with pytest.raises(Killed):
                run(team, out)
    assert run(team, out) == report
    for name in ("texts.jsonl", "held_out/texts.jsonl", "report.json"):
        assert (out / "fusion" / name).read_bytes() == (whole / "fusion" / name).read_bytes()
    assert smoke_runs.rows(out) == smoke_runs.rows(whole)
    one, two = (smoke_runs.saved_state(folder, student_of(team)) for folder in (whole, out))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_the_student_is_a_run_that_others_read(team, fused, tmp_path):
    out, _ = fused
    config = run_folder.load_run(out)
    _, report = evaluations.evaluate_run(config, out, LATEST)
    assert report["models"] == {"team": "game-tiny"}
    assert export.export(out, "team", tmp_path / "model", which=LATEST) == 4
    again = student_of(team)
    again.distil.weight = 0.0
    again.update_from_flattened_dict({
        "sft.source": str(out / "fusion" / "texts.jsonl"), "team.begin": str(out), "train.steps": 1,
    })  # fmt: skip
    assert train.train(again, str(tmp_path / "more"))


@pytest.mark.slow
def test_a_student_that_was_moved_goes_on_with_its_texts(team, fused, tmp_path, monkeypatch):
    """By another path of the same folder, and in another folder; with another text it is refused."""
    whole, report = fused
    monkeypatch.chdir(whole.parent)
    assert run(team, pathlib.Path(whole.name)) == report
    moved = shutil.copytree(whole, tmp_path / "moved")
    away = whole.rename(whole.parent / "away")
    try:
        assert evaluations.evaluate_run(run_folder.load_run(moved), moved, LATEST)
        longer = student_of(team)
        longer.train.steps = 6
        assert run(team, moved, longer)
        assert json.loads((moved / "config.json").read_text())["sft"]["source"] == str(moved / "fusion" / "texts.jsonl")
        changed = shutil.copytree(away, tmp_path / "changed")
        with (changed / "fusion" / "texts.jsonl").open("a") as file:
            file.write("\n")
        with pytest.raises(ValueError, match="began with other inputs: file of sft.source: saved sha256"):
            run(team, changed, longer)
    finally:
        away.rename(whole)


@pytest.mark.slow
def test_teachers_change_the_student_and_without_a_weight_it_is_cross_entropy_alone(team, fused):
    out, _ = fused
    source = out / "fusion" / "texts.jsonl"
    alone = student_of(team)
    alone.distil.weight, alone.sft.source = 0.0, str(source)
    train.train(alone, str(team.parent / "alone"))
    run(team, team.parent / "zero", student_of(team, **{"distil.weight": 0.0}))
    alone_rows, zero, taught = (smoke_runs.rows(team.parent / name) for name in ("alone", "zero", "fused"))
    assert alone_rows == zero != taught


@pytest.mark.slow
def test_experts_of_one_question_and_given_texts(tmp_path):
    """Members that answer alone teach whole texts; a second run's agent and a model teach beside them."""
    config = reasoning.get_config("smoke")
    config.train.protocol, config.task.total, config.eval.vote = "simultaneous", "mean", ""
    config.model, config.log.report = "random-tiny", False
    config.task.source, config.sampling.max_new_tokens = "sums[:12]", 8
    validate(config)
    team = make_team(tmp_path / "team", config)
    shutil.copytree(team, tmp_path / "other")
    lines = [{"messages": [{"role": "user", "content": f"{n} and 1?"}], "text": f"{n + 1}",
              "group": "up" if n % 2 else "down"} for n in range(12)]  # fmt: skip
    path = tmp_path / "given.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    others = (f"{tmp_path / 'other'}:second", "random-tiny")
    student = student_of(team, **{"distil.fuse": "avg_ce"})
    report = run(team, tmp_path / "out", student, texts=str(path), teachers=others, samples=4)
    assert {row["reader"] for row in report} == {"student", "first", "second", *others}
    assert {row["group"] for row in report} <= {"up", "down"}
    reference = fusing.run(
        asked(team, tmp_path / "references", texts="reference", held_out=["reference"]),
        run_folder.load_run(team), student_of(team), train.train,
    )  # fmt: skip
    assert {row["group"] for row in reference} >= {"grade 1"}


@pytest.mark.parametrize("config, agents, tokens", [
    (lambda: coding.get_config(), ("team",), 160), (lambda: game.get_config(), ("team",), 36),
    (lambda: reasoning.get_config("words"), ("student",), 32), (lambda: reasoning.get_config("trust"), ("student",), 2),
])
def test_the_student_of_a_team(config, agents, tokens):
    team = config()
    made = fused_student.of_team(team, TRAINING)
    validate(made)
    assert (tuple(made.team.agents), made.sampling.max_new_tokens) == (agents, tokens)
    assert made.task.centralised == (agents == ("team",)) and made.train.system == "sft"
    assert (made.train.steps, made.train.lr, made.sft.batch, made.train.prompts) == (4, 1e-2, 4, 4)
    assert made.task.source == team.task.source and made.seed == team.seed


def test_a_team_of_several_models_needs_a_config():
    config = coding.get_config()
    config.team.models = ("random-tiny", "smollm2-135m-instruct")
    with pytest.raises(ValueError, match="team.models=.* the student's model must be one of them; .*--config"):
        fused_student.of_team(config, TRAINING)


def lesson(joint=True):
    """A task of two roles, or of two that answer alone, and the student's."""

    class Task:
        items, agents = (), ("first", "second") if joint else ("a", "b")

    class Own(Task):
        agents, roles = ("team",), Task.agents

    return fused_texts.Lesson(Task(), Own(), joint, Task.agents)


def test_texts_without_teachers_beside_them_are_refused(tmp_path):
    source = tmp_path / "texts.jsonl"
    source.write_text("")
    with pytest.raises(ValueError, match="distil.weight=0.1: sft.source=.* has no teachers beside it; allowed are 0"):
        fusion.read(source, 0.1)
    config = game.get_config()
    config.train.system, config.sft.source, config.distil.weight = "sft", "my.function", 0.1
    with pytest.raises(ValueError, match="distil.weight=0.1: sft.source='my.function' has no teachers; allowed are 0"):
        validate(config)


def test_references_and_roles_by_hand():
    """A student of all roles is taught each role by its agent; one that answers alone by all, once for equal texts."""
    item = SimpleNamespace(task_id="x", grade=2)

    class Two:
        items, agents = (item,), ("first", "second")
        prompts = staticmethod(lambda item: {a: [{"role": "user", "content": a}] for a in Two.agents})
        references = staticmethod(lambda item: {"first": "4", "second": "4"})

    class One:
        agents, roles = ("team",), Two.agents
        prompts = staticmethod(lambda item: {"team": [{"role": "user", "content": "both"}]})

    joint, = fused_texts.references(fused_texts.Lesson(Two(), One(), True, Two.agents, ("x",)))
    assert joint.text == "[first]\n4\n[second]\n4" and joint.group == "grade 2"
    assert [(p.teacher, p.start, p.messages[0]["content"]) for p in joint.parts] == [
        ("first", 8, "first"), ("x", 8, "first"), ("second", 19, "second"), ("x", 19, "second"),
    ]  # fmt: skip
    alone, = fused_texts.references(fused_texts.Lesson(Two(), One(), False, Two.agents, ("x",)))
    assert alone.text == "4" and {(p.start, p.end) for p in alone.parts} == {(0, 1)}
    assert [(p.teacher, p.messages[0]["content"]) for p in alone.parts] == [
        ("first", "first"), ("second", "second"), ("x", "both"),
    ]  # fmt: skip


def test_which_answers_of_a_team_are_texts():
    """Cut off, not above the reward, not as its tokens: left out and counted; an answer ends at a stop text."""
    read = [SimpleNamespace(messages=({"role": "user", "content": name},)) for name in ("first", "second")]

    def turn(i, agent, text, finished=True):
        return SimpleNamespace(id=i, request=i % 2, agent=agent, text=text, finished=finished)

    answers = [("a STOP", True, 2.0), ("b", False, 2.0), ("c", True, 1.0), ("\ufffd", True, 2.0)]
    turns = [turn(2 * n + k, agent, text, ok) for n, (text, ok, _) in enumerate(answers)
             for k, agent in enumerate(("first", "second"))]  # fmt: skip
    joints = [SimpleNamespace(item=0, turns=(2 * n, 2 * n + 1), total=total) for n, (*_, total) in enumerate(answers)]
    forest = SimpleNamespace(items=(SimpleNamespace(grade=0),), turns=turns, joints=joints,
                             chains=lambda: [[n] for n in range(len(joints))])  # fmt: skip
    own = SimpleNamespace(agents=("team",), prompts=lambda item: {"team": [{"role": "user", "content": "?"}]})
    one = fused_texts.Lesson(None, own, True, ("first", "second"))
    letters = SimpleNamespace(encode=lambda text: [ord(x) for x in text if x != "\ufffd"],
                              decode=lambda ids: "".join(map(chr, ids)))  # fmt: skip
    readers = dict.fromkeys(("team", "first", "second"), letters)
    made, left_out = fused_rollouts._of_forest(forest, read, one, None, 1.0, readers, ("STOP",))
    assert [text.text for text in made] == ["[first]\na\n[second]\na"]
    assert left_out == {"cut off": 1, "not as its tokens": 1, "not above the reward": 1}
    assert [part.messages[0]["content"] for part in made[0].parts] == ["first", "second"]


@pytest.mark.parametrize("row, complaint", [
    ({"messages": [{"role": "user", "content": "?"}]}, "needs either a text or texts by role"),
    ({"text": "a"}, "needs either a task_id or messages"),
    ({"text": "", "messages": [{"role": "user", "content": "?"}]}, "text='', expected text that is not empty"),
    ({"text": None, "messages": [{"role": "user", "content": "?"}]}, "needs either a text or texts by role"),
    ({"text": "a", "messages": [{"role": "user", "content": "?"}], "group": ["g"]}, r"field 'group' is \['g'\], exp"),
    ({"text": "a", "task_id": "none"}, "task_id='none' is no problem of these"),
    ({"text": "a", "messages": [{"role": "user"}]}, "messages must be a list"),
    ({"texts": {"first": "a"}, "task_id": "none"}, "texts=.*, allowed are texts of all roles: first, second"),
])
def test_bad_lines_of_texts(tmp_path, row, complaint):
    path = tmp_path / "texts.jsonl"
    path.write_text(json.dumps({"text": "x", "messages": [{"role": "user", "content": "?"}]}) + "\n" + json.dumps(row))
    with pytest.raises(ValueError, match=rf"--texts=.*: 1 bad line\(s\)\n  line 2: .*{complaint}"):
        fused_texts.of_file(str(path), lesson(), "--texts")


def test_half_surrogates_of_texts_are_question_marks(tmp_path):
    """As tokenizers read them: the parts are places in bytes, which they do not have."""
    path = tmp_path / "texts.jsonl"
    path.write_text(json.dumps({"text": "a\ud800\u00e9", "messages": [{"role": "user", "content": "\ud800"}]}))
    (text,) = fused_texts.of_file(str(path), lesson(False), "--texts")
    assert text.text == "a?\u00e9" and [(part.start, part.end) for part in text.parts] == [(0, 4), (0, 4)]
    own = SimpleNamespace(agents=("team",), prompts=lambda item: {"team": [{"role": "user", "content": "?"}]})
    one = fused_texts.Lesson(None, own, True, ("first", "second"))
    read = dict.fromkeys(("first", "second"), [])
    (joint,) = one.of_answer(SimpleNamespace(grade=0), {"first": "\ud800", "second": "b"}, read)
    assert joint.text == "[first]\n?\n[second]\nb" and [joint.content(part) for part in joint.parts] == ["?", "b"]


def test_fields_of_a_line_that_are_null_are_not_given(tmp_path):
    path = tmp_path / "texts.jsonl"
    row = {"text": "x", "messages": [{"role": "user", "content": "?"}]}
    path.write_text(json.dumps(row | {"task_id": None, "texts": None, "group": None}) + "\n" + json.dumps(row))
    first, second = fused_texts.of_file(str(path), lesson(), "--texts")
    assert first == second and first.group == "texts"


def test_another_fusion_in_the_folder_is_refused(tmp_path):
    one = asked("team", tmp_path / "out")
    other = asked("team", tmp_path / "out", samples=8)
    for each in (other, one):  # nothing was made yet
        fusing._keep_about(tmp_path / "out" / "fusion", each, 3)
    (tmp_path / "out" / "fusion" / "texts.jsonl").write_text("")
    fusing._keep_about(tmp_path / "out" / "fusion", one, 3)
    with pytest.raises(ValueError, match="holds another fusion: samples was 2, is 8; give another --out"):
        fusing._keep_about(tmp_path / "out" / "fusion", other, 3)
    with pytest.raises(ValueError, match="holds another fusion: step was 3, is 4"):
        fusing._keep_about(tmp_path / "out" / "fusion", one, 4)


def test_texts_that_have_changed_are_refused(tmp_path, monkeypatch):
    """What was prepared is of the file as it was; a file that is gone is not read again."""
    monkeypatch.chdir(tmp_path)
    given, held = tmp_path / "given.jsonl", tmp_path / "held.jsonl"
    given.write_text("1\n")
    held.write_text("2\n")
    one, folder = asked("team", "out", texts="given.jsonl", held_out=["held.jsonl", "reference"]), tmp_path / "fusion"
    fusing._keep_about(folder, one, 3)
    (folder / "texts.jsonl").write_text("")
    fusing._keep_about(folder, one, 3)
    given.write_text("3\n")
    with pytest.raises(ValueError, match="holds another fusion: given.jsonl has changed; give another --out"):
        fusing._keep_about(folder, one, 3)
    given.unlink()
    fusing._keep_about(folder, one, 3)
    held.write_text("4\n")
    with pytest.raises(ValueError, match="holds another fusion: held.jsonl has changed; give another --out"):
        fusing._keep_about(folder, one, 3)
    about = json.loads((folder / "about.json").read_text())
    (folder / "about.json").write_text(json.dumps({name: about[name] for name in about if name != "files"}))
    fusing._keep_about(folder, one, 3)  # as earlier versions wrote it


def test_a_teacher_that_is_not_there(tmp_path):
    assert fused_teachers.parse("models/x:y") == fused_teachers.Other("models/x:y")
    folder = tmp_path / "team"
    folder.mkdir()
    (folder / "team.json").write_text(json.dumps({"format": 1, "agents": {"main": {}}, "step": 1}))
    with pytest.raises(ValueError, match="--teachers=.*:aux': .* has the agents main"):
        fused_teachers.parse(f"{folder}:aux")


def test_what_is_held_out_follows_from_the_prompts():
    rows = [texts.Text("s", ({"role": "user", "content": str(n % 50)},), f"{n}") for n in range(100)]
    learned, held = fused_texts.held_out(rows, 0.2)
    assert {row.messages[0]["content"] for row in learned}.isdisjoint({row.messages[0]["content"] for row in held})
    assert 8 <= len(held) <= 32 and fused_texts.held_out(rows[::-1], 0.2)[1] == held[::-1]
    assert fused_texts.held_out(rows, 0.0) == (rows, [])


class Flags(SimpleNamespace):
    """Parsed flags: those that are given, the others as by default."""

    def __init__(self, **given):
        self._given = given
        defaults = dict(workdir="x", out="y", texts="", samples=4, above=None, members=True, teachers=[], begin="",
                        held_out=[], hold=0.1)  # fmt: skip
        super().__init__(**defaults | given)

    def __getitem__(self, name):
        return SimpleNamespace(present=name in self._given)


@pytest.mark.parametrize("given, message", [
    (dict(members=False), "--nomembers without --teachers"),
    (dict(texts="a.jsonl", samples=3), "--samples and --above are of the team's own answers"),
    (dict(hold=0.2, held_out=["a.jsonl"]), "--hold and --held_out: give one of them"),
])
def test_flags_that_do_not_go_together(given, message):
    assert fuse._asked(Flags(), LATEST) == Asked("x", "y", LATEST)
    with pytest.raises((ValueError, app.UsageError), match=message):
        fuse._asked(Flags(**given), LATEST)
