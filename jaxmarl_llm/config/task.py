"""Fields of the task: its problems and prompts, the reward of answers, and the expert."""

import re
from collections.abc import Callable

from jaxmarl_llm.config import programs, reasoning, remote
from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.options import ConfigDict, field, is_dotted

WRITING = ("tldr", "arxiv")
PROMPTED = ("coding", *WRITING)  # kinds of tasks with published prompts
TELLS_TESTS = ("passed", "level_passed", "level_feedback")  # feedback about revealed tests
GRADED = ("coding", "generation", "game", "reasoning")  # kinds whose problems may be of several grades
SPLITS = ("train", "validation", "test", "all")
# Problems on which a team can be evaluated, and their split in `factory.tasks`.
EVALUATED = {"test": "test", "validation": "eval", "train": "train", "all": "test"}
MOST_ROLES = 8  # of a coding team: the executor runs each agent's function in a process of its own
# Fields that only the task's own reward reads, not a user's reward.
OF_THE_TASKS_REWARD = (
    "task.held_back", "task.cooperation", "task.parsing", "task.bands", "task.matching", "task.total",
)  # fmt: skip
# Values of task.feedback by task.kind; other kinds have no feedback.
FEEDBACKS = {
    "coding": ("plain", "passed", "level_passed", "level_feedback", "expert_edits"),
    "game": ("played",),
    "reasoning": reasoning.FEEDBACKS,
}


def asks_expert(config: ConfigDict) -> bool:
    """Whether an external expert is asked between turns."""
    return reasoning.between_turns(config) and config.task.feedback == "expert_edits"


def _feedback(config: ConfigDict) -> bool:
    of_the_game = config.task.kind == "game" and config.task.feedback == "played"  # also of one turn
    if config.task.kind == "world":
        return False
    return reasoning.between_turns(config) or is_dotted(config.train.protocol) or of_the_game


def several_agents(config: ConfigDict) -> bool:
    """Whether the team has several agents."""
    return len(config.team.agents) > 1


def _of(*kinds: str) -> Callable[[ConfigDict], bool]:
    """A test for tasks of these kinds, or a user's task, which may read all of ``task``."""
    return lambda config: config.task.kind in kinds or is_dotted(config.task.kind)


def _cooperation(config: ConfigDict) -> bool:
    helped = several_agents(config) or config.task.centralised or config.train.comlrl_compat
    return _of("coding")(config) and helped


def _revealed(config: ConfigDict) -> bool:
    shown = config.train.turns > 1 and config.task.feedback in TELLS_TESTS or config.tools.of_task
    return config.task.kind == "coding" and shown or is_dotted(config.task.kind)


def _asks(config: ConfigDict) -> bool:
    behind = any(name.startswith(remote.EXPERT) for name in remote.agents(config).values())
    return behind or asks_expert(config)


def graded(config: ConfigDict) -> bool:
    """Whether problems of the task may be of several grades."""
    return _of(*GRADED)(config)


_TEXTS = Read(_of(*WRITING), f"only task.kind={' and '.join(map(repr, WRITING))} read it")
_OWN_REWARD = Read(lambda config: bool(config.task.reward), "only task.reward reads it")
_EXPERT = Read(
    _asks, "only task.feedback='expert_edits' with train.turns above 1, and agents behind endpoints, ask it"
)
FIELDS = (
    choice("task.kind", "coding", "The task, or the dotted name of one of your own, see docs/tasks.md.",
           {"coding": "a helper function and a main function", "tldr": "two summaries of a post",
            "arxiv": "two parts of an introduction", "game": "matrix games in words, see docs/game.md",
            "optimisation": "every agent writes a whole program that is to be fast, see docs/lessonl.md",
            "generation": "every agent writes a whole program that is to pass tests",
            "lock": "a word to find", "reasoning": "questions whose answers can be checked, see docs/reasoning.md",
            "world": "an environment in which every turn is a step, see docs/worlds.md",
            "commits": "messages of commits, and programs rebuilt from them, see docs/commits.md"},
           dotted=True),
    value("task.source", "starter",
          "Problems; a slice may follow, such as humaneval[33:133]. Coding and generation: starter, "
          "starter:steps, starter:goal, starter:written, humaneval, mbpp or gsm8k (of a package that you install), "
          "or the path of a JSONL file. Writing: "
          "sample_posts, sample_abstracts, the path of a JSONL file, trl-lib/tldr or OpenMLRL/arXiv_abstract "
          "(data extra). Game: games (both kinds), climbing, penalty. Optimisation: python, cpp, or the path of "
          "a TOML file. Lock: locks. Reasoning: sums, words, clues, trust, trust:shuffled, lock3, lock3:shuffled, "
          "guess, routes, routes:two_step, tables, modelco:gsm8k, modelco:math, modelco:bbh, modelco:arc_challenge or "
          "modelco:mmlu_redux (of a package that you install), or the path of a JSONL file. World: ball, "
          "corridor, kitchen, philosophers, or the dotted name of your own. Commits: mutants, six, "
          "mutants:<JSONL file of coding problems>, or the path of a JSONL file of commits."),
    value("task.remember", False,
          "In a world: whether agents read all their earlier prompts and actions before the next one, or "
          "only the rules and what they see now.",
          Read(lambda c: c.task.kind == "world", "only task.kind='world' reads it")),
    value("task.share_views", False,
          "In a world: whether every agent reads what all agents see.",
          Read(lambda c: c.task.kind == "world", "only task.kind='world' reads it")),
    choice("task.train_split", "train", "Split of the problems that are trained on.", SPLITS),
    value("task.eval_source", "",
          "Validation problems, by which the best checkpoint of the training is chosen; empty: as "
          "task.source."),
    choice("task.eval_split", "validation", "Split of the validation problems.", SPLITS),
    value("task.test_source", "",
          "Test problems, for all reported numbers, read only at the start and the end of a run; empty: as "
          "task.source."),
    choice("task.test_split", "test", "Split of the test problems.", SPLITS),
    choice("task.bad_rows", "refuse",
           "What happens to problems whose tests cannot judge: they fail by themselves, or reject their "
           "own canonical solution. Every row is tried in the sandbox before the first iteration.",
           {"refuse": "all are listed and the run does not start", "drop": "all are listed and left out"},
           read=Read(_of("coding", "generation", "commits"),
                     "only task.kind='coding', 'generation' and 'commits' have such rows")),
    choice("task.prompts", "examples", "Prompts of coding and writing.",
           {"examples": "the same worked examples for all agents and methods",
            "published": "the structure of the published experiments"},
           read=Read(_of(*PROMPTED), f"only task.kind={', '.join(map(repr, PROMPTED))} read it")),
    choice("task.cooperation", "influence", "When coding rewards a call of a helper.",
           {"influence": "if its result changed main's result, and tests pass",
            "observed": "as published, by what main did", "paper": "as published, by main's text"},
           read=Read(_cooperation, "only task.kind='coding' with helpers reads it")),
    choice("task.parsing", "python", "Which part of an answer coding judges.",
           {"python": "all that Python would run: imports, helpers, any function that is defined",
            "paper": "as published, the text of the function, which must return a value"},
           read=Read(_of("coding"), "only task.kind='coding' reads it")),
    value("task.centralised", False, "One agent, named in team.agents, writes all roles."),
    value("task.roles", (),
          'Names of the roles of coding with task.centralised, helpers first; empty: ("aux", "main").'),
    choice("task.feedback", "level_feedback", "What agents read between turns, see docs/turns.md.",
           {"plain": "that they should revise their answers", "passed": "whether all checks passed",
            "level_passed": "a word per level: function, syntax, tests, use of helpers",
            "level_feedback": "what is missing, where the syntax error is, which test failed and how",
            "expert_edits": "advice of the expert of config.expert",
            "played": "game only: all actions and their rewards",
            "heard": "reasoning only: the others' last answers",
            "heard_scored": "reasoning only: the same, each with a score, see task.shown_score"},
           read=Read(_feedback, "no turn follows in which agents are told anything")),
    number("task.revealed_tests", 1,
           "Tests that feedback, and the tool run_tests, may reveal: the first n; 0: all; -n: the last n.",
           read=Read(_revealed, "only task.kind='coding' with train.turns above 1 and task.feedback="
                     f"{', '.join(map(repr, TELLS_TESTS))}, or with tools.of_task, tells of tests")),
    number("task.held_back", 0.0,
           "Share of the tests that do not count for the reward, to detect overfitting to the others.",
           low=0, high=0.9,
           read=Read(_of("coding", "generation"),
                     "only task.kind='coding' and 'generation' have tests to hold back")),
    choice("task.tests", "given", "Tests that a search with task.kind=generation uses.",
           {"given": "", "generated": "up to six for each problem, written by the first agent; the given "
            "tests then judge only the final program"}),
    value("task.column", "", "Column that holds the texts of a writing task; empty: that of the source.",
          _TEXTS),
    choice("task.bands", "", "Bands of the writing reward; empty: those of task.kind.",
           ("", "tldr", "arxiv", "arxiv_later"), read=_TEXTS),
    choice("task.matching", "paper", "How transition words are matched.",
           {"paper": "also as parts of words", "corrected": "as words"}, read=_TEXTS),
    value("task.reward", "", "Dotted name of a reward function of your own; empty: the task's own reward."),
    number("task.reward_workers", 1, "Parts of a batch that task.reward judges at the same time.", low=1,
           read=_OWN_REWARD),
    choice("task.reward_place", "threads", "Where task.reward judges several parts of a batch.",
           {"threads": "for rewards that wait, such as for an endpoint",
            "processes": "for rewards that compute"},
           read=Read(lambda config: bool(config.task.reward) and config.task.reward_workers > 1,
                     "only task.reward with task.reward_workers above 1 reads it")),
    # The expert of task.feedback=expert_edits, and how agents named expert:.. are reached. These agents have
    # their own model names, and take tokens and temperature from config.sampling.
    choice("expert.kind", "openai", "How the expert is reached.",
           {"openai": "any endpoint with OpenAI's chat completions", "anthropic": "Anthropic's API",
            "local": "a model in this process"}, read=_EXPERT),
    value("expert.model", "",
          "Model's name at the endpoint; with kind=local a bundled name, a folder, a .gguf file or a hub "
          "id.",
          Read(asks_expert, "only task.feedback='expert_edits' with train.turns above 1 asks it")),
    value("expert.base_url", "", "URL of the endpoint; empty: the API's own.", _EXPERT),
    # It has no Read rule, whose message would show the value: it may be the key itself.
    value("expert.key_variable", "auto",
          "Environment variable that holds the key; auto: the API's usual one; empty: no key."),
    number("expert.max_tokens", 1024, "Longest answer in tokens.", low=1),
    number("expert.timeout_seconds", 60.0, "Time limit of one attempt, seconds.", low=0.001),
    number("expert.retries", 5, "Attempts after the first one, with growing waits.", low=0),
    number("expert.parallel", 8, "Requests at the same time.", low=1),
    number("expert.requests_per_minute", 0, "Requests in a minute, at most; 0: no limit.", low=0),
    number("expert.token_budget", 0, "Tokens of the run, input and output, at most; 0: no limit.", low=0),
    value("expert.cache", "", "Folder that keeps every answer; empty: expert/ in the run folder.", _EXPERT),
    value("expert.offline", False, "Take answers from the cache only.", _EXPERT),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per invalid field of the task."""
    return [
        *_expert(config),
        *_between_turns(config, base),
        *_own_reward(config, base),
        *_roles(config),
        *_advice(config),
        *_centralised(config),
        *_world(config),
    ]


def _own_reward(config: ConfigDict, base: ConfigDict) -> list[str]:
    """Settings of the task's reward, if a user's reward replaces it."""
    reward = config.task.reward
    paths = [path for path in OF_THE_TASKS_REWARD if reward and field(config, path) != field(base, path)]
    return [
        f"{path}={field(config, path)!r}: task.reward={reward!r} judges in place of the task's reward, "
        f"allowed is {field(base, path)!r}"
        for path in paths
    ]


def _roles(config: ConfigDict) -> list[str]:
    """Invalid roles of a coding team: too many for the executor, or named by two fields."""
    roles, agents, coding = tuple(config.task.roles), tuple(config.team.agents), config.task.kind == "coding"
    if roles and not (coding and config.task.centralised):
        return [f"task.roles={roles!r}: needs task.kind='coding' and task.centralised=True, allowed is ()"]
    names = all(type(name) is str and re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) for name in roles)
    if roles and not (names and 2 <= len(roles) == len(set(roles)) <= MOST_ROLES):
        return [f"task.roles={roles!r}: allowed are 2 to {MOST_ROLES} different names, letters, digits and _"]
    if coding and len(agents) > MOST_ROLES:
        return [f"team.agents={agents!r}: task.kind='coding' allows 1 to {MOST_ROLES} names"]
    return []


def _advice(config: ConfigDict) -> list[str]:
    """An expert that is never asked."""
    if config.task.feedback == "expert_edits" and config.train.turns == 1:
        return [
            "task.feedback='expert_edits': with train.turns=1 no turn follows, so no expert advises, allowed "
            "are train.turns=2 or more, or another feedback"
        ]
    return []


def _centralised(config: ConfigDict) -> list[str]:
    """One agent for all roles, in a task without roles."""
    if config.task.centralised and config.task.kind in (*programs.JUDGED_ALONE, reasoning.KIND):
        return [f"task.centralised=True: task.kind={config.task.kind!r} has one role, allowed is False"]
    return []


def _expert(config: ConfigDict) -> list[str]:
    """An expert that cannot be reached."""
    bad = []
    if not re.fullmatch("auto|[A-Z_][A-Z0-9_]*|", config.expert.key_variable):
        # Not shown, and refused before config.json is written: it may be the key itself.
        bad.append("expert.key_variable: allowed are auto, nothing, or capital letters, digits and _")
    if asks_expert(config) and not config.expert.model:
        bad.append("expert.model='': task.feedback='expert_edits' asks an expert; give its name")
    return bad


def _between_turns(config: ConfigDict, base: ConfigDict) -> list[str]:
    """Turns and feedback that the task does not have."""
    kind, feedback, turns = config.task.kind, config.task.feedback, config.train.turns
    if not reasoning.between_turns(config):
        return []
    if is_dotted(kind) and feedback in FEEDBACKS["coding"]:
        return []  # the task itself says which of them it gives, see `factory.tasks`
    if is_dotted(kind) or kind == "world":  # the task decides its own feedback
        default = base.task.feedback
        own = f"task.kind={kind!r} has its own feedback"
        return [] if feedback == default else [f"task.feedback={feedback!r}: {own}"]
    allowed = FEEDBACKS.get(kind, ())
    if not allowed:
        return [f"train.turns={turns}: task.kind={kind!r} has one turn, without feedback"]
    if feedback not in allowed:
        only = f"{allowed[0]} only" if len(allowed) == 1 else ", ".join(allowed)
        return [f"task.feedback={feedback!r}: task.kind={kind!r} allows {only}"]
    return []


def _world(config: ConfigDict) -> list[str]:
    """Fields that a task whose turns are steps of one episode does not allow."""
    c = config.train
    bad: list[str] = []
    if config.task.kind != "world":
        return bad
    where = "task.kind='world'"
    if c.turns < 2:
        bad.append(
            f"train.turns={c.turns}: {where} has episodes of up to that many steps, allowed is 2 or more"
        )
    allowed = ("simultaneous", "pipeline", "discussion", "gated", "advice")
    if c.protocol not in allowed and not is_dotted(c.protocol):
        bad.append(
            f"train.protocol={c.protocol!r}: {where} allows 'simultaneous', 'pipeline', 'discussion', 'gated' "
            "and 'advice'"
        )
    if c.hand_on != "all":
        bad.append(
            f"train.hand_on={c.hand_on!r}: what follows an action in {where} is its own, allowed is 'all'"
        )
    if c.counterfactual == "reference":
        bad.append(
            f"train.counterfactual='reference': {where} has other prompts in every turn, allowed is 'nothing'"
        )
    if config.task.reward:
        bad.append(f"task.reward={config.task.reward!r}: {where} has its own rewards, allowed is ''")
    if config.task.centralised:
        bad.append(f"task.centralised=True: {where} has an action of every agent, allowed is False")
    return bad
