"""doctor/updates.py, perturb.py and choices.py: ok on the real loss, and failing where it is broken."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest
from scripted_team import CountingTask, tiny_team

from jaxmarl_llm import losses, rollout, team
from jaxmarl_llm.analysis.doctor import choices, perturb, updates
from jaxmarl_llm.forest import Forest
from jaxmarl_llm.policy import prefill
from jaxmarl_llm.protocols import Simultaneous
from jaxmarl_llm.rollout.scoring import TaskScorer
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.update import LossConfig, agent_loss

STATED = SamplingParams(8, temperature=1.3, top_k=40, top_p=0.95)
PLAIN = SamplingParams(8, temperature=1.2)
LOSS = LossConfig(PLAIN, tokens_per_microbatch=64)
TEAM = tiny_team()
TRAINABLES = [member.trainable for member in TEAM.members]


def feedback(answers):
    return [{"aux": "w5 w6", "main": "w7"} for _ in answers]


@functools.cache
def spoken(params: SamplingParams = PLAIN, turns: int = 1) -> Forest:
    """Two problems, two answers each; in a second turn each of them is answered again, after feedback."""
    task = CountingTask((3, 9))
    protocol = Simultaneous(task.prompts, 2, turns, feedback)
    scorer = TaskScorer.of_team(task, TEAM, "aligned")
    options = dict(params=params, max_prompt_tokens=64)
    return rollout.run(protocol, TEAM, TRAINABLES, scorer, [0, 1], jax.random.key(5), **options)


@functools.cache
def examined(config: LossConfig = LOSS, turns: int = 1):
    return updates.of_forest(TEAM, TRAINABLES, config, spoken(config.sampling, turns))


def in_turns():
    """Two turns, drawn and trained with temperature and truncation."""
    return examined(dataclasses.replace(LOSS, sampling=STATED), 2)


@pytest.fixture
def broken(monkeypatch):
    """Replace a function that the loss calls, and examine again; other tests see nothing of it."""
    def examine(module, name, function):
        monkeypatch.setattr(module, name, function)
        perturb._measure.clear_cache()
        return updates.of_forest(TEAM, TRAINABLES, LOSS, spoken())

    yield examine
    monkeypatch.undo()
    perturb._measure.clear_cache()


@pytest.mark.slow
def test_sampler_and_loss_agree():
    name, status, sentence = updates.parity(in_turns())
    assert (name, status) == ("log-prob parity", "ok")
    for agent, seen in in_turns().items():
        deviation = float(seen.diagnostics.values()["ratio_max_deviation"])
        assert 0 < deviation < 1e-4 and f"{agent} {deviation:.1e}" in sentence


@pytest.mark.slow
def test_what_was_drawn_is_trained_and_nothing_else():
    forest = spoken(STATED, 2)
    result = updates.trained_tokens(in_turns())
    assert result.status == "ok", result
    assert {turn.turn for turn in forest.turns} == {0, 1}
    for agent, seen in in_turns().items():
        own = [turn for turn in forest.turns if turn.agent == agent]
        drawn = sum(len(turn.completion) for turn in own)
        sure = sum(int((turn.logprobs > -1e-3).sum()) for turn in own)  # may have no gradient
        assert drawn - sure <= seen.trained.tokens[0] == seen.trained.tokens[1] <= drawn
        ended = sum(turn.finished for turn in own)
        assert ended > 0 and 0 < seen.trained.endings[0] == seen.trained.endings[1] <= ended
        for kind in (seen.trained.padding, seen.trained.contexts):
            assert kind[0] == 0 and kind[1] > 0
    total = sum(seen.trained.tokens[0] for seen in in_turns().values())
    assert f"completion tokens {total} of {total}" in result.sentence


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    dict(clip=0.2, ratio_level="sequence", prompts_per_microbatch=2),
    dict(kl_coef=0.1, entropy_coef=0.01, importance_cap=2.0, aggregation="token"),
], ids=lambda options: "-".join(options))  # fmt: skip
def test_other_losses_pass_too(options):
    actual = examined(dataclasses.replace(LOSS, **options))
    assert updates.parity(actual).status == updates.trained_tokens(actual).status == "ok"


def test_an_eos_is_put_in_where_none_was_drawn():
    forest = spoken()
    cut = dataclasses.replace(forest, turns=tuple(
        dataclasses.replace(turn, completion=turn.completion[:1], logprobs=turn.logprobs[:1])
        for turn in forest.turns))  # fmt: skip
    assert not any(turn.completion[-1] == 2 for turn in cut.turns)  # or the seed must be another
    actual = updates.of_forest(TEAM, TRAINABLES, LOSS, cut)
    assert all(seen.trained.endings.tolist() == [1, 1] for seen in actual.values())


def test_the_reference_implementations_loss_is_a_warning():
    config = dataclasses.replace(LOSS, comlrl_compat=True)
    result = updates.trained_tokens(examined(config), meant="set it to False")
    assert result.status == "warn" and result.sentence.endswith("; set it to False")
    assert updates.trained_tokens(examined(config)).status == "fail"


@pytest.mark.parametrize("shift, message", [
    (-1, "EOS tokens get no gradient"), (1, "padded positions get gradient"),
])  # fmt: skip
def test_masks_that_are_off_by_one_fail(broken, shift, message):
    real = losses.length_mask

    def shifted(lengths, tokens):
        return real(jnp.where(lengths > 0, lengths + shift, 0), tokens)

    actual = broken(losses, "length_mask", shifted)
    result = updates.trained_tokens(actual)
    assert result.status == "fail" and message in result.sentence, result


def test_trained_prompts_fail(broken):
    """The first token is predicted from the mean of the prompt's features, not from its last."""
    def read(policy, variables, tokens_BP, lengths_B, shared=None):
        _, cache = prefill.prefill(policy, variables, tokens_BP, lengths_B, shared)
        positions_BP = prefill.prompt_positions(lengths_B, tokens_BP.shape[1])
        every, _ = policy.apply(variables, tokens_BP, positions_BP, method="hidden")
        return every.mean(1), cache

    actual = broken(perturb, "prefill", read)
    result = updates.trained_tokens(actual)
    assert result.status == "fail" and "prompt or feedback tokens get gradient" in result.sentence
    assert updates.parity(actual).status == "fail"


def test_other_log_probabilities_fail(broken):
    real = agent_loss.token_scores

    def cooler(policy, variables, features, tokens, sampling, **options):
        sampling = dataclasses.replace(sampling, temperature=1.0)
        return real(policy, variables, features, tokens, sampling, **options)

    result = updates.parity(broken(agent_loss, "token_scores", cooler))
    assert result.status == "fail" and "KL per token: aux " in result.sentence and "main " in result.sentence


def test_half_precision_is_allowed_more():
    seen = next(iter(examined().values()))
    cases = ((0.1, "float32", "fail"), (0.1, "bfloat16", "ok"), ("nan", "bfloat16", "fail"))
    for deviation, dtype, status in cases:
        numbers = seen.diagnostics.replace(ratio_max_deviation=jnp.float32(deviation))
        result = updates.parity({"aux": dataclasses.replace(seen, diagnostics=numbers)}, dtype)
        assert result.status == status


def test_a_frozen_team_has_nothing_to_look_at():
    assert updates.of_forest(TEAM, [None], LOSS, spoken()) == {}
    assert updates.parity({}).status == updates.trained_tokens({}).status == "skipped"


def distribution(stated, forest=None, loss=None):
    return choices.distribution(TEAM, TRAINABLES, forest or spoken(), stated, loss or stated)


@pytest.mark.slow
def test_the_stated_distribution_fits():
    assert distribution(PLAIN).status == "ok"
    result = distribution(STATED, spoken(STATED, 2))
    assert result.status == "ok" and "temperature=1.3, top_k=40, top_p=0.95" in result.sentence, result


def test_another_temperature_is_found():
    result = distribution(dataclasses.replace(PLAIN, temperature=0.7))
    assert result.status == "fail"
    assert result.sentence.startswith("temperature=0.7: ")
    assert "they are those of temperature=1.2:" in result.sentence


def test_a_sampler_that_does_not_truncate_fails():
    result = distribution(dataclasses.replace(PLAIN, top_k=3))
    assert result.status == "fail"
    assert "sampled tokens are outside of what temperature=1.2, top_k=3" in result.sentence


@pytest.mark.slow
def test_a_sampler_that_truncates_unasked_fails():
    result = distribution(dataclasses.replace(STATED, top_k=0, top_p=1.0), spoken(STATED, 2))
    assert result.status == "fail" and "no other temperature explains them" in result.sentence


def test_settings_of_config_and_loss_must_be_equal():
    result = distribution(PLAIN, loss=dataclasses.replace(PLAIN, top_k=40))
    assert result.status == "fail" and "top_k is 0 and 40" in result.sentence


@pytest.mark.slow
def test_logits_are_those_of_the_agent_itself():
    """Of an agent whose adapters are merged into the base, read without a prompt's cache or packing."""
    turn = next(turn for turn in spoken().turns if turn.agent == "main" and len(turn.completion) > 3)
    actual = choices.completion_logits(TEAM.members[0], TRAINABLES[0], turn)
    ids = jnp.asarray([*turn.prompt, *turn.completion])
    policy = TEAM.members[0].stack.policy
    wanted, _ = policy.apply(TEAM["main"].agent_variables("main"), ids[None], jnp.arange(len(ids))[None])
    assert jnp.abs(actual - wanted[0, len(turn.prompt) - 1 : -1]).max() < 1e-4


def test_the_least_precise_part_decides():
    member = TEAM.members[0]

    def of(policy, sampler):
        clone = member.stack.policy.clone
        stack = dataclasses.replace(member.stack, policy=clone(dtype=policy), sampler=clone(dtype=sampler))
        return choices.precision(team.Team((dataclasses.replace(member, stack=stack),)))

    assert of(jnp.float32, jnp.float32) == "float32"
    assert of(jnp.float32, jnp.bfloat16) == "bfloat16"
    assert of(jnp.float16, jnp.float32) == "float16"
