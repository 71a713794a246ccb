"""Every method trains for real, a tiny random team through `train.train`: what is said, judged, learned."""

import json

import expert_server
import numpy as np
import pytest
import smoke_runs
from method_runs import ALONE, CHEAT, EASY, HELPER, RIGHT, SMALL, TEXTS, TWO_TURNS, scripted, trained, watched

from configs import coding, writing
from experiments import train
from jaxmarl_llm import sampling, update
from jaxmarl_llm.runs import training_loop
from jaxmarl_llm.tasks.centralised import CentralisedTask
from jaxmarl_llm.tasks.coding.task import CodingTask

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("programs_shared")]  # the model for its tokenizer
PROGRAMS = (sampling.generate, update.train_step)
LONGER = {"task.reward": "", "sampling.max_new_tokens": 24, "train.group": 4}  # shorter texts earn nothing


@pytest.fixture
def seen(monkeypatch):
    return watched(monkeypatch)


@pytest.fixture
def no_evaluation(monkeypatch):
    monkeypatch.setattr(training_loop, "finish", lambda run: run.save(run.schedule.done))


def test_writing_by_two(tmp_path, seen):
    row, actions = trained(seen, tmp_path, TEXTS | LONGER | {"train.joint_mode": "cross"}, writing)
    assert seen.called[:2] == ["generate", "train_step"]
    # 2 posts: 2 agents with 4 samples each, every pair is judged
    assert len(seen.forests[0].turns) == 2 * 2 * 4 and len(actions) == 2 * 4**2
    assert all(set(action.agents) == {"short", "long"} for action in actions)
    assert row["train/return"] == pytest.approx(np.mean([a.total for a in actions]) / 3 * 100)
    assert {"train/structure", "train/style", "train/coherence"} <= set(row)
    assert {"test/return", "test/length/short", "test/length/long"} <= set(smoke_runs.rows(tmp_path)[-1])


@pytest.mark.parametrize("protocol, rounds", [("pipeline", 1), ("discussion", 2)])
def test_agents_that_hear_each_other(tmp_path, seen, protocol, rounds):
    row, actions = trained(seen, tmp_path, {"train.protocol": protocol})
    # aux, then main; or both, then both again. All that is said is learned, of a discussion both rounds.
    assert seen.called[:3] == ["generate", "generate", "train_step"]
    assert len(seen.forests[0].turns) == rounds * 2 * 2 * 2
    assert [(a.turn, a.follows) for a in actions] == [(0, None)] * 4  # 2 problems, 2 samples
    turns_by_id = {t.id: t for t in seen.forests[0].turns}
    for action, joint in zip(actions, seen.forests[0].joints, strict=True):
        heard = joint.heard or joint.turns
        assert f"aux wrote:\n{turns_by_id[heard[0]].text.strip()}" in action.agents["main"].prompt
        assert ("main wrote:" in action.agents["aux"].prompt) == (protocol == "discussion")
    assert row["train/return"] == pytest.approx(np.mean([action.total for action in actions]))
    answer = smoke_runs.rows(tmp_path)[-1]
    # every completion of an evaluation's answer counts, 8 tokens at most
    assert rounds * 2 <= answer["test/tokens/answer"] <= rounds * 2 * 8


def test_coding_by_one(tmp_path, seen, monkeypatch):
    problems = scripted(monkeypatch, tmp_path, CodingTask, {"main": (RIGHT, CHEAT)})
    row, actions = trained(seen, tmp_path / "run", problems | {"team.agents": ("main",)})
    assert seen.called[:2] == ["generate", "train_step"] and len(seen.forests[0].turns) == 2 * 2
    # structure 0.6, syntax 0.5, and 4 or 2 of 4 tests: 2.1 of 2.1, or 1.6
    assert [a.total for a in actions] == pytest.approx([2.1, 1.6] * 2)
    assert [a.agents["main"].advantage for a in actions] == pytest.approx([0.25, -0.25] * 2)
    assert row["train/tests"] == 75 and row["train/return"] == pytest.approx((100 + 160 / 2.1) / 2)
    # The sample is right, the greedy answer is the second.
    actual = smoke_runs.rows(tmp_path / "run")[-1]
    assert (actual["test/return"], actual["test_greedy/tests"]) == pytest.approx((100, 50))


def test_coding_centralised(tmp_path, seen, monkeypatch):
    both = [f"[aux]\n{HELPER}\n[main]\n{main}" for main in (RIGHT, CHEAT)]
    problems = scripted(monkeypatch, tmp_path, CentralisedTask, {"team": both})
    row, actions = trained(seen, tmp_path / "run", problems | ALONE)
    assert len(seen.forests[0].turns) == 2 * 2 and all(set(a.agents) == {"team"} for a in actions)
    assert "[main]" in actions[0].agents["team"].prompt
    # structure 1, syntax 0.5, tests 1 or 0.5; main does not call aux
    assert [a.total for a in actions] == pytest.approx([2.5, 2.0] * 2)
    assert row["train/return"] == pytest.approx(225 / 4) and row["train/structure"] == 100
    assert smoke_runs.rows(tmp_path / "run")[-1]["test/return"] == pytest.approx(250 / 4)


def test_writing_centralised(tmp_path, seen):
    row, actions = trained(seen, tmp_path, TEXTS | ALONE, writing)
    assert len(seen.forests[0].turns) == len(actions) == 2 * 2
    assert "detailed summary" in actions[0].agents["team"].prompt  # of the second role
    assert row["train/team"] == row["train/return"] == pytest.approx(np.mean([a.total for a in actions]))
    assert "test/length/team" in smoke_runs.rows(tmp_path)[-1]


def test_the_gap_of_answers_made_for_the_tests(tmp_path, seen, monkeypatch):
    texts = {"aux": (HELPER, HELPER), "main": (RIGHT, CHEAT)}
    problems = scripted(monkeypatch, tmp_path, CodingTask, texts)
    row, actions = trained(seen, tmp_path / "run", problems | LONGER | {"task.held_back": 0.5})
    # Of four tests the 2nd and 4th are held back: the cheat passes the other two, and earns as much.
    assert [a.parts["tests_held_back"] for a in actions] == [1, 0, 1, 0] * 2
    assert (row["train/tests"], row["train/hack_gap"]) == (100, (0 + 100) / 2)
    assert row["main/zero_signal"] == 1
    actual = smoke_runs.rows(tmp_path / "run")[-1]
    assert (actual["test/hack_gap"], actual["test_greedy/hack_gap"]) == (0, 100)


def test_two_turns_of_all_pairs_where_one_problem_ends_early(tmp_path, seen, no_evaluation):
    fields = {"task.feedback": "level_feedback", "train.joint_mode": "cross", "train.stop_above": 999.0}
    row, actions = trained(seen, tmp_path, TWO_TURNS | fields | {"train.turn_weights": (1.2, 0.8)})
    assert seen.called == ["generate", "generate", "train_step"]
    # 2 problems, 2 * 2 pairs; those of the easy one have 1000 and more and end, the other's 4 go on
    hard = [i for i, action in enumerate(actions[:8]) if action.item != EASY]
    assert len(hard) == 4
    places = [(0, None)] * 8 + [(1, i) for i in hard for _ in range(4)]
    assert [(a.turn, a.follows) for a in actions] == places
    for action in actions[8:]:
        for agent, now in action.agents.items():
            assert f"Revise {agent if agent == 'aux' else ''}" in now.prompt and "missing" in now.prompt
            assert actions[action.follows].agents[agent].completion.strip() in now.prompt
    totals = [action.total for action in actions]
    easy = [totals[i] for i in range(8) if i not in hard]
    # Four that ended, of the easy problem, and 16 of the second turn: both problems count alike.
    assert row["train/return"] == pytest.approx((np.mean(totals[8:]) + np.mean(easy)) / 2)
    assert row["train/turn1/return"] == pytest.approx(np.mean(totals[:8]))
    assert row["train/turn2/return"] == pytest.approx(np.mean(totals[8:]))


def test_three_turns_in_two_minibatches(tmp_path, seen, no_evaluation):
    fields = {"train.turns": 3, "train.discount": 0.5, "train.minibatches": 2, "train.clip": 0.2}
    fields["train.prompts_per_microbatch"] = 1
    row, actions = trained(seen, tmp_path, TWO_TURNS | fields)
    assert seen.called == ["generate"] * 3 + ["train_step"] * 2
    # A minibatch has one problem: 1 node with 2 samples, then 2 nodes, then 4.
    assert [batch.lengths_NR.shape for _, batch in seen.batches] == [(2, 2), (2, 4), (2, 8)] * 2
    places = [(0, None)] * 4 + [(1, i // 2) for i in range(8)] + [(2, 4 + i // 2) for i in range(16)]
    assert [(a.turn, a.follows) for a in actions] == places
    assert row["train/return"] == row["train/turn3/return"] != row["train/turn2/return"]


def test_two_passes_over_two_minibatches(tmp_path, seen, no_evaluation):
    fields = {"train.minibatches": 2, "train.epochs": 2, "train.clip": 0.2, "train.prompts_per_microbatch": 1}
    config = coding.get_config("smoke")
    config.update_from_flattened_dict(SMALL | fields)
    train.train(config, tmp_path)
    (row, *_) = smoke_runs.rows(tmp_path)
    assert seen.called == ["generate"] + ["train_step"] * 4
    first, second = seen.batches[:2], seen.batches[2:]
    for (_, before), (_, after) in zip(first, second, strict=True):  # the same completions in both passes
        np.testing.assert_array_equal(before.lengths_NR, after.lengths_NR)
    assert abs(row["aux/ratio0"] - 1) < 1e-4 and row["aux/approx_kl"] > 1e-8  # the second pass learns off policy


def test_a_chain_with_an_expert_keeps_its_key_and_is_replayed_without(tmp_path, seen, monkeypatch):
    key = "k3y-that-nobody-may-see"
    monkeypatch.setenv("WISE_KEY", key)
    edits = json.dumps({"aux": f"def aux(x):\n    return x  # {key}", "main": ""})
    fields = TWO_TURNS | {
        "task.feedback": "expert_edits", "expert.model": "wise", "expert.key_variable": "WISE_KEY",
        "expert.retries": 0, "train.hand_on": "best", "train.discount": 0.5,
    }  # fmt: skip
    with expert_server.Server(rule=lambda asked: expert_server.Say(edits)) as server:
        fields["expert.base_url"] = f"{server.url}/v1"
        row, actions = trained(seen, tmp_path / "run", fields)
        assert {headers["authorization"] for _, headers, _ in server.seen} == {f"Bearer {key}"}
    best = [i + int(actions[i].total < actions[i + 1].total) for i in (0, 2)]  # of the two answers to each
    assert [(a.turn, a.follows) for a in actions] == [(0, None)] * 4 + [(1, i) for i in best for _ in (0, 1)]
    assert "def aux(x):" in actions[4].agents["aux"].prompt
    files = smoke_runs.files(tmp_path / "run")
    assert any(name.startswith("expert/") for name in files)
    assert not [name for name, content in files.items() if key.encode() in content]

    monkeypatch.delenv("WISE_KEY")
    seen.forests.clear(), seen.batches.clear()
    offline = {"expert.cache": str(tmp_path / "run" / "expert"), "expert.offline": True}
    trained(seen, tmp_path / "again", fields | offline)

    def rows_without_expert(folder):
        rows = smoke_runs.rows(folder)
        return [{k: v for k, v in row.items() if not k.startswith("expert/")} for row in rows]

    assert rows_without_expert(tmp_path / "again") == rows_without_expert(tmp_path / "run")
    spent = smoke_runs.rows(tmp_path / "again", "expert/")[0]
    assert spent["expert/requests"] == 0 and spent["expert/cached"] == 2


def test_other_problems_every_time_are_few_programs(tmp_path, seen, no_evaluation):
    c = coding.get_config("smoke")
    fields = {"sampling.max_prompt_tokens": 768, "sampling.long_prompts": "error"}
    fields |= {"task.source": "starter[:8]", "train.group": 4, "train.steps": 4}
    c.update_from_flattened_dict(SMALL | TWO_TURNS | fields)
    before = [program._cache_size() for program in PROGRAMS]
    train.train(c, tmp_path)
    made = [program._cache_size() - n for program, n in zip(PROGRAMS, before, strict=True)]
    assert len({item.task_id for forest in seen.forests for item in forest.items}) == 8
    assert seen.called == ["generate", "generate", "train_step"] * 4  # depth * 2 would be four
    # All share their instructions (320 tokens of main's); what is left of a first prompt is padded to 64. The
    # second adds a reply of 8 tokens, read again as a few more or less, and the feedback: two steps of 32 at
    # most. So 1 + 2 samplers and 2 updates at most, not 8 and 4.
    assert made[0] <= 1 + 2 and made[1] <= 2, made
