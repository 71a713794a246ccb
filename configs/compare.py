"""Methods side by side at equal budgets, on the default model and two CPU cores.

Command:   python -m experiments.compare --task=coding --workdir=runs/compare
           runs every member below that has not been run, three seeds of the trained ones; two tables
Result:    compare.md in the workdir; docs/comparison.md says how to read it
Cost:      the tables have a column of CPU minutes
One alone: python -m experiments.train --config=configs/compare.py:task=coding,member=magrpo_cross

Tasks: coding, turns (one against two), guidance (advice between turns) and convention (turns and advice on
short problems), writing, sums and words (systems for questions). For guidance and convention,
python -m benchmarks.guidance serves the expert and runs them. Every trained member ends when both budgets of
`BUDGET`, drawn tokens and judged answers, are reached; at each of the two it is evaluated on the test items.
The learning rate of training from rewards is constant after two updates and the same for all members with the
same start. A member begins from the untrained team or from a warm-up on reference solutions
(train.system=sft). All warm-ups have the same problems, number of iterations and learning rate; there is one
for each way to divide the roles. The rates are those of coding.py:warm_up, and for convention those of
convention.py. Teams of sums and words all begin as one agent that has imitated the form of an answer for a
few iterations. MALT collects first and draws nothing later, so it ends by its number of iterations.
"""

import dataclasses

from jaxmarl_llm.config import UserError, agent_settings, parse_arg
from jaxmarl_llm.config.files import experiment

coding, writing, reasoning = experiment("coding"), experiment("writing"), experiment("reasoning")
convention = experiment("convention")

SEEDS = (0, 1, 2)
BUDGET = {  # per training: completion tokens drawn, joint answers judged
    "coding": {"tokens": 16_000, "answers": 256},
    "turns": {"tokens": 16_000, "answers": 256},
    "guidance": {"tokens": 16_000, "answers": 256},
    "convention": {"tokens": 28_000, "answers": 800},
    "writing": {"tokens": 16_000, "answers": 240},
    "sums": {"tokens": 40_000, "answers": 1024},
    "words": {"tokens": 40_000, "answers": 1024},
}
# Test settings that differ from the task's default config: problems of one statement, and samples.
TEST = {"turns": ("starter:goal", 2), "guidance": ("starter:goal", 2)}
# Factor of samples for members that several methods are compared with: their noise is in all differences.
START_SAMPLES = {"coding": 4}


@dataclasses.dataclass(frozen=True)
class Method:
    """A method: the fields that differ from its task's default config.

    Attributes:
      fields: by dotted name.
      trained: False: the initial team is evaluated.
      begins: name of the member whose agents it starts from; empty: untrained agents.
      begin_map: ``team.begin_map``, which of its agents start from which of that member's agents.
    """

    fields: dict
    trained: bool = False
    begins: str = ""
    begin_map: tuple[str, ...] = ()


SOLO_CODE = {"team.agents": ("main",), "sampling.max_new_tokens": 128, "train.joint_mode": "aligned"}
ONE_REPLY = {
    **SOLO_CODE, "team.agents": ("team",), "task.centralised": True, "sampling.stop": ("<|im_start|>",),
}  # fmt: skip
SOLO_TEXT = {"team.agents": ("writer",), "sampling.max_new_tokens": 144, "train.joint_mode": "aligned"}
ALIGNED = {"train.joint_mode": "aligned"}
PIPELINE = {**ALIGNED, "train.protocol": "pipeline"}
TURNS = {**ALIGNED, "train.turns": 2, "train.group": 4}
# One answer of each node continues: its second answers share one prompt, which is most of an update's work.
CHAIN = {**ALIGNED, "train.turns": 2, "train.hand_on": "random"}


def _feedback(turns: dict) -> dict[str, dict]:
    """Members with several turns, by what agents read between them."""
    expert = {
        **turns, "task.feedback": "expert_edits", "expert.key_variable": "", "expert.max_tokens": 256,
    }  # fmt: skip
    # benchmarks/known_expert.py serves models of these names
    experts = {"0": "skill-0", "half": "skill-0.5", "1": "skill-1", "shuffled": "shuffled"}
    return {
        "no_feedback": {**turns, "task.feedback": "plain"},
        "own_tests": {**turns, "task.feedback": "level_feedback"},
        **{f"expert_{name}": {**expert, "expert.model": model} for name, model in experts.items()},
    }


FEEDBACK = {"guidance": _feedback(TURNS), "convention": _feedback(CHAIN)}
_WARM_UP = coding.get_config("warm_up")  # as `make train` has it
WARM = {
    "train.system": "sft", "sft.source": "reference", "train.joint_mode": "aligned",
    "sft.batch": _WARM_UP.sft.batch, "train.steps": _WARM_UP.warm_up.steps,
    "train.lr": _WARM_UP.warm_up.lr, "train.decay": _WARM_UP.train.decay,
}  # fmt: skip

# After that warm-up: demonstrations of a second turn, after the team's own first answers.
LATER = {
    **WARM, **TURNS, "train.group": 1, "train.prompts": _WARM_UP.sft.batch, "sft.prompts": "rollout",
    "train.steps": 20, "train.lr": _WARM_UP.warm_up.lr / 2,
}  # fmt: skip
WARM_RATE = _WARM_UP.train.lr  # of what begins from a warm-up
# The task of docs/convention.md: short problems of two steps; each agent can do either step.
_CONVENTION = convention.get_config()
SHORT_WARM = {**WARM, "train.steps": _CONVENTION.warm_up.steps, "train.lr": _CONVENTION.warm_up.lr}
SHORT_LATER = {**LATER, "train.steps": 12, "train.prompts": 4}
RATES = {"convention": _CONVENTION.train.lr}  # where it is not `WARM_RATE`
# Systems for questions: what counts is the answer of the only or last agent, or the mean of both agents'. (In a
# vote of two that differ the first one's answer counts, and the reward hardly depends on the second.)
TWO = {"team.agents": ("first", "second")}
PEERS = ("first", "second", "third")
QUESTIONS = {
    "grpo": {},
    "discuss": {**TWO, "train.protocol": "discussion", "task.total": "mean"},
    "review": {**TWO, "train.protocol": "review"},
    "maporl": {
        **TWO, "train.system": "maporl", "train.turns": 2, "train.later_samples": 1,
        "task.feedback": "heard",  # the other methods do not see scores either
        "task.total": "mean",
    },
    "mlpo": {
        "team.agents": (*PEERS, "leader"), "train.system": "mlpo", "train.protocol": "leader",
        **{f"team.agent.{peer}.trainable": False for peer in PEERS},
    },
    "malt": {
        "team.agents": ("generator", "verifier", "refiner"), "train.system": "malt", "train.protocol": "tree",
        "train.group": 3, "preference.collect": 12, "malt.sft_steps": 20, "train.steps": 72,
        "train.budget_tokens": 0, "train.budget_answers": 0,
    },
}  # fmt: skip
ENDS_ITSELF = ("malt",)  # its training draws nothing once it has collected
FORM = {  # the form of an answer: as hard for an untrained model as the skill itself
    "train.system": "sft", "sft.source": "reference", "train.steps": 4, "train.lr": 5e-4,
}  # fmt: skip

# Trained members by name: fields, and what each begins from: the untrained team ("") or one of `WARM_UPS`.
TRAINED = {
    "coding": {
        "magrpo_cross": ({}, ("", "warm_team")),
        "magrpo_aligned": (ALIGNED, ("", "warm_team")),
        "magrpo_partners": ({"train.partner_samples": 8}, ("", "warm_team")),
        "pipeline": (PIPELINE, ("", "warm_team")),
        "grpo": (SOLO_CODE, ("", "warm_single")),
        "centralised": ({**ONE_REPLY, "train.system": "centralised"}, ("", "warm_centralised")),
    },
    "turns": {
        "one_turn": (ALIGNED, ("warm_both_turns",)),
        "one_turn_cross": ({}, ("warm_both_turns",)),
        "two_turns_tree": (TURNS, ("warm_both_turns",)),
        "two_turns_best": ({**TURNS, "train.hand_on": "best"}, ("warm_both_turns",)),
    },
    "guidance": {name: (fields, ("warm_both_turns",)) for name, fields in FEEDBACK["guidance"].items()},
    "convention": {
        name: (fields, ("warm_both_turns",))
        for name, fields in {"one_turn": ALIGNED, **FEEDBACK["convention"]}.items()
    },
    "writing": {
        "magrpo_cross": ({}, ("",)),
        "magrpo_aligned": (ALIGNED, ("",)),
        "grpo": (SOLO_TEXT, ("",)),
    },
    **{
        task: {name: (fields, ("warm_solo",)) for name, fields in QUESTIONS.items()}
        for task in ("sums", "words")
    },
}
UNTRAINED = {
    "coding": {
        "untrained_team": {},
        "untrained_single": SOLO_CODE,
        "untrained_centralised": {**ONE_REPLY, "train.system": "centralised"},
        "untrained_pipeline": PIPELINE,
        "untrained_discussion": {**ALIGNED, "train.protocol": "discussion"},
    },
    "turns": {"untrained_one_turn": ALIGNED, "untrained_two_turns": TURNS},
    "guidance": {"untrained_no_feedback": FEEDBACK["guidance"]["no_feedback"]},
    "convention": {"untrained_one_turn": ALIGNED},
    "writing": {
        "untrained_team": {},
        "untrained_single": SOLO_TEXT,
        "untrained_pipeline": PIPELINE,
        "untrained_discussion": {**ALIGNED, "train.protocol": "discussion"},
    },
    "sums": {"untrained_solo": {}},
    "words": {"untrained_solo": {}},
}
WARM_UPS = {
    "coding": {
        "warm_team": WARM,
        "warm_single": {**SOLO_CODE, **WARM},
        "warm_centralised": {**ONE_REPLY, **WARM},
    },
    "turns": {"warm_team": WARM},
    "guidance": {"warm_team": WARM},
    "convention": {"warm_team": SHORT_WARM},
    "sums": {"warm_solo": FORM},
    "words": {"warm_solo": FORM},
}
# Fields of `warm_both_turns`, a warm-up that begins from warm_team.
SECOND_WARM_UPS = {"turns": LATER, "guidance": LATER, "convention": SHORT_LATER}
# A warm-up's agents evaluated in another way, without further training: fields, and that warm-up.
_READING = {
    task: {f"warm_{name}": (members[name], "warm_both_turns") for name in ("no_feedback", "expert_1")}
    for task, members in FEEDBACK.items()
}
_ONE_TURN = {"warm_one_turn": (ALIGNED, "warm_both_turns")}
_TWO_TURNS = {"warm_two_turns": (TURNS, "warm_team")}
WARMED_UP = {
    "turns": _TWO_TURNS | _ONE_TURN,
    "guidance": _TWO_TURNS | _READING["guidance"],
    "convention": _ONE_TURN | _READING["convention"],
}


def is_warm_up(task: str, name: str) -> bool:
    """Whether a member is a warm-up: it learns from demonstrations, and others begin from it."""
    return name in WARM_UPS.get(task, {}) or name == "warm_both_turns"


def _members(task: str) -> dict[str, Method]:
    """All members of a task, in the order in which they are run and shown."""
    members = {name: Method(fields) for name, fields in UNTRAINED[task].items()}
    members |= {name: Method(fields, trained=True) for name, fields in WARM_UPS.get(task, {}).items()}
    if task in SECOND_WARM_UPS:
        members["warm_both_turns"] = Method(SECOND_WARM_UPS[task], trained=True, begins="warm_team")
    members |= {name: Method(fields, begins=warm) for name, (fields, warm) in WARMED_UP.get(task, {}).items()}
    members |= {
        name: Method(fields, trained=True) for name, (fields, starts) in TRAINED[task].items() if "" in starts
    }
    return members | {
        f"{name}_after_warm_up" if "" in starts else name: Method(
            {"train.lr": RATES.get(task, WARM_RATE), **fields},
            trained=True,
            begins=warm,
            begin_map=_begin_map(warm, fields),
        )
        for name, (fields, starts) in TRAINED[task].items()
        for warm in starts
        if warm
    }


def starts(task: str) -> dict[str, str]:
    """For every trained member of a task, the member that it is compared with.

    That is the one with the same start, agents, roles and feedback but no further training; else its start.
    """
    members = MEMBERS[task]
    seen = {
        (member.begins, _roles(member.fields)): name
        for name, member in reversed(members.items())
        if not member.trained
    }
    keys = {
        name: (member.begins, _roles(member.fields)) for name, member in members.items() if member.trained
    }
    found = {name: seen.get(key, key[0]) for name, key in keys.items()}
    return {name: start for name, start in found.items() if start}


def _roles(fields: dict) -> tuple:
    """The fields that decide who writes what and who reads what."""
    names = (
        "team.agents", "task.centralised", "train.protocol", "train.turns", "task.feedback", "expert.model",
    )  # fmt: skip
    return tuple(fields.get(name) for name in names)


def _begin_map(warm: str, fields: dict) -> tuple[str, ...]:
    """All agents start from the only one of ``warm_solo``; other warm-ups have agents of the same names."""
    agents = fields.get("team.agents", ()) if warm == "warm_solo" else ()
    return tuple(f"{agent}=first" for agent in agents if agent != "first")


def _base(task: str):
    """The default config of a task."""
    if task in ("sums", "words"):
        config = reasoning.get_config("words,solo" if task == "words" else "solo")
        config.eval.vote = ""
    elif task == "convention":
        config = convention.get_config()
        config.sft.source, config.warm_up.folder = "reference", ""  # both conventions, half and half
        config.sampling.max_prompt_tokens = 384  # a later prompt also has an answer and its feedback
    else:
        config = (writing if task == "writing" else coding).get_config()
    config.warm_up.steps = 0
    return config


MEMBERS = {task: _members(task) for task in TRAINED}


def get_config(arg=None):
    """The training config of one member; the command, which knows the folders, sets ``team.begin``."""
    options = parse_arg(arg, task="coding", member="")
    if options.task not in MEMBERS:
        raise UserError(f"config option task={options.task!r}: known are {', '.join(MEMBERS)}")
    members = MEMBERS[options.task]
    if options.member not in members:
        raise UserError(f"config option member={options.member!r}: known are {', '.join(members)}")
    member = members[options.member]
    config = _base(options.task)
    config.train.decay = "constant"
    config.train.grade_every = 0
    config.eval.every = 0
    config.eval.before = False
    config.eval.problems = 1  # no checkpoint is chosen
    if options.task in TEST:
        config.task.test_source, config.eval.samples = TEST[options.task]
    if member.trained and not is_warm_up(options.task, options.member):
        config.train.steps = 10_000  # the budgets end it
        config.train.budget_tokens = BUDGET[options.task]["tokens"]
        config.train.budget_answers = BUDGET[options.task]["answers"]
    else:
        config.eval.samples *= START_SAMPLES.get(options.task, 1)
    agent_settings.declare(config, member.fields)
    config.update_from_flattened_dict(member.fields)
    return config
