"""The warm-up that a config asks for: a run with train.system=sft, from which the main run begins."""

import contextlib
import fcntl
import json
import pathlib
from collections.abc import Callable, Iterator

from ml_collections import ConfigDict

from jaxmarl_llm import resume_checks
from jaxmarl_llm.config import FIELDS, advice, base_config, fields, imitation, validate
from jaxmarl_llm.config import saved as saved_config
from jaxmarl_llm.config.options import field
from jaxmarl_llm.runs import begin, summaries
from jaxmarl_llm.utils import distributed, files
from jaxmarl_llm.utils.errors import UserError

# Fields of ``train`` that the warm-up has in common with the main run; all others are as by default.
SHARED = (
    "protocol", "turns", "warmup", "decay", "weight_decay", "grad_clip",
    "prompts_per_microbatch", "tokens_per_microbatch",
)  # fmt: skip
# Sections of which the warm-up reads nothing.
ONLY_TRAINING = (
    "critic", "maporl", "mlpo", "malt", "sweet", "preference", "router", "warm_up", "lessons", "experience",
)  # fmt: skip


def stage(config) -> ConfigDict:
    """The config of the warm-up: same team, task and evaluation, other training. ValueError as `validate`."""
    base, made = base_config(), config.copy_and_resolve_references()
    made.train = base.train
    made.train.update({name: config.train[name] for name in SHARED})
    made.train.update(system="sft", steps=config.warm_up.steps, lr=config.warm_up.lr)
    made.train.protocol = config.warm_up.protocol or config.train.protocol
    made.train.prompts = config.sft.batch  # of which the sizes of micro-batches are parts
    if imitation.on_rollouts(config):
        made.train.group = 1  # in the same turn another answer has the same prompt
    if advice.of(made):
        made.train.later_samples = 1  # one episode after each advice, which its protocol needs
    # What only the main run reads: amounts too, so that runs of other systems have the warm-up in common.
    for section in ONLY_TRAINING:
        made[section] = base[section]
    made.task.drop_easier_than = base.task.drop_easier_than
    made.eval.every = 0
    while unread := [each.path for each in FIELDS.values() if fields.unread(each, made)]:
        made.update_from_flattened_dict({path: field(base, path) for path in unread})
    _without_training_settings(made.team)
    validate(made, "the config's warm-up")
    return made


def _without_training_settings(team: ConfigDict) -> None:
    """All agents are warmed up alike, also those that are fixed later; one with nothing else has no entry.

    So runs that differ in these settings have one warm-up in common.
    """
    with team.unlocked():
        for agent, own in list(team.get("agent", {}).items()):
            for name in [name for name, value in own.items() if name in ("trainable", "lr") or value is None]:
                del own[name]
            if not own:
                del team.agent[agent]


def made(config, workdir, train: Callable) -> bool:
    """Train the warm-up of a run if it is missing; False if the warm-up was stopped before its end.

    Args:
      config: the main run's.
      workdir: its folder.
      train: ``train(config, workdir)``, which runs or resumes a training and returns its summary.

    Raises:
      ValueError: if the folder of the warm-up holds another one, or is the run's own or inside it.
    """
    if not config.warm_up.steps or distributed.on_main(begin.kept_in)(pathlib.Path(workdir)):
        return True
    _check_apart(config, pathlib.Path(workdir))
    own, folder = stage(config), begin.source(config, workdir)
    if distributed.on_main(_finished)(own, folder):  # perhaps in a folder that may only be read
        return True
    files.ensure_writable(folder / "config.json", "give another warm_up.folder")
    with _alone(folder):
        if distributed.on_main(_finished)(own, folder):
            return True
        print(f"warm-up: {own.train.steps} iterations on demonstrations, in {folder}", flush=True)
        return bool(train(own, folder))


def _check_apart(config, workdir: pathlib.Path) -> None:
    """UserError if the warm-up would be made among the files of the run, other than in its own folder there."""
    folder, run = begin.source(config, workdir).resolve(), workdir.resolve()
    if (folder == run or run in folder.parents) and folder != begin.own_warm_up(run).resolve():
        raise UserError(
            f"warm_up.folder={config.warm_up.folder!r}: is in the folder of the run, {workdir}; give one "
            "outside of it, or '' for warm_up in it"
        )


def _finished(own: ConfigDict, folder: pathlib.Path) -> bool:
    """Whether the warm-up with this config is done; ValueError if the folder holds another one that is."""
    saved, summary = saved_config.in_folder(folder), summaries.read_json(folder / "summary.json")
    if not saved or not summary or not summaries.complete(own, summary):
        return False
    resume_checks.check_same_run(saved, json.loads(json.dumps(own.to_dict())))
    return True


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[None]:
    """Hold the folder: of several runs that share a warm-up, the first one makes it and the others wait."""
    if not distributed.is_main():
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that makes the warm-up in {folder}", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
