"""Teams: grouping, lookup, what is shared and what is not."""

import dataclasses

import chex
import jax
import numpy as np
import pytest
import tiny

from jaxmarl_llm import team

MODELS = {"small": tiny.model(0), "other": tiny.model(1)}
KEY = jax.random.key(0)


def build(agent_models, **options):
    return team.build(MODELS, agent_models, KEY, rank=4, **options)


def addresses(tree):
    return [x.unsafe_buffer_pointer() for x in jax.tree.leaves(tree)]


def sizes(tree):
    return sum(x.size for x in jax.tree.leaves(tree))


def test_agents_of_one_model_share_a_stack_and_one_base():
    built = build({"aux": "small", "main": "small"}, alpha=8.0)
    (member,) = built.members
    assert built.agents == member.stack.agents == ("aux", "main")
    assert built["main"] is member and member.model_name == "small"
    assert member.stack.eos_ids == (3, 5) and member.tokenizer is MODELS["small"].tokenizer
    assert member.stack.adapter_scale == 2.0  # alpha / rank = 8 / 4
    assert addresses(member.base) == addresses(MODELS["small"].params)  # the very same buffers
    assert {x.shape[0] for x in jax.tree.leaves(member.trainable)} == {2}


def test_binding_an_adapter_stack_does_not_copy_the_base():
    (member,) = build({"aux": "small", "main": "small"}).members
    variables, axes = member.stack.bind(member.base, member.trainable)
    assert addresses(variables["params"]) == addresses(MODELS["small"].params["params"])
    assert axes == {"params": None, "lora": 0}
    reference, _ = member.stack.bind_reference(member.base)
    assert "lora" not in reference and addresses(reference) == addresses(member.base)


def test_a_heterogeneous_team_has_a_stack_per_model():
    built = build({"aux": "small", "main": "other", "critic": "small"})
    assert [m.stack.agents for m in built.members] == [("aux", "critic"), ("main",)]
    assert built.agents == ("aux", "critic", "main")
    assert built["main"].model_name == "other" and built["critic"] is built["aux"]
    assert addresses(built["main"].base) == addresses(MODELS["other"].params)


def test_full_mode_copies_the_model_for_every_agent():
    (member,) = build({"aux": "small", "main": "small"}, mode="full").members
    assert member.base is None
    assert sizes(member.trainable) == 2 * sizes(MODELS["small"].params)
    variables, axes = member.stack.bind(None, member.trainable)
    assert variables is member.trainable and axes == 0
    for agent in ("aux", "main"):
        chex.assert_trees_all_equal(member.agent_variables(agent), MODELS["small"].params)
    (kept,) = build({"aux": "small"}, mode="full", keep_reference=True).members
    assert addresses(kept.base) == addresses(MODELS["small"].params)


def test_frozen_agents_have_nothing_to_train():
    (member,) = build({"aux": "small"}, mode="frozen").members
    assert member.trainable is None and member.agent_variables("aux") is member.base
    assert member.stack.bind(member.base, None) == (member.base, None)


def test_agent_variables_have_the_agents_own_adapters_merged_in():
    (member,) = build({"aux": "small", "main": "small"}, alpha=8.0).members
    learned = dataclasses.replace(member, base=tiny.params(), trainable=tiny.lora(rank=4))
    for n, agent in enumerate(("aux", "main")):
        own = jax.tree.map(lambda x, n=n: x[n], learned.trainable)
        lora = jax.tree.map_with_path(lambda path, x: x * 2.0 if path[-1].key == "b" else x, own)
        variables = {**tiny.params(), "lora": lora}
        applied, _ = tiny.POLICY.apply(variables, np.array([[7, 8]]), np.array([[0, 1]]))
        merged = tiny.logits(learned.agent_variables(agent), [7, 8])
        np.testing.assert_allclose(merged, applied[0], atol=1e-5)


def test_stacks_are_hashable_and_equal_by_value():
    """A compiled program is found again by the stack's value."""
    first, second = (build({"aux": "small"}).members[0].stack for _ in range(2))
    assert first == second and hash(first) == hash(second)
    assert first != dataclasses.replace(first, adapter_scale=1.0)


def test_unknown_agents_are_named():
    with pytest.raises(KeyError, match=r"no agent named 'boss'; the team is \('aux',\)"):
        build({"aux": "small"})["boss"]


@pytest.mark.parametrize(
    "agent_models, options, message",
    [
        ({"aux": "small"}, dict(mode="lora"), r"team\.mode='lora' is not one of"),
        ({}, {}, "at least one agent"),
        ({"aux": "huge"}, {}, r"\['aux'\] use model 'huge', which is not among \['other', 'small'\]"),
    ],
)
def test_bad_teams(agent_models, options, message):
    with pytest.raises(ValueError, match=message):
        build(agent_models, **options)


def test_a_model_without_a_tokenizer_cannot_speak():
    mute = tiny.model().replace(tokenizer=None)
    with pytest.raises(ValueError, match="model 'mute' has no tokenizer"):
        team.build({"mute": mute}, {"aux": "mute"}, KEY)
