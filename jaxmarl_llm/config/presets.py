"""Settings that several config files share."""

from jaxmarl_llm.config.options import ConfigDict


def laptop(c: ConfigDict) -> None:
    """How the default model learns on two CPU cores, whatever the task."""
    c.sampling.stop = ("<|im_start|>",)  # the next message
    c.train.joint_mode = "cross"
    c.train.lr = 5e-4
    c.train.warmup = 2
    c.train.decay = "linear"
    c.train.grad_clip = 0.0
    c.train.tokens_per_microbatch = 160  # measured: few rows stay empty, products are still wide
    c.eval.samples = 3
    c.save.every = 5


def smoke(c: ConfigDict) -> None:
    """The whole path in seconds: it proves that everything runs, not that anything is learned."""
    c.model = "random-tiny"
    c.team.rank = 2
    c.sampling.max_new_tokens = 16
    c.train.steps = 2
    c.train.decay = "constant"  # so that a larger train.steps goes on from here
    c.train.prompts = 2
    c.train.prompts_per_microbatch = min(c.train.prompts_per_microbatch, 2)
    c.train.group = 2
    c.eval.every = 1
    c.eval.samples = 2
    # A source may be a slice already, and of a slice there is none.
    c.task.eval_source = c.task.test_source = f"{c.task.source.partition('[')[0]}[:4]"
    c.save.every = 1
