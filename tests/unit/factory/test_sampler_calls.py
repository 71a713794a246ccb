"""factory/sampler_calls.py: what is drawn at a time, by hand."""

from configs import reasoning
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
