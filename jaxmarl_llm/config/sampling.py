"""Fields of sampling: how completions are drawn, and how long prompts and completions may be."""

from jaxmarl_llm.config.fields import choice, number, value
from jaxmarl_llm.config.options import ConfigDict

FIELDS = (
    number("sampling.max_new_tokens", 256, "Longest completion in tokens, including the end-of-text token.",
           low=1),
    number("sampling.temperature", 1.0,
           "Divisor of the logits, in training and in sampled evaluations; above 0.", low=0),
    number("sampling.top_k", 0, "Keep the k likeliest tokens; 0: all.", low=0),
    number("sampling.top_p", 1.0, "Keep the likeliest tokens that reach this probability; 1: all.",
           low=1e-6, high=1),
    number("sampling.min_p", 0.0,
           "Keep tokens at least this times as probable as the likeliest one; 0: all.",
           low=0, high=0.999999),
    value("sampling.stop", (), 'Texts that end a completion, such as ("\n\n", "<|im_start|>"): at the '
          "first token with which it contains one, however the text is tokenized."),
    choice("sampling.dtype", "",
           "Dtype of a copy of the parameters for sampling; empty: policy.dtype. With another dtype the "
           "sampler differs from the policy that is trained, see train.importance_cap.",
           ("", "float32", "bfloat16")),
    number("sampling.max_prompt_tokens", 1024, "Longest prompt in tokens, including chat markup.", low=1),
    choice("sampling.long_prompts", "error", "What happens to longer prompts.",
           {"error": "", "truncate": "cut on the left, with a warning"}),
    value("sampling.widths", (),
          "The only lengths, in tokens, that prompts of a training are padded to, such as (256, 512, "
          "1024), ascending, the last at least max_prompt_tokens; their programs are compiled in advance. "
          "Empty: the lengths that prompts need."),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per invalid field."""
    c, bad = config.sampling, []
    if c.temperature == 0:
        bad.append("sampling.temperature=0: training needs samples that differ; allowed: any number above 0")
    bad += _widths(c)
    if not all(type(text) is str and text for text in c.stop):
        bad.append(f"sampling.stop={tuple(c.stop)!r}: allowed are texts that are not empty")
    return bad


def _widths(c: ConfigDict) -> list[str]:
    """What is wrong with the lengths that prompts are padded to."""
    widths = tuple(c.widths)
    whole = all(type(width) is int and width > 0 for width in widths)
    if not whole or list(widths) != sorted(set(widths)):
        return [
            f"sampling.widths={widths!r}: allowed are numbers of tokens, each larger than the one before it"
        ]
    if widths and widths[-1] < c.max_prompt_tokens:
        return [
            f"sampling.widths={widths!r}: prompts may have sampling.max_prompt_tokens={c.max_prompt_tokens}; allowed "
            "is a last width of at least that"
        ]
    return []
