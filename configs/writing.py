"""Two language models write about one text together: a short and a long summary, which are judged as a pair.

Command:   python -m experiments.train --config=configs/writing.py
Result:    docs/writing.md
Cost:      20 minutes and 4.9 GB on two CPU cores, measured with an earlier version
Variants (after a colon, comma-separated):
  tldr           the published TLDR experiment: two Qwen3-1.7B, full fine-tuning, for accelerators; prompts
                 have the published structure as plain text, but our words, so its numbers are not
                 comparable with the published ones (return 94.5, structure 98.7, coherence 78.5)
  arxiv          the published arXiv experiment, likewise (published: return 93.1)
  small          with arxiv: its twin on the default model and the sample abstracts, for two CPU cores
  smoke          two tiny random models, everything else real; under a minute
"""

from jaxmarl_llm.config import UserError, base_config, parse_arg, presets


def get_config(arg=None):
    """The default, or one of the variants named in the module's docstring."""
    options = parse_arg(arg, smoke=False, tldr=False, arxiv=False, small=False)
    config = base_config()
    if options.tldr and options.arxiv:
        raise UserError("config options tldr and arxiv exclude each other")
    if options.small and not (options.tldr or options.arxiv):
        raise UserError("config option small needs one of tldr, arxiv")
    writing(config, "arxiv" if options.arxiv else "tldr")
    if (options.tldr or options.arxiv) and not options.small:
        published(config)
    else:
        laptop(config)
    if options.smoke:
        presets.smoke(config)
    return config


def writing(config, kind):
    """The task: agents and texts."""
    config.task.kind = kind
    config.task.source = "sample_posts" if kind == "tldr" else "sample_abstracts"
    config.team.agents = ("short", "long") if kind == "tldr" else ("background", "method")


def laptop(config):
    """SmolLM2-135M on the sample texts, two CPU cores; cross joint answers are cheap, as no code is run."""
    presets.laptop(config)
    config.sampling.max_new_tokens = 72 if config.task.kind == "tldr" else 224
    config.train.steps = 28
    config.train.prompts = config.train.prompts_per_microbatch = 2  # both at once: fewer, wider products
    config.train.group = 6
    config.eval.every = 14
    config.eval.problems = 8


def published(config):
    """Two full copies of Qwen3-1.7B on the first 1000 texts, one epoch (OpenMLRL/LLM_Collab_Writing)."""
    config.model = "Qwen/Qwen3-1.7B"
    config.team.mode = "full"
    config.policy.dtype = "bfloat16"
    config.policy.remat = "full"
    config.task.prompts, config.model_options.chat = "published", False  # plain text, as CoMLRL's
    config.task.source = "trl-lib/tldr" if config.task.kind == "tldr" else "OpenMLRL/arXiv_abstract"
    config.sampling.max_new_tokens = 256
    config.sampling.max_prompt_tokens = 2048
    config.sampling.temperature, config.sampling.top_p = 0.7, 0.9
    config.train.steps = 1000
    config.train.prompts = 1
    config.train.group = 4
    config.train.lr = 5e-6
    config.train.weight_decay = 0.01
    config.train.grad_clip = 0.0  # the original clips no gradients
    config.eval.every = 100
