"""MLPO: the leader's advantages on a small forest by hand, who answers how often, and what a config refuses."""

import numpy as np
import pytest
from scripted_rounds import play

from configs import reasoning
from jaxmarl_llm.config import UserError, agent_settings, base_config, validate
from jaxmarl_llm.config.workload import completions, joint_answers
from jaxmarl_llm.factory import protocols, systems
from jaxmarl_llm.protocols.leader import leader
from jaxmarl_llm.protocols.peer_answers import PeerAnswers
from jaxmarl_llm.systems import magrpo, mlpo
from jaxmarl_llm.systems.magrpo import CreditConfig
from jaxmarl_llm.tasks.reasoning.items import ReasoningItem
from jaxmarl_llm.tasks.reasoning.task import ReasoningTask

ITEMS = (ReasoningItem("p", "P?", "1"), ReasoningItem("q", "Q?", "2"))
TASK = ReasoningTask(ITEMS, ("x", "y", "lead"), "last")


def text(request, number):
    return ["1", "0", "0", "0", "2", "2", "9", "2"][number] if request.agent == "lead" else "1"


@pytest.fixture(scope="module")
def played():
    return play(leader(TASK.prompts, 4, fan_out=True), TASK, texts=text)


def test_peers_answer_once_and_all_leaders_answers_follow_these(played):
    assert [(r.agent, r.samples) for r in played.steps[0]] == [("x", 1), ("y", 1)] * 2
    assert [(r.agent, r.samples) for r in played.steps[1]] == [("lead", 4)] * 2
    turns, joints = played.forest.turns, played.forest.joints
    assert [[turns[i].agent for i in joint.turns] for joint in joints] == [["x", "y", "lead"]] * 8
    assert len({joint.turns[:2] for joint in joints}) == 2 and len({joint.turns[2] for joint in joints}) == 8
    assert [joint.node for joint in joints] == [0] * 4 + [1] * 4


def test_advantages_are_rewards_less_their_mean(played):
    """Means 1/4 and 3/4, neither divided by a deviation; peers learn nothing."""
    given = mlpo.assign(played.forest, CreditConfig())
    of_leader = [turn.agent == "lead" for turn in played.forest.turns]
    wanted = [0.75, -0.25, -0.25, -0.25, 0.25, 0.25, -0.75, 0.25]
    np.testing.assert_allclose(given.advantages[of_leader], wanted, atol=1e-6)
    assert not given.advantages[np.logical_not(of_leader)].any()
    assert (given.groups >= 0).tolist() == of_leader and len(set(given.groups[of_leader].tolist())) == 2


def test_answers_after_other_peer_answers_are_not_compared():
    """Without fan_out every leader's answer has read peers of its own, so that there is nothing to compare."""
    forest = play(leader(TASK.prompts, 4), TASK, texts=text).forest
    assert np.abs(magrpo.assign(forest, CreditConfig()).advantages).sum() > 0
    assert not mlpo.assign(forest, CreditConfig()).advantages.any()


def test_kept_answers_of_peers_take_turns(tmp_path):
    """Two of each peer to each problem are drawn; then the least used one is read again, and nothing else is drawn."""
    made = config(**{"train.group": 4, "mlpo.peer_answers": 2})
    validate(made)
    system = systems.build(made, None, lambda: [])
    protocol = protocols.build(made, TASK, None, memory=protocols.memory_of(made, system.models))
    drawn, read, numbers = 0, [], []

    def texts(request, number):
        nonlocal drawn
        drawn += request.agent != "lead"
        return str(drawn) if request.agent != "lead" else text(request, number)

    with system.models.kept_in(tmp_path, 2):
        for step in range(5):
            played = play(protocol, TASK, texts=texts)
            read.append([turn.text for turn in played.forest.turns if turn.agent == "x" and turn.item == 0])
            numbers.append(system.learn(system.assign(played.forest)))
            system.models.save(step)
        resumed = PeerAnswers(("x", "y"), 2)
        with resumed.kept_in(tmp_path, 2):
            resumed.restore(4)
    assert drawn == 8  # two problems, two peers, twice
    assert read == [["1"], ["5"], ["1"], ["5"], ["1"]]
    assert numbers[0] == {"mlpo/kept": 4.0, "mlpo/read_again": 0.0}
    assert numbers[-1] == {"mlpo/kept": 8.0, "mlpo/read_again": 4.0}
    assert [turn.given for turn in played.forest.turns] == [turn.agent != "lead" for turn in played.forest.turns]
    items = [resumed.given(item, agent) for item in ITEMS for agent in ("x", "y")]
    assert items == ["5", "6", "7", "8"] and list(resumed) == list(system.models)
    assert [kept.uses for kept in resumed] == [3] * 4 + [2] * 4
    # In an evaluation every chain has peers of its own.
    chains = play(protocols.build(made, TASK, None, samples=3, memory=system.models), TASK, texts=texts)
    assert not any(turn.given for turn in chains.forest.turns)


def test_equal_answers_of_a_peer_take_turns_with_the_others():
    """A peer that wrote "1", "1" and "2": each of the three is read again before one is read twice."""
    made = config(**{"train.group": 4, "mlpo.peer_answers": 3})
    system = systems.build(made, None, lambda: [])
    protocol = protocols.build(made, TASK, None, memory=protocols.memory_of(made, system.models))
    written, read = {"x": iter("112"), "y": iter("345")}, []

    def texts(request, number):
        return "1" if request.agent == "lead" else next(written[request.agent])

    for _ in range(9):
        played = play(protocol, TASK, ITEMS[:1], texts=texts)
        system.learn(system.assign(played.forest))
        read.append(next(turn.text for turn in played.forest.turns if turn.agent == "x"))
    assert read == ["1", "1", "2"] * 3


def test_given_answers_need_one_answer_of_each_peer():
    with pytest.raises(UserError, match="given before need fan_out"):
        leader(TASK.prompts, 4, given=lambda item, agent: "1")


def test_fan_out_is_of_one_turn():
    with pytest.raises(UserError, match="turns=2: with fan_out there is one turn"):
        leader(TASK.prompts, 4, 2, fan_out=True)


def config(**fields):
    made = base_config()
    made.task.kind, made.task.source, made.task.total = "reasoning", "sums", "last"
    made.team.agents, made.train.protocol, made.train.system = ("x", "y", "lead"), "leader", "mlpo"
    fields = {"team.agent.x.trainable": False, "team.agent.y.trainable": False, **fields}
    agent_settings.declare(made, fields)
    with made.unlocked():
        made.update_from_flattened_dict(fields)
    return made


def test_a_config_builds_both_and_counts_what_is_drawn(played):
    made = config(**{"train.group": 4, "train.prompts": 2, "train.prompts_per_microbatch": 2})
    validate(made)
    again = play(protocols.build(made, TASK, None), TASK, texts=text)
    assert completions(made) == len(again.forest.turns) == 12 and joint_answers(made) == len(again.forest.joints) == 8
    np.testing.assert_array_equal(
        systems.from_forest(made)(again.forest).advantages, mlpo.assign(played.forest, CreditConfig()).advantages
    )
    chains = play(protocols.build(made, TASK, None, samples=3), TASK, texts=lambda request, n: "1")
    assert len(chains.forest.turns) == 18 and len({joint.turns[0] for joint in chains.forest.joints}) == 6


@pytest.mark.parametrize("fields, message", [
    ({"team.agent.lead.trainable": False}, r"team\.agent\.lead\.trainable=False: .* trains this agent"),
    ({"team.mode": "frozen"}, "team.mode='frozen': train.system='mlpo' trains the leader"),
    ({"team.models": ("random-tiny",) * 2 + ("expert:m",)}, "'expert:m' of agent 'lead': .*a model of ours"),
    ({"team.agents": ("lead",), "team.agent": {}}, r"team\.agents=\('lead',\): .*at least one peer"),
    ({"team.agent.y.trainable": True}, r"team\.agent\.y\.trainable: .*trains the last agent alone, allowed is False"),
    ({"mlpo.peer_answers": 2, "train.redraw": 1}, "mlpo.peer_answers=2: .*allowed with train.overlap=False"),
    ({"train.turns": 2}, "train.turns=2: train.system='mlpo' allows 1"),
    ({"train.counterfactual": "nothing"}, "train.counterfactual='nothing': .*allowed is ''"),
    ({"train.protocol": "pipeline"}, "train.protocol='pipeline': train.system='mlpo' needs 'leader'"),
    ({"train.normalise": True}, "train.normalise=True: train.system='mlpo' allows False only"),
    ({"train.baseline": "leave_one_out"}, "train.baseline='leave_one_out': train.system='mlpo' allows 'mean' only"),
])  # fmt: skip
def test_a_config_is_refused(fields, message):
    agents = fields.pop("team.agent", None)
    made = config(**fields)
    if agents is not None:
        made.team.agent = agents
    with pytest.raises(ValueError, match=message):
        validate(made)


def test_peers_behind_scripts_need_no_setting():
    made = reasoning.get_config("trust")
    assert made.train.system == "mlpo"
    validate(made)
