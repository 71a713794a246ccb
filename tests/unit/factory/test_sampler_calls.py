"""factory/sampler_calls.py: what is drawn at a time, by hand."""

import jax
import pytest

from configs import coding, reasoning
from jaxmarl_llm.analysis.planning import estimate, from_config
from jaxmarl_llm.config import validate
from jaxmarl_llm.factory import sampler_calls


def config(get=reasoning.get_config, **fields):
    made = get()
    made.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    validate(made)
    return made


def shown(calls):
    return [(call.agents, call.prompts, call.samples) for call in calls]


def test_an_evaluation_of_a_tree_draws_its_chains():
    """Training has 4 problems, 8 answers, 16 answers to each; an evaluation of 3 problems 5 chains of each."""
    fields = dict(train__joint_mode="aligned", team__agents=("a", "b", "c"), train__group=2, train__prompts=4)
    tree, pipeline = (config(train__protocol=name, **fields) for name in ("tree", "pipeline"))
    of_training = sampler_calls.of_training(tree, tree.team.agents, 2)
    assert shown(of_training) == [(("a",), 4, 2), (("b",), 8, 2), (("c",), 16, 2)]
    chains = [(("a",), 3, 5), (("b",), 15, 1), (("c",), 15, 1)]
    for made in (tree, pipeline):
        assert shown(sampler_calls.of_evaluation(made, made.team.agents, 3, 5)) == chains


@pytest.mark.parametrize("fields, calls, batches", [
    (dict(train__system="sft", sft__batch=32, train__minibatches=2), [], [(16, 1)]),
    (dict(train__system="sft", sft__batch=32, sft__prompts="rollout"), [(8, 4)], [(8, 4)]),
    (dict(train__system="dpo", preference__batch=16), [(8, 4)], [(16, 2)]),
    (dict(train__system="madpo", preference__batch=64), [(8, 4)], [(64, 2)]),
])  # fmt: skip
def test_an_update_reads_what_its_system_learns_from(fields, calls, batches):
    """Demonstrations of an agent, or pairs of answers to one prompt; whose number no rollout decides."""
    made = config(
        lambda: coding.get_config("he_1turn"), model="Qwen/Qwen2.5-Coder-0.5B", train__prompts=8, train__group=4,
        train__prompts_per_microbatch=4, train__joint_mode="aligned", warm_up__steps=0, **fields,
    )  # fmt: skip
    (job,) = from_config.jobs(made, jax.devices()[:1])
    both = tuple(made.team.agents)
    assert shown(job.calls) == [(both, *sizes) for sizes in calls]
    assert shown(job.batches) == [(both, *sizes) for sizes in batches]
    names = [phase.name for phase in estimate.phases(job)]
    assert names == (["prefill", "decode", "update"] if calls else ["update"])
