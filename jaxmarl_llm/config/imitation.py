"""Fields of learning from demonstrations: as a system, and as a warm-up before another one."""

from ml_collections import config_dict


def add_fields(c: config_dict.ConfigDict) -> None:
    """Sections with their defaults."""
    # Of train.system=sft: agents imitate demonstrations. See docs/warm_start.md.
    c.sft = config_dict.ConfigDict()
    c.sft.source = "reference"  # reference (the task's own reference answers, of the training split)
    # | path of a .jsonl file, {"task_id" or "messages", "agent", "text", "weight"} | dotted name of a
    # function of your own, item -> {agent: text, or a list of texts}
    c.sft.batch = 16  # demonstrations of each agent in an iteration
    # A stage before the training, in which all agents imitate the demonstrations of c.sft.
    c.warm_up = config_dict.ConfigDict()
    c.warm_up.steps = 0  # iterations; 0: no warm-up
    c.warm_up.lr = 5e-4  # of AdamW; the rest of the optimizer is as in c.train
    c.warm_up.protocol = ""  # of the stage, as train.protocol; empty: that of the training
    c.warm_up.folder = ""  # run folder of the stage; runs that name the same one share it, {seed} stands for
    # the seed; empty: warm_up in the run folder
