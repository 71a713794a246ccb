"""What train.system=mlpo needs: a leader that learns, and at least one peer; peers do not learn."""

from jaxmarl_llm.config import agent_settings, remote
from jaxmarl_llm.config.fields import Read, number
from jaxmarl_llm.config.options import ConfigDict

NAME = "mlpo"
FIELDS = (
    number(
        "mlpo.peer_answers",
        0,
        "K: each peer answers a problem K times in training; after that these answers are reused in turn. "
        "0: peers always answer anew.",
        low=0,
        read=Read(lambda c: c.train.system == NAME, "only train.system='mlpo' has peers"),
    ),
)


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per agent that cannot be leader or peer, and per field that mlpo does not allow."""
    c, agents = config.train, tuple(config.team.agents)
    if c.system != NAME:
        return []
    bad = []
    if len(agents) < 2:
        bad.append(
            f"team.agents={agents!r}: train.system='mlpo' needs a leader, the last one, and at least one peer"
        )
    if c.turns > 1:
        bad.append(
            f"train.turns={c.turns}: train.system='mlpo' allows 1; later turns are for evaluations, with "
            "train.system='magrpo'"
        )
    if c.counterfactual:
        bad.append(
            f"train.counterfactual={c.counterfactual!r}: with train.system='mlpo' the leader's answers are compared "
            "after the same answers already, allowed is ''"
        )
    if config.mlpo.peer_answers and (c.overlap or c.redraw):
        bad.append(
            f"mlpo.peer_answers={config.mlpo.peer_answers}: an iteration must know the peers' answers of the one "
            "before, allowed with train.overlap=False and train.redraw=0"
        )
    return [*bad, *_leader(config, agents[-1]), *_peers(config, agents[:-1])]


def _leader(config: ConfigDict, leader: str) -> list[str]:
    """A leader that cannot learn; `systems.problems` refuses frozen teams for other kinds of systems only."""
    if leader in remote.agents(config):
        return [
            f"the model {remote.agents(config)[leader]!r} of agent {leader!r}: train.system='mlpo' trains the last "
            "agent, which must be a model of ours"
        ]
    if config.team.mode == "frozen":
        return [
            "team.mode='frozen': train.system='mlpo' trains the leader, allowed are 'adapters' and 'full'"
        ]
    if not agent_settings.trainable(config, leader):
        return [f"team.agent.{leader}.trainable=False: train.system='mlpo' trains this agent, the leader"]
    return []


def _peers(config: ConfigDict, peers: tuple[str, ...]) -> list[str]:
    """Peers that would learn."""
    return [
        f"team.agent.{peer}.trainable: train.system='mlpo' trains the last agent alone, allowed is False"
        for peer in peers
        if agent_settings.trainable(config, peer)
    ]
