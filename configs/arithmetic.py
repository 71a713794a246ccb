"""What an iteration consists of, from its config alone; nodes that end early make it less."""


def nodes(config) -> list[int]:
    """Nodes of each turn: the problems, then the answers that are handed on; of a tree its last paths."""
    c = config.train
    if c.protocol == "tree":
        return [c.prompts * c.group ** (len(config.team.agents) - 1)]
    found = [c.prompts]
    for _ in range(c.turns - 1):
        found.append(found[-1] * (answers_per_node(config) if c.hand_on == "all" else 1))
    return found


def answers_per_node(config) -> int:
    """Joint answers of one node: G, or G**N where all combinations are judged."""
    c = config.train
    return c.group ** (len(config.team.agents) if c.joint_mode == "cross" else 1)


def joint_answers(config) -> int:
    """Joint answers that are judged in one iteration."""
    return sum(nodes(config)) * answers_per_node(config)


def completions(config) -> int:
    """Completions of one iteration, all agents and turns together; of a discussion both rounds."""
    c = config.train
    if c.protocol == "tree":
        return sum(c.prompts * c.group ** (n + 1) for n in range(len(config.team.agents)))
    rounds = 2 if c.protocol == "discussion" else 1
    return rounds * sum(nodes(config)) * len(config.team.agents) * c.group


def tokens(config) -> int:
    """Most completion tokens of one iteration."""
    return completions(config) * config.sampling.max_new_tokens
