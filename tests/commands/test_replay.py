"""experiments/replay.py, replaying.py: an iteration of a run comes out again; what was changed is found."""

import dataclasses
import json
import pathlib
import shutil
import textwrap

import command_flags
import pytest
import smoke_runs
from method_runs import SMALL, TWO_TURNS

from configs import coding
from experiments import replay, train
from jaxmarl_llm import transcripts, update
from jaxmarl_llm.analysis.audit import replaying
from jaxmarl_llm.runs import training_loop
from jaxmarl_llm.transcripts import AgentRecord, JointAction

RUNS = {
    "plain": {
        "save.every": 2, "train.steps": 4, "train.minibatches": 2, "train.prompts_per_microbatch": 1,
        "train.clip": 0.2,
    },
    # A checkpoint after every third: iterations 1, 2, 4 and 5 begin before the update of the one before.
    "critic": {
        "train.system": "iac", "critic.lr": 0.1, "save.every": 3, "train.steps": 6,
        "train.overlap": True, "train.importance_cap": 2.0,
    },
}  # fmt: skip


def speech(**changes):
    fields = dict(prompt="ask", completion="yes", prompt_length=3, completion_length=2, finish_reason="stop")
    return AgentRecord(**fields | {"sample": 0, "advantage": 0.5} | changes)


def action(samples=(0, 0), total=2.0, **changes):
    agents = {name: speech(sample=g) for name, g in zip(("aux", "main"), samples, strict=True)}
    return dataclasses.replace(JointAction(3, "item", agents, {"tests": 1.0}, total, "pass"), **changes)


def counts(actual):
    return {part.kind: (part.agree, part.of) for part in actual if part.first is not None}


def test_completions_that_joint_answers_share_are_compared_once():
    cross = [action((g, h)) for g in range(2) for h in range(2)] * 2  # two nodes
    actual = replaying.compare(cross, cross, per_node=4, cross=True)
    assert {part.kind: part.of for part in actual} == {  # of completions: 2 nodes, 2 agents, 2 samples
        "items": 8, "rewards": 8, "verdicts": 8,
        "prompts": 8, "texts": 8, "token lengths": 8, "advantages": 8,
    }  # fmt: skip
    assert counts(actual) == {}
    # The last answer has both agents' second samples, which other answers have too.
    other = [*cross[:7], action(agents={"aux": speech(sample=1), "main": speech(sample=1, completion="a")})]
    texts = replaying.compare(cross, other, 4, True)[4]
    assert (texts.agree, texts.of) == (7, 8)
    assert texts.first.where == "joint answer 7 (item item, turn 0), main"
    (texts,) = [p for p in replaying.compare(cross[:4], cross[:4], 1, False) if p.kind == "texts"]
    assert texts.of == 8  # without sharing each answer has two of its own


def test_every_kind_of_difference_is_told_apart():
    old, new = [action(), action()], [action(), action()]
    for kind, change in {
        "items": {"item": "other"}, "rewards": {"parts": {"tests": 0.0}}, "verdicts": {"failures": ("x",)},
    }.items():
        assert counts(replaying.compare(old, [action(), action(**change)], 1, False)) == {kind: (1, 2)}
    for kind, change in {
        "prompts": {"prompt": "tell"}, "texts": {"completion": "no"},
        "token lengths": {"finish_reason": "length"}, "advantages": {"advantage": None},
        "remarks": {"remark": speech(prompt="why")},  # which the other side lacks
    }.items():  # fmt: skip
        new[1] = action(agents={"aux": speech(), "main": speech(**change)})
        assert counts(replaying.compare(old, new, 1, False)) == {kind: (3, 4)}
    texts = replaying.compare(old, [action(), action(agents={"aux": speech(completion="a")})], 1, False)[4]
    assert texts.first == replaying.Difference("joint answer 1 (item item, turn 0), aux", "yes", "a")
    # An answer that only one side has: it and its completions differ in everything.
    actual = replaying.compare(old, old[:1], 1, False)
    assert set(counts(actual).values()) == {(1, 2), (2, 4)} and len(counts(actual)) == 7
    heard = action(heard=(("aux", speech(completion="first")),))
    assert counts(replaying.compare([heard], [action()], 1, False)) == {"heard": (0, 1)}
    # Transcripts of earlier versions do not hold it: nothing is compared.
    assert counts(replaying.compare([action()], [heard], 1, False)) == {}


def test_numbers_may_differ_as_much_as_is_allowed():
    old, new = [action(total=2.0)], [action(total=2.002)]
    assert counts(replaying.compare(old, new, 1, False, tolerance=0.0011)) == {}
    assert counts(replaying.compare(old, new, 1, False, tolerance=0.0009)) == {"rewards": (0, 1)}
    assert counts(replaying.compare(old, [action(total=None)], 1, False, tolerance=1.0)) == {
        "rewards": (0, 1)}  # fmt: skip


def test_metrics_of_clocks_are_left_out():
    row = {"step": 3, "train/return": 1.0, "aux/loss": None, "seconds": 5.0, "seconds/update": 1.0}
    again = {"train/return": 1.0, "aux/loss": float("nan"), "seconds": 7.0, "tokens_per_s": 4.0}
    assert replaying.compare_metrics(row, again) == replaying.Agreement("metrics", 2, 2, None)
    actual = replaying.compare_metrics(row, again | {"main/loss": 0.0, "train/return": 1.5})
    assert (actual.agree, actual.of) == (1, 3)
    assert actual.first == replaying.Difference("train/return", 1.0, 1.5)


def test_metrics_of_servers_and_of_several_processes_are_left_out_where_they_are_of_clocks():
    of_servers = {"engine/gap": 0.25, "engine/publish_seconds": 0.5, "engine/repeated": 0.0}
    by_process = {"process0/seconds/sample": 1.0, "process1/cpu_seconds": 2.0, "process11/seconds/waiting": 3.0}
    again = {"engine/gap": 0.25, "engine/publish_seconds": 0.75, "engine/repeated": 2.0}
    assert replaying.compare_metrics(of_servers | by_process, again) == replaying.Agreement("metrics", 1, 1, None)
    actual = replaying.compare_metrics({"process/loss": 1.0, "process0/loss": 1.0}, {})
    assert (actual.agree, actual.of) == (0, 2)  # no clock's


@pytest.fixture(scope="module")
def runs(tmp_path_factory, programs_shared):
    """Finished runs by name, each made when it is first asked for; programs that are alike compile once."""
    made, make, finished = {}, update.make_optimizer, {}

    def run(name):
        if name not in finished:
            config = coding.get_config("smoke")
            config.update_from_flattened_dict(SMALL | RUNS[name])
            finished[name] = tmp_path_factory.mktemp(name)
            train.train(config, finished[name])
        return finished[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(update, "make_optimizer", lambda **s: made.setdefault(tuple(s.items()), make(**s)))
        patch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))
        yield run


def replayed(folder, step=None):
    lines = []
    return replay.replay(folder, step, tell=lines.append), lines


@pytest.mark.model
@pytest.mark.parametrize("name, step, start", [
    ("plain", None, 2), ("plain", 2, 2), ("plain", 1, 0),
    ("critic", 5, 3), ("critic", 3, 3), ("critic", 1, 0),
])  # fmt: skip
def test_an_iteration_comes_out_again(runs, name, step, start):
    folder = runs(name)
    before = smoke_runs.files(folder)
    actual, lines = replayed(folder, step)
    step = 3 if step is None else step
    assert (actual.step, actual.start, actual.same) == (step, start, True), counts(actual.parts)
    source = f"the checkpoint after {start} iterations" if start else "the team as the run began"
    again = f"{step - start} before it are trained again"
    assert lines == [f"iteration {step} of {folder}: from {source}; {again}"]
    # 2 problems, 2 samples, 2 agents
    sizes = {part.kind: part.of for part in actual.parts}
    assert sizes.pop("metrics") > 20 and sizes["items"] == 4 and sizes["texts"] == 8
    assert smoke_runs.files(folder) == before  # nothing was written


@pytest.mark.model
def test_a_checkpoint_without_its_critics_is_none_to_begin_at(runs, tmp_path):
    folder = shutil.copytree(runs("critic"), tmp_path / "run")
    assert replay.begin_at(folder, 5) == 3
    shutil.rmtree(folder / "system" / "3")
    assert replay.begin_at(folder, 5) == 0


def test_all_that_a_system_has_kept_is_there_again(tmp_path):
    workdir, kept = tmp_path / "run", ["reference.json", "positives/000001.jsonl"]
    kept += [f"{name}/000002.jsonl" for name in ("dialogues", "experience", "lessons", "pairs", "peer_answers")]
    kept += ["experience/best/000002.jsonl", "models/pairs/000001.jsonl", "router/000002.msgpack"]
    states = ["system/{}/state", "system/verifier/{}/state", "checkpoints/{}/state"]
    for place in [*(f"system/{name}" for name in kept), *(s.format(n) for s in states for n in (2, 4))]:
        (workdir / place).parent.mkdir(parents=True, exist_ok=True)
        (workdir / place).write_text(place)
    with replay.copied(workdir, 2) as folder:
        assert sorted(smoke_runs.files(folder / "system")) == sorted(kept)
        assert all((folder / s.format(2)).read_text() == s.format(2) for s in states)
        assert not any((folder / s.format(4)).exists() for s in states)
        (folder / "system" / "experience" / "000002.jsonl").write_text("later")
    assert (workdir / "system" / "experience" / "000002.jsonl").read_text() == "system/experience/000002.jsonl"


@pytest.fixture
def changed(runs, tmp_path):
    """A copy of a run in whose iteration 0 a text, a reward and a number were changed by hand."""
    folder = tmp_path / "run"
    shutil.copytree(runs("plain"), folder)
    actions = transcripts.read(folder, 0)
    agents = actions[2].agents
    agents["main"] = dataclasses.replace(agents["main"], completion="better\ntext")
    actions[3] = dataclasses.replace(actions[3], total=1e6)
    transcripts.TranscriptWriter(folder).write(0, actions)
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["aux/grad_norm"] += 1e-6
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def command(monkeypatch, *arguments):
    own = command_flags.defined_apart(monkeypatch)
    replay.define_flags()
    own(["replay", *arguments])
    return replay.main(["replay"])


@pytest.mark.model
def test_the_command_finds_what_was_changed(runs, changed, monkeypatch, capsys):
    completion = transcripts.read(runs("plain"), 0)[2].agents["main"].completion
    assert command(monkeypatch, f"--workdir={changed}", "--step=0") == 1
    output = capsys.readouterr().out
    lines = [line.split() for line in output.splitlines()]
    assert ["texts", "7", "8", "differ"] in lines and ["rewards", "3", "4", "differ"] in lines
    assert ["verdicts", "4", "4"] in lines and ["advantages", "8", "8"] in lines
    item = transcripts.read(changed, 0)[2].item
    assert f"texts, first difference: joint answer 2 (item {item}, turn 0), main\n" in output
    sides = [f"  {side}:\n{textwrap.indent(text, '    | ', lambda line: True)}\n" for side, text in
             (("recorded", "better\ntext"), ("again", completion))]
    assert "".join(sides) in output
    assert "metrics, first difference: aux/grad_norm" in output
    assert output.endswith("\niteration 0 differs\n")


@pytest.mark.model
def test_the_command_says_that_all_is_well(runs, monkeypatch, capsys):
    assert command(monkeypatch, f"--workdir={runs('plain')}", "--step=0") == 0
    assert capsys.readouterr().out.endswith("\niteration 0 is the same again\n")


@pytest.mark.parametrize("cache, wanted", [("", "runs/x/expert"), ("advice", "advice")])
def test_an_expert_is_not_asked_again(cache, wanted):
    config = coding.get_config("smoke")
    config.update_from_flattened_dict(TWO_TURNS | {
        "task.feedback": "expert_edits", "expert.model": "wise", "expert.cache": cache,
    })  # fmt: skip
    again = replay.settings(config, pathlib.Path("runs/x"))
    assert again.expert.offline and again.expert.cache == wanted
    assert not config.expert.offline  # the caller's stays as it is


@pytest.mark.model
def test_what_cannot_be_done_again_is_refused(runs, tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        replay.replay(tmp_path)
    with pytest.raises(ValueError, match="no transcript of step 9 in .*4 steps from 0 to 3"):
        replay.replay(runs("plain"), 9)
    with pytest.raises(ValueError, match="--tolerance=-1: allowed are 0 and more"):
        replay.replay(runs("plain"), 0, tolerance=-1)


def test_a_folder_without_a_run_is_one_sentence(tmp_path, compiled):
    done = smoke_runs.run(smoke_runs.command("replay", f"--workdir={tmp_path}"), compiled)
    assert done.returncode == 1
    assert done.stderr == f"error: {tmp_path} holds no run: config.json is missing\n"


@pytest.mark.model
def test_another_machine_is_named(runs, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(runs("plain"), folder)
    config = replay.run_folder.load_run(folder)
    assert replay.notes(folder, config) == []
    saved = json.loads((folder / "config.json").read_text())
    saved["mesh"]["data"] = 2
    (folder / "config.json").write_text(json.dumps(saved))
    (note,) = replay.notes(folder, config)
    assert note.startswith("mesh.data: the run had 2, here is 1: sums may differ")
