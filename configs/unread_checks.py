"""Fields that nothing reads: whoever sets one expects something that does not happen, so it is refused."""

from collections.abc import Callable

from configs import credit_checks, preference_checks, sft_checks
from configs.common import ConfigDict, base_config, field

WRITING = ("tldr", "arxiv")


def _turns(config: ConfigDict) -> bool:
    return config.train.turns > 1 or credit_checks.is_dotted(config.train.system)


def _critic(config: ConfigDict) -> bool:
    return config.train.system in credit_checks.CRITICS


def _pairs(config: ConfigDict) -> bool:
    return config.train.system in preference_checks.SYSTEMS


def _reduces(config: ConfigDict) -> bool:
    return config.train.joint_mode == "cross" or credit_checks.is_dotted(config.train.system)


def _tested(config: ConfigDict) -> bool:
    return config.task.kind in ("coding", "generation")


def _writes(config: ConfigDict) -> bool:
    return config.task.kind in WRITING


def _several_devices(config: ConfigDict) -> bool:
    return config.mesh.agent * config.mesh.data * config.mesh.model > 1


_ONE_TURN = "with train.turns=1 no turn follows"
_NO_CRITIC = "only train.system='iac' and 'maac' have a critic"
_NO_PAIRS = f"only train.system={', '.join(map(repr, preference_checks.SYSTEMS))} learn from pairs"
_NO_TEXTS = f"only task.kind={' and '.join(map(repr, WRITING))} read it"
# field: (when it is read, why it is not); unread, it must be as it is by default. Amounts such as critic.lr
# may stand in a config that many systems start from; these here say what is done.
READ: dict[str, tuple[Callable[[ConfigDict], bool], str]] = {
    "sft.source": (sft_checks.used, "only train.system='sft' and warm_up.steps above 0 read demonstrations"),
    "critic.form": (_critic, _NO_CRITIC),
    "critic.shared": (_critic, _NO_CRITIC),
    "preference.selection": (_pairs, _NO_PAIRS),
    "preference.replay": (_pairs, _NO_PAIRS),
    "train.kl_kind": (lambda c: c.train.kl_coef > 0, "train.kl_coef is 0, so there is no KL term"),
    "train.ratio_level": (lambda c: c.train.clip > 0, "train.clip is 0, so there is no ratio"),
    "train.reduce": (_reduces, "with train.joint_mode='aligned' a sample is in one joint answer"),
    "train.hand_on": (_turns, _ONE_TURN),
    "train.discount": (_turns, _ONE_TURN),
    "train.stop_above": (_turns, _ONE_TURN),
    "task.cooperation": (lambda c: c.task.kind == "coding", "only task.kind='coding' reads it"),
    "task.held_back": (_tested, "only task.kind='coding' and 'generation' have tests to hold back"),
    "task.bands": (_writes, _NO_TEXTS),
    "task.matching": (_writes, _NO_TEXTS),
    "task.column": (_writes, _NO_TEXTS),
    "mesh.fsdp": (_several_devices, "on one device nothing is cut"),
}


def found(config: ConfigDict) -> list[str]:
    """One sentence per field of `READ` that is set and that nothing reads."""
    base, bad = base_config(), []
    for path, (read, why) in READ.items():
        value, default = field(config, path), field(base, path)
        if value != default and not read(config):
            bad.append(f"{path}={value!r}: {why}, allowed is {default!r}")
    return bad
