"""Fields of learning from teachers beside demonstrations (FuseLLM, arXiv 2401.10491)."""

from jaxmarl_llm.config import imitation
from jaxmarl_llm.config.fields import Read, choice, number
from jaxmarl_llm.config.options import ConfigDict


def used(config: ConfigDict) -> bool:
    """Whether demonstrations have teachers."""
    return imitation.used(config) and config.distil.weight > 0


_READ = Read(used, "only distil.weight above 0 reads it")
FIELDS = (
    number("distil.weight", 0.0,
           "Weight w of the teachers beside the demonstrations of a file that experiments.fuse wrote: the loss is "
           "(1 - w) cross-entropy of the text + w KL(teachers || agent); 0: the text alone.", low=0, high=1,
           read=Read(imitation.used, "only train.system='sft' and warm_up.steps above 0 read demonstrations")),
    choice("distil.fuse", "min_ce", "How several teachers of a text become one, by their cross-entropy C on it.",
           {"min_ce": "the one with the smallest C", "avg_ce": "their mean with weights exp(-C)"}, read=_READ),
    choice("distil.cost", "byte", "What C is in nats per.",
           {"byte": "byte of the text, the same for all teachers",
            "token": "token of the teacher's own, as in the release, to reproduce it"}, read=_READ),
    choice("distil.align", "bytes", "How the tokens of a teacher with another tokenizer become the agent's.",
           {"bytes": "by where they begin and end in the text", "edits": "by edit distances, as in the paper"},
           read=_READ),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that demonstrations without teachers do not allow."""
    source = config.sft.source
    if used(config) and not source.endswith(imitation.FILE):
        return [
            f"distil.weight={config.distil.weight}: sft.source={source!r} has no teachers; allowed are 0 and the path "
            f"of a {imitation.FILE} file that experiments.fuse wrote"
        ]
    return []
