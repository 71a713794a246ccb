"""LessonL: agents write programs in rounds and tell each other what they learned (arXiv 2505.23946).

Search:    python -m experiments.evaluate --config=configs/lessonl.py --out=runs/lessonl/evaluation.json
Ablation:  python -m experiments.ablate --config=configs/lessonl.py --workdir=runs/ablation
Training:  python -m experiments.train --config=configs/lessonl.py:train
Result:    the default model finds a right program for 25 % of the problems with lessons, 13 % without;
           scripted authors, which know rewrites, reach a speed-up of 5.2 with lessons, 2.3 without; in
           :train,generation programs improve, the worth of lessons does not; intervals in docs/lessonl.md
Cost:      a search about 20 minutes on four CPU cores, 6 GB; scripted ten; :train,generation 20 to 30
Variants (after a colon, joined by commas):
  scripted   three scripted agents that draw from known rewrites and follow lessons; no model
  cpp        C++ problems in place of Python ones; needs g++ or clang++
  generation the starter problems, judged by tests instead of time
  train      MAGRPO on the same rounds: four chains for each problem, which get different lessons
  smoke      tiny random models, few problems and tokens, everything else real
"""

from jaxmarl_llm.config import base_config, parse_arg, presets

AGENTS = ("first", "second", "third")


def get_config(arg=None):
    """The search over the Python problems with the default model, three agents, four rounds, four lessons."""
    options = parse_arg(arg, scripted=False, cpp=False, generation=False, train=False, smoke=False)
    config = base_config()
    config.team.agents = AGENTS
    config.team.mode = "frozen"
    programs(config)
    if options.generation:
        config.task.kind = "generation"
        config.task.source = "starter"
        config.task.held_back = 0.5
        config.executor.cpu_seconds = 2.0
        config.sampling.max_new_tokens = 96
    if options.cpp:
        config.task.source = "cpp"
    if options.scripted:
        config.team.models = ("scripted:mixture",) * len(AGENTS)
        config.lessons.encoder = "ngrams"
    if options.train:
        training(config)
    if options.train and options.generation:
        learning(config)
    if options.smoke:
        presets.smoke(config)
        smoke(config)
    return config


def programs(config) -> None:
    """The problems of the search, and its settings."""
    config.task.kind = "optimisation"
    config.task.source = "python"
    config.task.test_split = "all"  # nothing is trained: every problem is new
    config.train.protocol = config.train.system = "lessonl"
    config.train.joint_mode = "aligned"
    config.train.turns = 4
    config.executor.cpu_seconds = 4.0  # a program thirty times slower than the given one counts as wrong
    config.sampling.max_new_tokens = 160
    config.sampling.temperature = 0.2
    config.sampling.max_prompt_tokens = 1024
    config.sampling.long_prompts = "truncate"
    config.sampling.stop = ("<|im_start|>",)


def training(config) -> None:
    """Two agents learn to write programs and lessons; test problems show whether they did."""
    agents_learn(config)
    config.team.agents = AGENTS[:2]
    config.train.turns = 2
    config.lessons.select = "dealt"
    config.lessons.control = 1


def agents_learn(config) -> None:
    """Settings shared by trainings in rounds of programs."""
    config.team.mode = "adapters"
    config.task.test_split = "test"
    config.train.prompts = 4
    config.train.group = 4
    config.train.prompts_per_microbatch = 4  # most prompts have one answer: a row of tokens for each
    config.train.steps = 60
    config.sampling.temperature = 0.7  # so that chains differ
    config.train.lr = 2e-4
    config.train.warmup = 2
    config.train.grad_clip = 1.0
    config.eval.samples = 2
    config.save.every = 2  # besides the journal, only updates since the last checkpoint can be lost


def learning(config) -> None:
    """Half an hour on a laptop: the easiest problems, so that there are different answers to compare."""
    config.task.eval_source = config.task.test_source = "starter[:8]"
    config.sampling.max_new_tokens = 64
    config.lessons.shown = 2
    config.train.prompts = config.train.prompts_per_microbatch = 2
    config.train.tokens_per_microbatch = 128
    config.train.steps = config.train.grade_every = 30
    config.train.lr = 5e-4


def smoke(config) -> None:
    """Few and short."""
    config.task.eval_source = config.task.test_source = f"{config.task.source}[:2]"
    config.sampling.max_new_tokens = 16
    config.train.turns = 2
    config.search.problems = 1
