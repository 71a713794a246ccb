"""Settings that several config files share."""

from jaxmarl_llm.config.options import ConfigDict


def laptop(c: ConfigDict) -> None:
    """Settings with which the default model learns on two CPU cores, for any task."""
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
    """A complete run in seconds: it shows that everything runs, not that agents learn."""
    c.model = "random-tiny"
    c.team.rank = 2
    c.sampling.max_new_tokens = 16
    c.train.steps = 2
    c.train.decay = "constant"  # so that the run can be continued with a larger train.steps
    c.train.prompts = 2
    c.train.prompts_per_microbatch = min(c.train.prompts_per_microbatch, 2)
    c.train.group = 2
    c.eval.every = 1
    c.eval.samples = 2
    # A source may already have a slice, and a slice of a slice is not allowed.
    c.task.eval_source = c.task.test_source = f"{c.task.source.partition('[')[0]}[:4]"
    c.save.every = 1
