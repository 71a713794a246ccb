"""The published coding experiments of MAGRPO (arXiv 2508.04652) and its code, one `Experiment` each.

What was published of their outcome, 0..100, second-hand ("late": in the last arXiv version):

he_1turn                  return 83.7, structure 100.0, syntax 97.8, tests 61.6, cooperation 83.4
he_2turn_level_feedback   return 85.8, tests 67.9, cooperation 84.9 over both turns (late: 86.7, 68.4, 84.9)
he_2turn_expert           only a curve (appendix: guided against self-evolving)
che_1turn                 no number found
che_2turn_level_feedback  return 88.5, tests 75.0, cooperation 86.3 over both turns (late)
che_2turn_expert          only a curve, as above
mbpp_..                   not in the paper's tables

Prompts have the published structure (`jaxmarl_llm/tasks/coding/published.py`), without a chat template, as
published (`model_options.chat`). The twins on the default model keep its own prompts and chat template.

Choices where the sources are unclear: the two-turn scripts of HumanEval and CoopHumanEval set discount 0.9,
which CoMLRL 1.4.3 does not read; che_1turn has the epochs and sampling of che_2turn; top_k is 0, while the
first version of the code had 50. CoopHumanEval and MBPP are files that you provide: --config.task.source,
--config.task.eval_source and --config.task.test_source, as named below, with the slices.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What was run.

    train, evaluated: problems, as published. validation: those that choose the best checkpoint, which was not
    published: further problems if there are any, else the last ones of ``train``. epochs: over ``problems``
    training problems, one at a time. ``feedback`` and the last three fields matter only with two turns;
    ``expert_edits`` asks `EXPERT`, or the default model in the small twin.
    """

    train: str
    evaluated: str
    validation: str
    problems: int
    epochs: int
    temperature: float
    top_p: float
    turns: int = 1
    feedback: str = "level_feedback"
    discount: float = 1.0
    turn_weights: tuple[float, ...] = ()


HE = ("humaneval[33:133]", "humaneval[0:32]", "humaneval[133:164]", 100)
HE_LONG = ("humaneval[33:147]", "humaneval[0:32]", "humaneval[147:163]", 114)
CHE = ("CoopHumanEval.jsonl[16:66]", "CoopHumanEval.jsonl[:16]", "CoopHumanEval.jsonl[66:]", 50)
MBPP = ("MBPP.jsonl[:50]", "MBPP.jsonl[50:66]", "MBPP.jsonl[66:82]", 50)
MBPP_LONG = ("MBPP.jsonl[33:163]", "MBPP.jsonl[:32]", "MBPP.jsonl[163:179]", 130)

EXPERT = {"kind": "anthropic", "model": "claude-sonnet-4-20250514"}  # the paper's appendix names the family
SMALL_EXPERT = {"kind": "local", "model": "smollm2-135m-instruct", "max_tokens": 256}

EXPERIMENTS = {
    "he_1turn": Experiment(*HE, 10, 0.7, 0.9),
    "he_2turn_level_feedback": Experiment(*HE_LONG, 6, 0.7, 0.9, turns=2, discount=0.9),
    "he_2turn_expert": Experiment(
        *HE_LONG, 6, 0.7, 0.9, turns=2, feedback="expert_edits", discount=0.9
    ),
    "che_1turn": Experiment(*CHE, 8, 0.8, 0.95),
    "che_2turn_level_feedback": Experiment(*CHE, 8, 0.8, 0.95, turns=2, discount=0.9),
    "che_2turn_expert": Experiment(
        *CHE, 8, 0.8, 0.95, turns=2, feedback="expert_edits", discount=0.9
    ),
    "mbpp_1turn": Experiment(*MBPP, 20, 0.8, 0.95),
    "mbpp_2turn_level_feedback": Experiment(
        *MBPP_LONG, 8, 0.8, 0.95, turns=2, turn_weights=(1.2, 0.8)
    ),
    "mbpp_2turn_expert": Experiment(
        *MBPP_LONG, 8, 0.8, 0.95, turns=2, feedback="expert_edits", turn_weights=(1.2, 0.8)
    ),
}  # fmt: skip


def apply(config, experiment: Experiment) -> None:
    """Two full copies of Qwen2.5-Coder-3B, as published; MAGRPO's own loss (no std, no clip)."""
    config.model = "Qwen/Qwen2.5-Coder-3B"
    config.team.mode = "full"
    config.policy.dtype = "bfloat16"
    config.policy.remat = "full"
    config.task.prompts = "published"
    config.model_options.chat = False  # the original uses no chat template
    config.task.cooperation = "paper"
    config.task.parsing = "paper"
    config.task.source, config.task.train_split = experiment.train, "all"
    config.task.eval_source, config.task.eval_split = experiment.validation, "all"
    config.task.test_source, config.task.test_split = experiment.evaluated, "all"
    config.sampling.max_new_tokens = 256
    config.sampling.max_prompt_tokens = 2048
    config.sampling.temperature, config.sampling.top_p = experiment.temperature, experiment.top_p
    config.train.prompts = 1
    config.train.group = 4
    config.train.lr = 2e-5
    config.train.weight_decay = 0.01
    config.train.grad_clip = 0.0  # the original clips no gradients
    config.train.steps = experiment.epochs * experiment.problems
    config.eval.every = 50
    in_turns(config, experiment, EXPERT)


def in_turns(config, experiment: Experiment, expert: dict) -> None:
    """An experiment's settings for turns, which its small twin also uses."""
    config.train.turns = experiment.turns
    config.train.discount = experiment.discount
    config.train.turn_weights = experiment.turn_weights
    config.train.turn_loss = "mean" if experiment.turns > 1 else "return"  # the original's sum of means
    config.task.feedback = experiment.feedback
    if experiment.feedback == "expert_edits":
        config.expert.update(expert)
