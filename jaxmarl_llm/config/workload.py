"""How much an iteration computes, from its config alone; nodes that end early reduce it."""

from jaxmarl_llm.config import advice, agent_settings, critic, experience, gate, imitation, maporl, systems
from jaxmarl_llm.config.programs import METHODS


def nodes(config) -> list[int]:
    """Nodes of each turn: the problems, then continued answers; for a tree the paths to the last agent."""
    c = config.train
    if c.protocol == "tree":
        return [c.prompts * c.group ** (len(config.team.agents) - 1)]
    if c.protocol in METHODS:  # a chain does not branch: its later programs count as samples too
        return [c.prompts] * c.turns
    if c.protocol in ("dialogue", "routed"):  # every dialogue, and every route, is a chain of its own
        return [c.prompts] + [c.prompts * c.group] * (c.turns - 1)
    by_turn = [c.prompts]
    for drawn in samples(config)[:-1]:
        by_turn.append(by_turn[-1] * (answers_per_node(config, drawn) if c.hand_on == "all" else 1))
    return by_turn


def samples(config) -> list[int]:
    """Samples of each agent at the nodes of each turn."""
    c = config.train
    later = 1 if c.protocol in ("dialogue", "routed") else c.later_samples or c.group
    return [c.group] if c.protocol == "tree" else [c.group] + [later] * (c.turns - 1)


def answers(config) -> int:
    """Completions of each agent in an iteration, in joint answers; for a relay the most of any agent."""
    by_turn = [n * drawn for n, drawn in zip(nodes(config), samples(config), strict=True)]
    return max(by_turn) if config.train.protocol == "relay" else sum(by_turn)


def candidates(config) -> int:
    """Texts sampled in training for each text that continues the dialogue."""
    return config.sweet.candidates if config.train.system == "sweet" else 1


def collecting(config) -> int:
    """First iterations in which no agent learns."""
    if critic.used(config) or maporl.has_verifier(config):
        verified = config.preference.collect if maporl.has_verifier(config) else 0
        return verified + (config.critic.warmup if critic.used(config) else 0)
    if config.train.system == "sweet":
        return config.preference.collect + config.sweet.critic_steps
    return config.preference.collect if config.train.system in systems.OFFLINE else 0


def draws(config, step: int) -> bool:
    """Whether the team answers problems in iteration ``step``, from 0."""
    if imitation.draws_nothing(config):
        return False
    name = config.train.system
    learns_from_earlier = name in systems.OFFLINE and name in systems.DIRECT
    return not learns_from_earlier or step < config.preference.collect


def updates(config, steps: int) -> int:
    """Updates of each agent in the first ``steps`` iterations."""
    return max(steps - collecting(config), 0) * updates_per_iteration(config)


def updates_per_iteration(config) -> int:
    """Updates of each agent in an iteration."""
    return config.train.epochs * config.train.minibatches


def learned(config) -> int:
    """Completions of each agent in one update."""
    if imitation.draws_nothing(config):
        return config.sft.batch // config.train.minibatches
    if config.train.system in systems.DIRECT:
        return 2 * config.preference.batch
    if experience.of(config):  # one agent writes the versions, the other one instructions for them
        return max(answers(config), remarks(config)) // config.train.minibatches
    return (answers(config) + remarks(config)) // config.train.minibatches


def agents_per_turn(config) -> int:
    """Agents that are part of a joint answer."""
    c, agents = config.train, len(config.team.agents)
    return agents // c.turns if c.protocol == "relay" else 1 if c.protocol == "routed" else agents


def remarks(config) -> int:
    """Completions of each agent in one iteration that are not programs: lessons, reflections, plans."""
    return remarks_of_chain(config) * config.train.prompts * config.train.group


def remarks_of_chain(config) -> int:
    """The same in one chain, at most: some programs get no lesson, and a planner may need fewer calls."""
    c = config.train
    if c.protocol == "lessonl" and config.lessons.select != "none":
        return c.turns - (config.lessons.bank == "problem")  # those of the last round are for later problems
    if experience.of(config):
        return c.turns + experience.most_shortcuts(config)
    numbers = {"reflexion": c.turns - 1, "mapcoder": config.search.plans, "planner": config.tools.calls}
    return numbers.get(c.protocol, 0)


def advised(config) -> int:
    """Completions of the adviser in one iteration, at most."""
    return -(-config.train.turns // config.advice.every) * config.train.prompts * config.train.group


def period(config) -> int:
    """Turns after which the same agents answer again; 0 if all agents answer in every turn."""
    return config.advice.every if advice.of(config) else 0


def answers_per_node(config, drawn: int = 0) -> int:
    """Joint answers of one node: G, or G**N if all combinations are judged; see `forest.joint_samples`.

    ``drawn``: G; 0: G of the first turn.
    """
    c, agents = config.train, len(config.team.agents)
    drawn = drawn or c.group
    if c.joint_mode == "cross":
        return (drawn + c.partner_samples) ** agents - c.partner_samples**agents
    return drawn + agents * drawn * c.partner_samples


def shares_samples(config) -> bool:
    """Whether one sample is part of several joint answers."""
    return config.train.joint_mode == "cross" or config.train.partner_samples > 0


def partner_completions(config) -> int:
    """Completions of one iteration that are sampled only for the returns of partners."""
    return config.train.partner_samples * config.train.prompts * len(config.team.agents)


def joint_answers(config) -> int:
    """Joint answers that are judged in one iteration."""
    if imitation.draws_nothing(config):
        return 0
    by_turn = zip(nodes(config), samples(config), strict=True)
    return sum(n * answers_per_node(config, drawn) for n, drawn in by_turn)


def counterfactual_answers(config) -> int:
    """Most joint answers that are also judged without each agent's part; equal ones count once."""
    c, agents = config.train, len(config.team.agents)
    if not c.counterfactual:
        return 0
    if advice.of(config):  # every episode once more, without the adviser
        return joint_answers(config)
    # With all combinations, all samples of an agent have the same counterfactual answers.
    power, by_turn = (
        agents - 1 if c.joint_mode == "cross" else 1,
        zip(nodes(config), samples(config), strict=True),
    )
    return agents * sum(n * drawn**power for n, drawn in by_turn)


def counterfactual_completions(config) -> int:
    """Completions sampled for these counterfactual answers; no agent learns from them."""
    c, agents = config.train, len(config.team.agents)
    if c.counterfactual == "reference":
        return agents * c.prompts
    if advice.of(config):
        return answers(config) if advice.pairs(config) else 0
    if c.counterfactual != "solo":
        return 0
    rounds, heard = (2, agents) if c.protocol == "discussion" else (1, agents - 1)
    return rounds * heard * (agents - 1) * c.prompts * c.group


def completions(config) -> int:
    """Completions of one iteration, all agents and turns together; for a discussion both rounds."""
    c = config.train
    if imitation.draws_nothing(config):
        return 0
    if c.protocol == "tree":
        return sum(c.prompts * c.group ** (n + 1) for n in range(len(config.team.agents)))
    if c.system == "mlpo":  # peers answer once
        return c.prompts * (len(config.team.agents) - 1 + c.group)
    if c.protocol in ("relay", "routed"):  # of routes at most: they may end early
        return sum(
            n * drawn for n, drawn in zip(nodes(config), samples(config), strict=True)
        ) * agents_per_turn(config)
    if c.protocol == "planner":  # at most: a plan before each call and before the answer
        return answers(config) * (2 * config.tools.calls + 2)
    if c.protocol == "dialogue":  # at most: dialogues may end early
        return answers(config) * candidates(config) + c.prompts * c.group * (c.turns - 1)
    if advice.of(config):
        return answers(config) + advised(config) + counterfactual_completions(config)
    if experience.of(config):  # at most: few chains have so many shortcuts
        return answers(config) + remarks(config)
    rounds = 2 if c.protocol == "discussion" else 1
    if gate.of(config):  # at most: few actions are refused so often
        rounds = 1 + config.gate.retries
    learned = (rounds * answers(config) + remarks(config)) * len(config.team.agents)
    return learned + partner_completions(config) + counterfactual_completions(config)


def tokens(config) -> int:
    """Most completion tokens of one iteration."""
    return completions(config) * agent_settings.longest(config)
