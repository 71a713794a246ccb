"""jaxmarl_llm/factory/teams.py: what prompts are padded to is planned from what agents read."""

import pytest

from configs import tables
from jaxmarl_llm.factory import imitation, tasks, teams, tools
from jaxmarl_llm.utils.errors import UserError


@pytest.mark.parametrize("arg, agents", [("one,smoke", ("solver",)), ("smoke", ("planner", "caller"))])
def test_tools_are_among_what_all_prompts_begin_with(arg, agents):
    """What all prompts begin with is computed once, so that a description of tools costs nothing for each row."""
    config = tables.get_config(arg)
    task, team = tasks.build_task(config, None, "train"), teams.build_team(config)
    with tools.opened(config, None, task) as toolbox:
        (sizes,) = teams.prompt_sizes(config, team, [task], toolbox)
        (without,) = teams.prompt_sizes(config, team, [task])
        rows = imitation.load(config, task, team)
    for agent in agents:
        start = sizes.starts[agent]
        # But for less than padding.SHARE_STEP tokens.
        assert toolbox.lines()[-1][:-30] in team[agent].tokenizer.decode(start)
        assert len(start) > len(without.starts[agent])
        prompts = [row.prompt.tolist() for row in rows if row.agent == agent]
        assert prompts and all(prompt[: len(start)] == list(start) for prompt in prompts)


@pytest.mark.parametrize("limit, warned", [(250, True), (305, True), (330, False)])
def test_prompts_are_measured_with_the_tools(limit, warned, caplog):
    """A prompt of about 240 tokens with the tools, 60 without; after a call of up to 80 follows another prompt."""
    config = tables.get_config("one,smoke")
    config.sampling.max_prompt_tokens = limit
    task, team = tasks.build_task(config, None, "train"), teams.build_team(config)
    with tools.opened(config, None, task) as toolbox:
        teams.check_prompts(config, team, task, toolbox=toolbox)
        assert ("of the next turn, or after a call, holds both" in caplog.text) == warned
        config.sampling.max_prompt_tokens = 200
        with pytest.raises(UserError, match=r"agent 'solver' for tables/.* has 2\d\d tokens, the limit is 200"):
            teams.check_prompts(config, team, task, toolbox=toolbox)
