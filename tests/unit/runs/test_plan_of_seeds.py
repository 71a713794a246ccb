"""The memory that a run says it takes, with several seeds at the same time."""

import tiny_learners

from configs import coding
from jaxmarl_llm import update
from jaxmarl_llm.runs import plan_table


def test_all_but_the_base_is_there_for_each_seed():
    team, config = tiny_learners.team(), coding.get_config("smoke")
    optimizer = update.make_optimizer(lr=0.1, steps=1)
    states = {0: update.init_state(team.members[0].trainable, optimizer)}
    one, three = (plan_table.memory(config, team, states, seeds) for seeds in (1, 3))
    assert three.pop("base") == one.pop("base") > 0
    assert three == {name: 3 * size for name, size in one.items()} and all(one.values())
    assert plan_table.memory(config, team, states)["learned"] == one["learned"]
    assert plan_table._seeds(1) == []
    ((name, text),) = plan_table._seeds(3)
    assert name == "seeds" and text.startswith("3 at the same time, each does all that is above")
