"""The warm-up of a config: a run with train.system=sft, from which the main run begins."""

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

# Fields of ``train`` that the warm-up shares with the main run; all others have their defaults.
SHARED = (
    "protocol", "turns", "warmup", "decay", "weight_decay", "grad_clip",
    "prompts_per_microbatch", "tokens_per_microbatch",
)  # fmt: skip
# Sections that the warm-up does not read.
ONLY_TRAINING = (
    "critic", "maporl", "mlpo", "malt", "sweet", "preference", "router", "warm_up", "lessons", "experience",
)  # fmt: skip


def stage(config) -> ConfigDict:
    """The config of the warm-up: same team, task and evaluation, other training. Errors as in `validate`."""
    base, made = base_config(), config.copy_and_resolve_references()
    made.train = base.train
    made.train.update({name: config.train[name] for name in SHARED})
    made.train.update(system="sft", steps=config.warm_up.steps, lr=config.warm_up.lr)
    made.train.protocol = config.warm_up.protocol or config.train.protocol
    made.train.prompts = config.sft.batch  # micro-batch sizes must divide it
    if imitation.on_rollouts(config):
        made.train.group = 1  # further answers of a turn would have the same prompt
    if advice.of(made):
        made.train.later_samples = 1  # the protocol needs one episode per advice
    # Reset what only the main run reads, amounts too, so that runs of other systems can share the warm-up.
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
    """Remove agents' training settings, and entries with no other settings: all agents are warmed up alike.

    So runs that differ in these settings share one warm-up. Agents that are fixed later are warmed up too.
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
      ValueError: if the warm-up's folder holds another run, or is the main run's folder or inside it.
    """
    if not config.warm_up.steps or distributed.on_main(begin.kept_in)(pathlib.Path(workdir)):
        return True
    _check_apart(config, pathlib.Path(workdir))
    own, folder = stage(config), begin.source(config, workdir)
    if distributed.on_main(_finished)(own, folder):  # the folder may be read-only
        return True
    files.ensure_writable(folder / "config.json", "give another warm_up.folder")
    with _alone(folder):
        if distributed.on_main(_finished)(own, folder):
            return True
        print(f"warm-up: {own.train.steps} iterations on demonstrations, in {folder}", flush=True)
        return bool(train(own, folder))


def _check_apart(config, workdir: pathlib.Path) -> None:
    """UserError if the warm-up's folder is the run's folder or inside it, except at its own place there."""
    folder, run = begin.source(config, workdir).resolve(), workdir.resolve()
    if (folder == run or run in folder.parents) and folder != begin.own_warm_up(run).resolve():
        raise UserError(
            f"warm_up.folder={config.warm_up.folder!r}: is in the folder of the run, {workdir}; give one "
            "outside of it, or '' for warm_up in it"
        )


def _finished(own: ConfigDict, folder: pathlib.Path) -> bool:
    """Whether the warm-up with this config is done; ValueError if the folder holds another finished one."""
    saved, summary = saved_config.in_folder(folder), summaries.read_json(folder / "summary.json")
    if not saved or not summary or not summaries.complete(own, summary):
        return False
    resume_checks.check_same_run(saved, json.loads(json.dumps(own.to_dict())))
    return True


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[None]:
    """Lock the folder: of several runs that share a warm-up, the first makes it and the others wait."""
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
