"""Fields of sampling: how completions are drawn, and how long prompts and completions may be."""

from jaxmarl_llm.config.fields import choice, number, value
from jaxmarl_llm.config.options import ConfigDict

FIELDS = (
    number("sampling.max_new_tokens", 256, "Longest completion in tokens, the end-of-text token counted.",
           low=1),
    number("sampling.temperature", 1.0,
           "Divisor of the logits, in training and in sampled evaluations; above 0.", low=0),
    number("sampling.top_k", 0, "Keep the k likeliest tokens; 0: all.", low=0),
    number("sampling.top_p", 1.0, "Keep the likeliest tokens that reach this probability; 1: all.",
           low=1e-6, high=1),
    number("sampling.min_p", 0.0,
           "Keep tokens at least this times as likely as the likeliest; 0: all.", low=0, high=0.999999),
    value("sampling.stop", (), 'Texts that end a completion, such as ("\\n\\n", "<|im_start|>").'),
    choice("sampling.dtype", "",
           "Dtype of a copy of the parameters to sample with; empty: policy.dtype. Another one makes the "
           "sampler differ from the policy that is trained, see train.importance_cap.",
           ("", "float32", "bfloat16")),
    number("sampling.max_prompt_tokens", 1024, "Longest prompt in tokens, chat markup counted.", low=1),
    choice("sampling.long_prompts", "error", "What happens to longer prompts.",
           {"error": "", "truncate": "cut on the left, with a warning"}),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that cannot be."""
    c, bad = config.sampling, []
    if c.temperature == 0:
        bad.append("sampling.temperature=0: training needs samples that differ; allowed: any number above 0")
    if not all(type(text) is str and text for text in c.stop):
        bad.append(f"sampling.stop={tuple(c.stop)!r}: allowed are texts that are not empty")
    return bad
