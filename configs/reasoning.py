"""Language models answer questions with checkable answers, alone or after reading each other's answers.

Command:   python -m experiments.train --config=configs/reasoning.py
Result:    riddles: docs/reasoning.md; sums: docs/comparison.md#questions; words: not measured yet
Cost:      not measured yet; two CPU cores are enough
Variants (after a colon, comma-separated):
  words          sums in words instead of sums of numbers
  solo           one agent, which is GRPO
  smoke          tiny random models, everything else real
  clues          MAPoRL: a tiny model learns to give its scripted partner the word that the partner needs, see
                 docs/reasoning.md; with --config.maporl.horizon=current only its own answers are rewarded
  trust          a tiny model learns which of three scripted agents to trust, see docs/reasoning.md
  lock3          MALT: three tiny models in a chain pass on what the one before has read, at first in 60 % of
                 the cases, and learn to do it always; with --config.task.source=lock3:shuffled nothing can be
                 learned
  routes         DER: a router learns which of three scripts, of different prices, to ask; with
                 --config.task.source=routes:two_step --config.train.turns=2 some questions need two of them
  guess          SWEET-RL: a tiny model learns to ask a scripted partner for what it needs, see docs/reasoning.md; with
                 --config.sweet.privileged=False its critic knows no more than the model
"""

from jaxmarl_llm.config import UserError, base_config, parse_arg, presets
from jaxmarl_llm.config.files import experiment

game = experiment("game")
RIDDLES = ("clues", "trust", "lock3", "guess", "routes")


def get_config(arg=None):
    """Two agents that discuss sums, or one of the variants named in the module's docstring."""
    options = parse_arg(arg, words=False, solo=False, smoke=False, **dict.fromkeys(RIDDLES, False))
    riddles = [name for name in RIDDLES if options[name]]
    if riddles:
        others = [name for name in options if options[name] and name != riddles[0]]
        if others:
            raise UserError(f"config option {riddles[0]} goes with no other, not with {others[0]}")
        return riddle(riddles[0])
    config = base_config()
    config.task.kind = "reasoning"
    config.task.source = "words" if options.words else "sums"
    presets.laptop(config)
    config.train.joint_mode = "aligned"
    config.team.agents = ("first",) if options.solo else ("first", "second")
    config.train.protocol = "simultaneous" if options.solo else "discussion"
    config.task.total = "last" if options.solo else "mean"  # a vote of two is the first one's answer
    config.sampling.temperature = 0.7
    config.sampling.max_new_tokens = 32
    config.warm_up.steps = 4  # the form of an answer
    config.train.steps = 40
    config.train.prompts = 8
    config.train.prompts_per_microbatch = 4
    config.train.group = 8
    config.eval.every = 20
    config.eval.problems = 32
    config.eval.vote = "majority"
    if options.smoke:
        presets.smoke(config)
        config.warm_up.steps, config.policy.remat = 0, "none"
    return config


def riddle(source):
    """A riddle with a known optimum, for tiny models, trained as in configs/game.py."""
    config = game.get_config()
    config.task.kind, config.task.source, config.task.feedback = "reasoning", source, "level_feedback"
    config.sampling.max_prompt_tokens = 192
    config.train.prompts = config.train.prompts_per_microbatch = 3 if source == "lock3" else 9
    if source == "trust":
        config.team.agents = ("red", "green", "blue", "leader")
        config.team.models = ("scripted:repeater",) * 3 + ("game-tiny",)
        config.train.system, config.train.protocol, config.task.total = "mlpo", "leader", "last"
        config.sft.source, config.sft.batch = "jaxmarl_llm.tasks.reasoning.riddles:undecided", 144
        config.warm_up.steps, config.warm_up.lr = 1000, 1e-3
        config.train.prompts = config.train.prompts_per_microbatch = 18
        config.train.group, config.train.lr, config.train.steps = 16, 1e-3, 100
    elif source == "lock3":
        malt(config)
    elif source == "guess":
        dialogues(config)
    elif source == "routes":
        routes(config)
    else:
        config.team.models = ("game-tiny", "scripted:repeater")
        config.train.turns, config.train.later_samples = 2, 1
        config.task.feedback = "heard"
        config.train.system, config.train.backup = "maporl", "mean"
        config.maporl.discount = 0.9  # with 0.3 the noise of the first turn is larger than what is left
        config.train.group, config.train.lr, config.train.steps = 32, 1e-3, 160
    return config


def malt(config):
    """A warm-up on hesitant chains, trees of the warmed-up team, imitation of good answers, preferences."""
    config.team.agents, config.task.total = ("generator", "verifier", "refiner"), "last"
    config.train.system, config.train.protocol, config.train.group = "malt", "tree", 3
    config.sft.source, config.sft.batch = "jaxmarl_llm.tasks.reasoning.riddles:hesitant", 45
    config.warm_up.steps, config.warm_up.lr = 200, 3e-3
    # Without the better answers' likelihood term, both answers of a pair lose probability to other words.
    config.preference.update(collect=30, pairs=0, batch=36, beta=0.5, nll=0.1)
    config.malt.sft_steps, config.train.steps, config.train.lr = 40, 270, 1e-3


def dialogues(config):
    """Three turns with a partner who knows a pair: 30 iterations of dialogues, 20 of critic, 300 of agent.

    At the start the agent asks in half of the cases and uses the replies.
    """
    config.team.agents, config.team.models = ("actor", "partner"), ("game-tiny", "scripted:answerer")
    config.train.system, config.train.protocol, config.train.turns = "sweet", "dialogue", 3
    config.train.joint_mode, config.task.total = "aligned", "last"
    config.sft.source, config.sft.batch = "jaxmarl_llm.tasks.reasoning.guess:half_asking", 72
    config.warm_up.steps, config.warm_up.lr = 400, 3e-3
    config.train.group, config.train.steps = 16, 350
    config.sweet.update(candidates=4, critic_steps=20, critic_beta=1.0)
    config.preference.update(collect=30, selection="halves", batch=36, nll=0.1)
    config.preference.update(model_updates=8, model_lr=3e-3, pairs_per_microbatch=36)
    config.eval.every = 0


def routes(config):
    """Three scripts, three kinds of questions: dearer scripts answer more kinds. Only the router learns."""
    config.team.agents = ("cheap", "mid", "dear")
    config.team.models = tuple(f"scripted:{name}" for name in config.team.agents)
    config.task.train_split, config.task.eval_split, config.task.test_split = "train", "validation", "test"
    config.train.system, config.train.protocol, config.train.joint_mode = "der", "routed", "aligned"
    config.router.costs = (0.01, 0.03, 0.10)
    config.train.turns, config.train.group, config.train.prompts = 1, 4, 18
    config.train.prompts_per_microbatch = 18
    config.train.steps, config.train.lr = 200, 0.0
    config.eval.samples, config.eval.every = 1, 0
