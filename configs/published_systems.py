"""Published systems at the scale of their papers, for accelerators; configs/systems.py has small versions.

Command:   python -m experiments.train --config=configs/published_systems.py:malt
Plan:      python -m experiments.plan --config=configs/published_systems.py:malt --topology=v5p:2x2x1
Result:    not run here; docs/systems.md has the results of the plans
Cost:      four chips of 95 GiB hold each, and the servers of frozen models
Variants (one of them after a colon; maporl by default), with their published outcome, second-hand:
  maporl           accuracy in turns 1, 2, 3 with Phi-3-mini, trained on ANLI, tested on GSM8K: 67.7, 71.2, 72.0
                   (untrained 67.7, 68.8, 64.0): reproduce the sign of turn 3 minus turn 1 (arXiv 2502.18439)
  mlpo             leaders of 7 billion parameters beat single models and untrained teams on BBH, MATH, MMLU;
                   no row of the table was read (arXiv 2507.08960)
  corex_discuss, corex_review, corex_retrieve
                   nothing is trained: use experiments.evaluate instead of train; with GPT-3.5 and 4 more than
                   6 points above chains of thought with examples on StrategyQA (arXiv 2310.00280)
  malt             relative gains of 15.66 % on MATH and 7.42 % on GSM8K with Llama-3.1-8B (arXiv 2412.01928)
  sweet            6 points of success above other methods for several turns on ColBench, with Llama-3.1-8B
                   (arXiv 2503.15478)

Questions come from a package that you install (docs/reasoning.md), with 200 GSM8K questions to train on and
no solutions. Our own choices, where the sources are open or a part is not built: the number of problems in an
iteration, adapters where nothing else is named below, sampling temperatures, and prompts. MAPoRL has no
penalty for an answer without its box; its agents see the truth with noise, not the verifier's scores. An
endpoint serves the frozen models of MLPO and SWEET-RL: set --config.expert.base_url. SWEET-RL asks about
coding problems with shortened descriptions, instead of ColBench.
"""

from jaxmarl_llm.config import UserError, agent_settings, base_config, parse_arg

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
QWEN_3B, QWEN_7B = "Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-7B-Instruct"


def get_config(arg=None):
    """The system named in ``arg``, one of those in the module's docstring; MAPoRL by default."""
    options = parse_arg(arg, **dict.fromkeys(SYSTEMS, False))
    chosen = [name for name in SYSTEMS if options[name]] or ["maporl"]
    if len(chosen) > 1:
        raise UserError(f"config options {' and '.join(chosen)} exclude each other")
    config = base_config()
    config.policy.dtype, config.policy.remat = "bfloat16", "full"
    config.train.joint_mode = "aligned"
    config.sampling.max_prompt_tokens = 2048
    config.eval.samples = 1
    SYSTEMS[chosen[0]](config)
    return config


def questions(config, source: str) -> None:
    """Questions of the package, its own rows to train on and for the test."""
    config.task.kind, config.task.source = "reasoning", source
    config.task.train_split, config.task.eval_split, config.task.test_split = "train", "validation", "test"


def maporl(config) -> None:
    """Two agents, three turns with separate adapters over a 4-bit base; PPO, value models, a verifier."""
    questions(config, "modelco:gsm8k")
    config.model, config.train.protocol = QWEN_3B, "relay"
    config.team.agents = ("first", "second", "first_2", "second_2", "first_3", "second_3")
    # The first turn is not trained.
    still = {f"team.agent.{name}.trainable": False for name in ("first", "second")}
    agent_settings.declare(config, still)
    config.update_from_flattened_dict(still)
    config.model_options.quantize, config.team.rank, config.team.alpha = "nf4", 8, 16.0
    config.train.system, config.train.turns, config.train.later_samples = "maporl", 3, 1
    config.task.feedback, config.task.total = "heard_scored", "vote"
    config.sampling.max_new_tokens = 300
    config.maporl.value_model, config.maporl.kl_reward, config.maporl.verifier = True, 0.002, True
    config.preference.update(collect=20, selection="halves", pairs=4)
    config.train.group, config.train.prompts, config.train.steps = 4, 16, 500
    config.train.epochs, config.train.clip, config.train.lr = 4, 0.2, 1e-5
    config.critic.updates, config.critic.lr, config.critic.clip = 4, 1e-5, 0.2
    config.eval.vote, config.eval.every = "majority", 50


def mlpo(config) -> None:
    """A leader over three frozen models; GRPO without division by length or standard deviation."""
    questions(config, "modelco:math")
    peers = (f"expert:{LLAMA}", "expert:google/gemma-2-9b-it", f"expert:{QWEN_7B}")
    config.model, config.team.agents = QWEN_7B, ("first", "second", "third", "leader")
    config.team.models = (*peers, QWEN_7B)
    config.expert.base_url = "http://localhost:8000/v1"
    config.train.system, config.train.protocol, config.task.total = "mlpo", "leader", "last"
    config.task.drop_easier_than = 0.75
    config.train.aggregation = "constant"
    config.train.group, config.train.prompts, config.train.steps = 8, 16, 500
    config.train.lr = 1e-5
    config.sampling.max_new_tokens, config.sampling.max_prompt_tokens = 1024, 4096
    config.eval.every = 50


def corex(config) -> None:
    """Five models on GSM8K; the paper trains nothing, training here is MAGRPO."""
    questions(config, "modelco:gsm8k")
    config.model = QWEN_7B
    config.team.agents = ("first", "second", "third", "fourth", "fifth")
    config.task.total = "last"
    config.train.prompts, config.train.steps, config.train.group = 16, 200, 4
    config.sampling.max_new_tokens, config.sampling.max_prompt_tokens = 300, 4096


def corex_discuss(config) -> None:
    """Two teams of two and a judge, in two rounds."""
    corex(config)
    config.train.protocol, config.train.turns, config.eval.vote = "teams", 2, "judge"


def corex_review(config) -> None:
    """Each agent edits what the one before wrote."""
    corex(config)
    config.train.protocol, config.eval.vote = "review", "last"


def corex_retrieve(config) -> None:
    """Three agents answer and three score."""
    corex(config)
    config.team.agents = (*config.team.agents, "sixth")
    config.train.protocol, config.eval.vote = "retrieve", "best"


def malt(config) -> None:
    """Generator, verifier, refiner: 27 final answers to a question, imitation, then preferences; three chains vote."""
    questions(config, "modelco:math")
    config.model, config.team.agents = LLAMA, ("generator", "verifier", "refiner")
    config.train.system, config.train.protocol, config.train.group = "malt", "tree", 3
    config.task.total = "last"
    config.train.prompts = 16
    config.preference.update(collect=50, batch=16, beta=0.1)
    config.malt.sft_steps, config.train.steps = 200, 500
    config.train.lr = 1e-5
    config.sampling.max_new_tokens, config.sampling.max_prompt_tokens = 512, 2048
    config.eval.vote = "majority"
    config.eval.chains = config.eval.samples = 3


def sweet(config) -> None:
    """Ten turns with a partner of 70 billion parameters who has read the full description."""
    config.task.kind, config.task.source = "coding", "starter:goal"
    config.model, config.team.agents = LLAMA, ("actor", "partner")
    config.team.models = (LLAMA, "expert:meta-llama/Llama-3.1-70B-Instruct")
    config.expert.base_url = "http://localhost:8000/v1"
    config.train.system, config.train.protocol, config.train.turns = "sweet", "dialogue", 10
    config.train.group, config.train.prompts = 3, 16  # three dialogues of a task
    config.sweet.update(candidates=16, critic_beta=0.1, critic_steps=50)
    config.preference.update(collect=50, beta=0.1, nll=0.01, pairs=4, selection="halves", batch=16)
    config.train.steps, config.train.lr = 200, 1e-5
    config.sampling.max_new_tokens, config.sampling.max_prompt_tokens = 256, 4096


SYSTEMS = {
    "maporl": maporl,
    "mlpo": mlpo,
    "corex_discuss": corex_discuss,
    "corex_review": corex_review,
    "corex_retrieve": corex_retrieve,
    "malt": malt,
    "sweet": sweet,
}
