"""Fields of learning from teachers' distributions and demonstrations (FuseLLM, arXiv 2401.10491)."""

from jaxmarl_llm.config import imitation
from jaxmarl_llm.config.fields import Read, choice, number
from jaxmarl_llm.config.options import ConfigDict


def used(config: ConfigDict) -> bool:
    """Whether demonstrations have teachers."""
    return imitation.used(config) and config.distil.weight > 0


_READ = Read(used, "only distil.weight above 0 reads it")
FIELDS = (
    number("distil.weight", 0.0,
           "Weight w of the teachers, for demonstrations in a file that experiments.fuse wrote. The loss "
           "is (1 - w) cross-entropy of the text + w KL(teachers || agent); 0: only the text.",
           low=0, high=1,
           read=Read(imitation.used, "only train.system='sft' and warm_up.steps above 0 read demonstrations")),
    choice("distil.fuse", "min_ce", "How several teachers of a text are combined, by their cross-entropy C "
           "on it.",
           {"min_ce": "the one with the smallest C", "avg_ce": "their mean with weights exp(-C)"}, read=_READ),
    choice("distil.cost", "byte", "Unit in which C is computed, in nats.",
           {"byte": "per byte of the text, which all teachers share",
            "token": "per token of the teacher, as in the released code, to reproduce it"}, read=_READ),
    choice("distil.align", "bytes", "How tokens of a teacher with another tokenizer become the agent's.",
           {"bytes": "by the bytes at which they begin and end",
            "edits": "by edit distances, as in the paper"},
           read=_READ),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence if teachers are needed and the demonstrations have none."""
    source = config.sft.source
    if used(config) and not source.endswith(imitation.FILE):
        return [
            f"distil.weight={config.distil.weight}: sft.source={source!r} has no teachers; allowed are 0 and the path "
            f"of a {imitation.FILE} file that experiments.fuse wrote"
        ]
    return []
