"""Fields of learning from demonstrations: as a system, and as a warm-up before another one."""

import re

from jaxmarl_llm.config import experience
from jaxmarl_llm.config.fields import Read, choice, number, value
from jaxmarl_llm.config.options import ConfigDict
from jaxmarl_llm.config.systems import SFT

FILE, ROLLOUT = ".jsonl", "rollout"


def used(config: ConfigDict) -> bool:
    """Whether demonstrations are read, by the system or by a warm-up."""
    return config.train.system == SFT or config.warm_up.steps > 0


def on_rollouts(config: ConfigDict) -> bool:
    """Whether demonstrations are imitated under the prompts of a rollout."""
    return used(config) and config.sft.prompts == ROLLOUT


def draws_nothing(config: ConfigDict) -> bool:
    """Whether the system learns from demonstrations alone, without a rollout."""
    return config.train.system == SFT and config.sft.prompts != ROLLOUT


FIELDS = (
    value("sft.source", "reference",
          "Demonstrations: reference (the task's reference answers of the training split), the path of a "
          '.jsonl file of {"task_id" or "messages", "agent", "text", "weight"}, or the dotted name of a '
          "function of your own. The function maps an item to {agent: text, or a list of texts}, to a list "
          "of chains [{agent: text}, ..], or to a list of rows as in such a file.",
          Read(used, "only train.system='sft' and warm_up.steps above 0 read demonstrations")),
    choice("sft.prompts", "given",
           "Prompts under which demonstrations are imitated.",
           {"given": "the task's own, or those of the rows",
            "rollout": "those that the agents read when the team answers train.prompts problems, also in later turns "
                       "(DAgger)"},
           read=Read(used, "only train.system='sft' and warm_up.steps above 0 read demonstrations")),
    number("sft.batch", 16,
           "Demonstrations of each agent in an iteration; in a warm-up with sft.prompts='rollout' the "
           "number of problems.", low=1),
    # The warm-up is a stage before the training: all agents imitate the demonstrations of the section sft.
    number("warm_up.steps", 0, "Iterations of the warm-up; 0: none.", low=0),
    number("warm_up.lr", 5e-4, "Learning rate of AdamW in the warm-up; the rest of the optimizer is that "
           "of train.", low=0),
    value("warm_up.protocol", "", "Protocol of the warm-up, as train.protocol; empty: that of the training."),
    value("warm_up.folder", "",
          "Run folder of the warm-up, shared by runs that name the same one; {seed} is the seed; empty: "
          "warm_up in the run folder."),
)  # fmt: skip


def problems(config: ConfigDict, base: ConfigDict) -> list[str]:
    """One sentence per field that learning from demonstrations does not allow."""
    return _warm_up(config) + (_demonstrations(config) if used(config) else [])


def _demonstrations(config: ConfigDict) -> list[str]:
    """Demonstrations that cannot be read, or do not fit the updates."""
    source, c = config.sft.source, config.train
    bad = []
    if not (source in ("reference",) or source.endswith(FILE) or re.fullmatch(r"\w+([.:]\w+)+", source)):
        bad.append(
            f"sft.source={source!r}: allowed are reference, the path of a {FILE} file, or the dotted name "
            "of a function"
        )
    if on_rollouts(config):
        bad += _rollouts(config)
    if c.minibatches < 1 or c.prompts_per_microbatch < 1:
        return bad  # refused elsewhere
    if c.system == SFT and config.sft.prompts == ROLLOUT:  # it has train.prompts
        return bad
    size, parts = config.sft.batch, c.minibatches if c.system == SFT else 1
    if size % parts or (size // parts) % c.prompts_per_microbatch:
        bad.append(
            f"sft.batch={size}: train.minibatches={parts} times train.prompts_per_microbatch="
            f"{c.prompts_per_microbatch} must divide it"
        )
    return bad


def _rollouts(config: ConfigDict) -> list[str]:
    """Fields that the prompts of a rollout do not allow."""
    bad, what = [], f"sft.prompts={config.sft.prompts!r}"
    if config.sft.source.endswith(FILE):
        bad.append(f"{what}: sft.source={config.sft.source!r} has prompts of its own, allowed is 'given'")
    if config.tools.functions or config.tools.servers or config.tools.of_task:
        bad.append(f"{what}: demonstrations are of answers, and agents have tools; allowed is 'given'")
    return bad


def _warm_up(config: ConfigDict) -> list[str]:
    """Fields that a warm-up does not allow, or that have no effect without one."""
    c = config.warm_up
    if not c.steps:
        unread = [name for name in ("protocol", "folder") if c[name]]
        return [f"warm_up.{name}={c[name]!r}: warm_up.steps is 0, allowed is ''" for name in unread]
    bad = []
    if config.team.begin:
        bad.append(f"team.begin={config.team.begin!r}: with warm_up.steps={c.steps} the warm-up is the begin")
    if config.team.mode == "frozen":
        bad.append(f"warm_up.steps={c.steps}: team.mode='frozen' learns nothing, allowed is 0")
    lacking = {"lessonl": "lessons", experience.NAME: "instructions"}
    if what := lacking.get(c.protocol or config.train.protocol):
        bad.append(
            f"warm_up.protocol={c.protocol!r}: demonstrations have no {what}; name another "
            "protocol, such as 'repeated'"
        )
    return bad
