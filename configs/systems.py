"""Published systems on the default model and the starter problems; they differ in how a team learns.

Command:   python -m experiments.train --config=configs/systems.py:marloo
Result:    docs/game.md compares most on a game with a known optimum; not run to the end here
Cost:      as configs/coding.py, with ,smoke under a minute
Variants (after a colon; docs/systems.md has the equation and the source of each):
  mareinforce, marloo, maremax, dr_mas, at_grpo, maporl, mlpo, c3, ccpo, centralised, iac, maac, madpo,
  madpo_iter, dpo, malt, sweet, marlhf, marlhf_iter, der, mutual,
  corex, corex_review, corex_retrieve (protocols, which MAGRPO trains)
                 (for iac and maac, config.critic says what critics read, critic.form=v or q, and with iac
                 whether they are heads on the agents' own bodies, critic.shared)
  smoke          with one of these: two tiny random models. They cannot write programs, so letters that they
                 write are rewarded (jaxmarl_llm/tasks/toys/letters.py); everything else real. maporl, mlpo,
                 malt, sweet and corex answer riddles (jaxmarl_llm/tasks/reasoning/riddles.py), der has no
                 models, and mutual acts in the room with a ball
"""

from jaxmarl_llm.config import UserError, agent_settings, parse_arg, presets
from jaxmarl_llm.config.files import experiment

coding = experiment("coding")

# The fields that turn the default run, MAGRPO, into another system.
SYSTEMS = {
    "mareinforce": {},
    "marloo": {},
    "maremax": {},
    "dr_mas": {},
    # Four samples per agent and turn, the best joint answer continues, clipped as in the paper.
    "at_grpo": {
        "train.turns": 2, "train.hand_on": "best", "train.group": 4, "train.joint_mode": "aligned",
        "train.clip": 0.2, "train.local_weight": 1.0,
    },
    # Questions, not programs: every answer of the first turn is revised once after reading the partner's; PPO with
    # value models, as in the paper.
    "maporl": {
        "task.kind": "reasoning", "task.source": "sums", "task.feedback": "heard_scored", "train.turns": 2,
        "train.later_samples": 1, "train.joint_mode": "aligned", "sampling.max_new_tokens": 32,
        "maporl.value_model": True, "maporl.kl_reward": 0.002, "train.epochs": 4, "train.clip": 0.2,
        "critic.updates": 4,
    },
    # Questions too: three frozen peers answer once, the leader answers several times after the same answers.
    "mlpo": {
        "task.kind": "reasoning", "task.source": "sums", "task.total": "last", "train.protocol": "leader",
        "train.joint_mode": "aligned", "team.agents": ("first", "second", "third", "leader"),
        "team.agent.first.trainable": False, "team.agent.second.trainable": False,
        "team.agent.third.trainable": False, "sampling.max_new_tokens": 32,
    },
    # Questions of three kinds, and three scripts of different prices: a router learns whom to ask.
    "der": {
        "task.kind": "reasoning", "task.source": "routes", "train.protocol": "routed", "train.joint_mode": "aligned",
        "team.agents": ("cheap", "mid", "dear"), "train.turns": 2,
        "team.models": ("scripted:cheap", "scripted:mid", "scripted:dear"), "router.costs": (0.01, 0.03, 0.10),
    },
    # A room with a ball: an adviser sees it, an actor walks; each episode is also played without advice.
    "mutual": {
        "task.kind": "world", "task.source": "ball", "train.protocol": "advice", "train.counterfactual": "solo",
        "team.agents": ("adviser", "actor"), "train.turns": 6, "train.later_samples": 1, "train.group": 8,
        "train.grade_every": 0,
        "train.joint_mode": "aligned", "sampling.max_new_tokens": 16,
    },
    # Three helpers, three mains after each.
    "c3": {"train.protocol": "tree", "train.joint_mode": "aligned", "train.group": 3},
    # A missing part would leave no program to run, so the untrained agent's part takes its place.
    "ccpo": {"train.joint_mode": "aligned", "train.counterfactual": "reference"},
    # One reply holds both functions.
    "centralised": {
        "team.agents": ("team",), "task.centralised": True, "train.joint_mode": "aligned",
        "sampling.max_new_tokens": 128, "sampling.stop": ("<|im_start|>",),
    },
    "iac": {"train.joint_mode": "aligned", "train.normalise": True, "train.normalise_by": "agent"},
    "maac": {"train.joint_mode": "aligned", "train.normalise": True, "train.normalise_by": "agent"},
    # Ten iterations of eight joint answers to each problem, then pairs of all of them; 16 of 28 at most.
    "madpo": {"train.joint_mode": "aligned", "train.group": 8, "preference.pairs": 16},
    "madpo_iter": {"train.joint_mode": "aligned", "train.group": 8, "preference.replay": "current"},
    # Each agent learns from its own answers to its prompt; the reference is the untrained model.
    "dpo": {"train.joint_mode": "aligned", "train.group": 8, "preference.pairs": 16, "preference.reference": True},
    # Questions: generator, verifier, refiner, three answers of each per path; 27 final answers per question.
    "malt": {
        "task.kind": "reasoning", "task.source": "sums", "task.total": "last", "train.protocol": "tree",
        "team.agents": ("generator", "verifier", "refiner"), "train.joint_mode": "aligned", "train.group": 3,
        "sampling.max_new_tokens": 32,
    },
    # A riddle: who asks the partner for both parts of a hidden pair can name it. Three dialogues about each.
    "sweet": {
        "task.kind": "reasoning", "task.source": "guess", "task.total": "last", "train.protocol": "dialogue",
        "train.turns": 3, "team.agents": ("actor", "partner"), "train.joint_mode": "aligned", "train.group": 3,
        "train.prompts": 8, "task.train_split": "all", "task.eval_split": "all", "task.test_split": "all",
        "preference.selection": "halves", "preference.nll": 0.01, "sampling.max_new_tokens": 16,
    },
    "marlhf": {"train.joint_mode": "aligned", "preference.pairs": 0},
    "marlhf_iter": {"train.joint_mode": "aligned", "preference.pairs": 0, "preference.replay": "nearest"},
}  # fmt: skip
# Corex, which is only protocols: two teams and a judge; edits one after the other; answers and scores.
_COREX = {
    "task.kind": "reasoning", "task.source": "sums", "task.total": "last", "train.joint_mode": "aligned",
    "sampling.max_new_tokens": 32,
}  # fmt: skip
COREX = {
    "corex": {
        "train.protocol": "teams", "team.agents": ("first", "second", "third", "fourth", "judge"),
        "train.turns": 2, "eval.vote": "judge",
    },
    "corex_review": {
        "train.protocol": "review", "team.agents": ("first", "second", "third"), "eval.vote": "last",
    },
    "corex_retrieve": {
        "train.protocol": "retrieve", "team.agents": ("first", "second", "score_first", "score_second"),
        "eval.vote": "best",
    },
}  # fmt: skip
# With ,smoke the systems for questions answer these riddles, for as many agents.
RIDDLES = {
    "maporl": "clues", "mlpo": "trust", "malt": "lock3", "sweet": "guess", "corex": "lock3", "corex_review": "lock3",
    "corex_retrieve": "trust",
}  # fmt: skip
ALL = SYSTEMS | {name: _COREX | fields for name, fields in COREX.items()}


def get_config(arg=None):
    """The system named after the colon; ValueError for none or several."""
    options = parse_arg(arg, smoke=False, **dict.fromkeys(ALL, False))
    chosen = [name for name in ALL if options[name]]
    if len(chosen) != 1:
        raise UserError(f"config options name {chosen}; allowed is one of {', '.join(ALL)}")
    config = coding.get_config()
    config.train.system = chosen[0] if chosen[0] in SYSTEMS else "magrpo"
    agent_settings.declare(config, ALL[chosen[0]])
    config.update_from_flattened_dict(ALL[chosen[0]])
    if config.task.kind != "coding":
        config.task.test_source = ""  # the default is a slice of the coding problems
    if chosen[0] == "sweet":
        config.team.models = (config.model, "scripted:answerer")
    if options.smoke:
        presets.smoke(config)
        config.policy.remat = "none"
        if chosen[0] in RIDDLES:
            riddles(config, chosen[0])
            return config
        if config.train.system == "mutual":
            room(config)
            return config
        if config.train.system == "der":
            config.task.eval_source = config.task.test_source = "routes[:6]"
            return config
        config.task.reward = "jaxmarl_llm.tasks.toys.letters:distinct"
        config.train.local_weight = 0.0  # this reward judges only the joint answer
        # Problems with prompts of about the same length, and small programs: little to compile.
        config.task.source = "starter[7:11]"
        config.task.eval_source = config.task.test_source = "starter[5:7]"
        config.sampling.max_new_tokens = 8
        config.preference.update(collect=1, batch=4, model_updates=4)
    return config


def riddles(config, name):
    """Tiny models that answer with one of three words, so some are right: random letters have no number."""
    config.model = "game-tiny"
    config.task.source = RIDDLES[name]
    if name == "corex":
        config.team.agents = ("first", "second", "judge")
    config.task.eval_source = config.task.test_source = ""
    if config.train.system == "malt":
        config.preference.update(collect=1, batch=4)
        config.malt.update(threshold=0.1, sft_steps=1)  # a guess is right in one of three cases
        config.train.steps = 3
    if config.train.system == "sweet":
        config.team.models = (config.model, "scripted:answerer")
        config.preference.update(collect=1, batch=4, model_updates=2)
        config.sweet.update(candidates=2, critic_steps=1)
        config.train.prompts = 8  # with two of the nine pairs, often all guesses would be wrong
        config.train.steps = 3
    config.task.train_split = config.task.eval_split = config.task.test_split = "all"
    config.train.group = 3 if config.train.system == "malt" else 8  # two answers are often both wrong
    config.sampling.max_new_tokens, config.sampling.max_prompt_tokens, config.sampling.stop = 2, 192, ()
    if name in COREX:
        config.sampling.max_prompt_tokens = 448  # a judge reads what two teams wrote


def room(config):
    """Tiny models that say where to go, in short episodes."""
    config.model = "game-tiny"
    config.task.eval_source = config.task.test_source = "ball[:32]"
    config.train.turns, config.train.prompts, config.train.group = 8, 8, 8  # few random walks get there
    config.sampling.max_new_tokens, config.sampling.max_prompt_tokens, config.sampling.stop = 2, 192, ()
