"""A team that begins with another run's agents: what it answers, what it is compared with, how it goes on."""

import json
import shutil

import chex
import jax
import numpy as np
import pytest
import smoke_runs
import tiny
from game_runs import config_of, game_config
from update_cases import PLAIN, assert_close, sampled

from configs import coding
from experiments import export, replay, train
from jaxmarl_llm import checkpoint, sampling
from jaxmarl_llm.analysis.doctor import given
from jaxmarl_llm.config import validate
from jaxmarl_llm.factory import tasks, teams
from jaxmarl_llm.runs import begin
from jaxmarl_llm.runs.learner import Learner
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import pad_prompts
from jaxmarl_llm.update import LossConfig

pytestmark = pytest.mark.usefixtures("programs_shared")


@pytest.fixture(scope="module", params=["full", "adapters"])
def trained(request, tmp_path_factory):
    """A run on demonstrations, of copies or of adapters: its folder and config."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    config = game_config(**{"team.mode": request.param, "team.rank": 4, "train.steps": 12, "train.lr": 0.02})
    train.train(config, folder)
    return folder, config


def answers(config, team):
    """What every agent says to every item, decoded greedily: token ids (N, B, 2)."""
    (member,), task = team.members, tasks.build_task(config, None, "train")
    prompts = [
        [member.tokenizer.encode_chat(task.prompts(item)[agent]) for item in task.items]
        for agent in member.stack.agents
    ]
    padded = [pad_prompts(own, 128) for own in prompts]
    tokens_NBP, lengths_NB = (np.stack(arrays) for arrays in zip(*padded, strict=True))
    inputs = member.stack, member.base, member.trainable, tokens_NBP, lengths_NB, jax.random.key(0)
    drawn = sampling.generate(*inputs, samples=1, params=SamplingParams(2, temperature=0.0))
    return np.asarray(drawn.tokens_NRL)


def begun_config(trained, **fields):
    folder, config = trained
    same = {"team.mode": config.team.mode, "team.rank": 4, "team.begin": str(folder)}
    return config_of(**(same | fields))


def test_it_answers_as_the_other_run_ended_and_that_is_its_reference(trained, tmp_path):
    config = begun_config(trained, **{"train.kl_coef": 0.1})
    plain = teams.build_team(config)
    team = begin.begun(config, plain, tmp_path)
    ended, _ = checkpoint.restore_team(trained[0] / "checkpoints", "latest", plain)
    now = answers(config, team)
    np.testing.assert_array_equal(now, answers(config, ended))
    assert (now != answers(config, plain)).any()
    for member, other in zip(team.members, ended.members, strict=True):
        assert_close(member.reference, other.trainable, rtol=0)
        pairs = zip(*map(jax.tree.leaves, (member.reference, member.trainable)), strict=True)
        assert all(a is not b for a, b in pairs)  # the trained ones are donated
    (member,) = begin.begun(begun_config(trained), plain, tmp_path).members
    assert member.reference is None  # nothing reads it


def test_rewards_of_maporl_compare_with_what_the_team_began_with(trained, tmp_path):
    influence = {"train.system": "maporl", "maporl.value_model": True, "maporl.kl_reward": 0.1}
    config = begun_config(trained, **influence)
    plain = teams.build_team(trained[1])
    (member,) = begin.begun(config, plain, tmp_path).members
    ended, _ = checkpoint.restore_team(trained[0] / "checkpoints", "latest", plain)
    assert_close(member.reference, ended.members[0].trainable, rtol=0)
    config.maporl.kl_reward = 0.0
    (member,) = begin.begun(config, plain, tmp_path).members
    assert member.reference is None


def test_agents_are_renamed_and_copied(trained, tmp_path):
    config = begun_config(trained, **{"team.begin_map": ("second=first",)})
    team = begin.begun(config, teams.build_team(config), tmp_path)
    for leaf in jax.tree.leaves(team.members[0].trainable):
        np.testing.assert_array_equal(leaf[0], leaf[1])
    meta = checkpoint.read_meta(tmp_path / begin.KEPT, checkpoint.BEST)
    assert meta["names"] == {"first": "first", "second": "first"} and meta["of_step"] == 12


def test_the_doctor_looks_at_the_team_as_it_begins(trained):
    config = begun_config(trained)
    plain = teams.build_team(config)
    team, result = given.begun(config, plain)
    ended, _ = checkpoint.restore_team(trained[0] / "checkpoints", "latest", plain)
    np.testing.assert_array_equal(answers(config, team), answers(config, ended))
    assert result == ("begin", "ok", f"{trained[0]}: first, second after 12 iterations")


def test_what_a_refused_start_has_copied_is_not_begun_from(trained, tmp_path):
    """The first start ended before it had a config.json; the next one names another begin."""
    config = begun_config(trained)
    first = begin.begun(config, teams.build_team(config), tmp_path)
    config = begun_config(trained, **{"team.begin_map": ("second=first",)})
    (member,) = begin.begun(config, teams.build_team(config), tmp_path).members
    pairs = zip(*map(jax.tree.leaves, (member.trainable, first.members[0].trainable)), strict=True)
    assert any((new[1] != old[1]).any() for new, old in pairs)
    (tmp_path / "config.json").write_text("{}")  # from here on the copy is what the run began with
    again = begin.begun(begun_config(trained), teams.build_team(config), tmp_path).members[0]
    for new, old in zip(*map(jax.tree.leaves, (again.trainable, member.trainable)), strict=True):
        np.testing.assert_array_equal(new, old)


def test_a_run_goes_on_without_the_folder_that_it_began_from(trained, tmp_path, monkeypatch):
    source, once, parts = (tmp_path / name for name in ("source", "once", "parts"))
    shutil.copytree(trained[0], source)
    logged = {"log.transcripts_every": 1}
    config = begun_config(trained, **{"train.kl_coef": 0.1, "team.begin": str(source)} | logged)
    train.train(config, once)
    learn, calls = Learner.update, []

    def failing(self, credit):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("out of luck")
        return learn(self, credit)

    monkeypatch.setattr(Learner, "update", failing)
    with pytest.raises(RuntimeError, match="out of luck"):
        train.train(config, parts)
    shutil.rmtree(source)
    train.train(config, parts)
    rows = smoke_runs.rows(once)
    learned = [row for row in rows if "first/kl" in row]
    assert learned[0]["first/kl"] == pytest.approx(0, abs=1e-6) and learned[-1]["first/kl"] > 1e-5
    assert smoke_runs.rows(parts) == rows and smoke_runs.summary(parts) == smoke_runs.summary(once)
    left, right = (smoke_runs.saved_state(folder, config) for folder in (parts, once))
    chex.assert_trees_all_equal(left, right)
    summary = json.loads((once / "summary.json").read_text())
    assert {"warm", "after"} <= set(summary)
    assert replay.replay(once, tell=lambda line: None).same
    of_source = json.loads((trained[0] / "summary.json").read_text())
    assert summary["warm"]["return_greedy"] == of_source["after"]["return_greedy"]


def test_the_kl_term_is_towards_the_parameters_of_the_reference():
    """Against log-probabilities of full forward passes, k2: half the squared difference."""
    batch, lora, begun = sampled(PLAIN), tiny.lora(), tiny.lora(noise=0.3)
    config = LossConfig(PLAIN, kl_coef=0.5, kl_kind="k2")
    packed = config.pack(batch)
    grads = jax.jit(tiny.gradient.gradients, static_argnums=(0, 1))
    _, (_, kl, _) = grads(tiny.stack(), config, tiny.params(), lora, packed, begun)
    _, (_, none, _) = grads(tiny.stack(), config, tiny.params(), lora, packed, lora)
    np.testing.assert_allclose(none.sum, 0, atol=1e-6)
    _, (_, to_base, _) = grads(tiny.stack(), config, tiny.params(), lora, packed)
    for n in range(2):
        expected = [0.0, 0.0]
        for r in range(6):
            completion = batch.tokens_NRL[n, r, : batch.lengths_NR[n, r]]
            prompt = ([7, 8, 9], [1, 2, 30, 4, 5, 6])[r // 3]
            at = np.arange(len(completion)), completion
            log_pi, log_ref, log_base = (
                tiny.np_log_probs(
                    tiny.completion_logits(variables, prompt, completion),
                    SamplingParams(1, PLAIN.temperature),
                )[at]
                for variables in (tiny.own(lora, n), tiny.own(begun, n), tiny.params())
            )
            expected[0] += 0.5 * ((log_pi - log_ref) ** 2).sum()
            expected[1] += 0.5 * ((log_pi - log_base) ** 2).sum()
        np.testing.assert_allclose(kl.sum[n], expected[0], rtol=1e-3)
        np.testing.assert_allclose(to_base.sum[n], expected[1], rtol=1e-3)
    assert abs(kl.sum[0] - to_base.sum[0]) > 1e-3


def test_a_team_that_was_exported_is_begun_from_as_its_run(trained, tmp_path):
    folder, _ = trained
    exported = tmp_path / "team"
    assert export.export_team(folder, exported, "latest") == 12
    renamed = {"team.begin_map": ("second=first",)}
    config = begun_config(trained, **{"team.begin": str(exported)} | renamed)
    team = begin.begun(config, teams.build_team(config), tmp_path / "of_team")
    wanted = begin.begun(begun_config(trained, **renamed), teams.build_team(config), tmp_path / "of_run")
    chex.assert_trees_all_equal(team.members[0].trainable, wanted.members[0].trainable)
    config = begun_config(trained, **{"team.begin": str(exported), "team.begin_map": ("second=third",)})
    text = refused(config, tmp_path / "refused")
    assert text.endswith(f"{exported}: the team has no agent 'third', only ['first', 'second']")


def refused(config, folder):
    with pytest.raises(ValueError) as caught:
        begin.begun(config, teams.build_team(config), folder)
    return str(caught.value)


def test_what_does_not_fit_is_named(trained, tmp_path):
    folder, mode = trained[0], trained[1].team.mode
    where = f"team.begin={str(folder)!r}: "
    other = "full" if mode == "adapters" else "adapters"
    assert f"first.mode: saved {mode!r}, now {other!r}" in refused(
        begun_config(trained, **{"team.mode": other}), tmp_path
    )
    text = refused(begun_config(trained, **{"team.begin_map": ("second=third",)}), tmp_path)
    assert text.startswith(where) and text.endswith(
        "the checkpoint has no agent 'third', only ['first', 'second']"
    )
    text = refused(begun_config(trained, **{"team.begin_step": "5"}), tmp_path)
    assert text.startswith(where) and "no checkpoint 5 in" in text
    text = refused(begun_config(trained, **{"team.begin": str(tmp_path / "gone")}), tmp_path)
    assert text.endswith("the folder holds no run, config.json is missing")
    if mode == "adapters":
        text = refused(begun_config(trained, **{"team.rank": 3}), tmp_path)
        assert "first.rank: saved 4, now 3" in text
        text = refused(begun_config(trained, seed=1), tmp_path)
        assert text.endswith("the base 'game-tiny' is drawn from the seed; seed: saved 0, now 1")
    assert not (tmp_path / begin.KEPT / "best" / "0").exists()


@pytest.mark.parametrize("fields, sentence", [
    ({"team.begin_map": ("aux=main",)}, "team.begin_map=('aux=main',): team.begin is '', allowed is ()"),
    ({"team.begin_step": "best"}, "team.begin_step='best': team.begin is '', allowed is 'latest'"),
    ({"team.begin": "x", "team.begin_step": "last"}, "team.begin_step='last': allowed are latest, best"),
    ({"team.begin": "x", "team.begin_map": ("aux",)}, "team.begin_map=('aux',): allowed are pairs such as"),
    ({"team.begin": "x", "team.begin_map": ("b=aux",)}, "team.begin_map=('b=aux',): before '=' allowed"),
    ({"team.begin": "x", "team.mode": "frozen"}, "team.begin='x': team.mode='frozen' has no"),
    ({"team.begin": "x", "warm_up.steps": 2}, "team.begin='x': with warm_up.steps=2 the warm-up"),
    ({"warm_up.protocol": "tree"}, "warm_up.protocol='tree': warm_up.steps is 0, allowed is ''"),
    ({"warm_up.folder": "x"}, "warm_up.folder='x': warm_up.steps is 0, allowed is ''"),
])  # fmt: skip
def test_fields_that_contradict(fields, sentence):
    config = coding.get_config()
    config.update_from_flattened_dict(fields)
    with pytest.raises(ValueError) as caught:
        validate(config)
    assert any(line.strip().startswith(sentence) for line in str(caught.value).split("\n")), caught.value
