"""Fields that nothing reads: whoever sets one expects something that does not happen, so it is refused."""

from collections.abc import Callable

from configs import credit_checks, preference_checks, program_checks, sft_checks
from configs.common import ConfigDict, base_config, field

WRITING = ("tldr", "arxiv")
PROMPTED = ("coding", *WRITING)  # kinds of tasks with published prompts
SEARCH = ("problems", "stop_when_solved", "prices")
GRADED = ("coding", "generation", "game")  # their problems may be of several grades


def _turns(config: ConfigDict) -> bool:
    return config.train.turns > 1 or credit_checks.is_dotted(config.train.system)


def _critic(config: ConfigDict) -> bool:
    return config.train.system in credit_checks.CRITICS


def _pairs(config: ConfigDict) -> bool:
    return config.train.system in preference_checks.SYSTEMS


def _reduces(config: ConfigDict) -> bool:
    shared = config.train.joint_mode == "cross" or config.train.partner_samples > 0
    return shared or credit_checks.is_dotted(config.train.system)


def _tested(config: ConfigDict) -> bool:
    return config.task.kind in ("coding", "generation")


def _writes(config: ConfigDict) -> bool:
    return config.task.kind in WRITING


def _graded(config: ConfigDict) -> bool:
    return config.task.kind in GRADED or credit_checks.is_dotted(config.task.kind)


def _lessons(config: ConfigDict) -> bool:
    return config.train.protocol == "lessonl"


def _timed(config: ConfigDict) -> bool:
    return config.task.kind == "optimisation"


def _asks(config: ConfigDict) -> bool:
    return config.task.feedback == "expert_edits" and config.train.turns > 1


def _several_devices(config: ConfigDict) -> bool:
    return config.mesh.agent * config.mesh.data * config.mesh.model > 1


_ONE_TURN = "with train.turns=1 no turn follows"
_NO_CRITIC = "only train.system='iac' and 'maac' have a critic"
_NO_PAIRS = f"only train.system={', '.join(map(repr, preference_checks.SYSTEMS))} learn from pairs"
_NO_LESSONS = "only train.protocol='lessonl' has lessons"
_NOT_TIMED = "only task.kind='optimisation' times programs"
_NO_SEARCH = "only rounds of programs (task.kind='optimisation' and 'generation') are searches"
_NO_TEXTS = f"only task.kind={' and '.join(map(repr, WRITING))} read it"
_NO_PROMPTS = f"only task.kind={', '.join(map(repr, PROMPTED))} read it"
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
    "train.turn_loss": (_turns, _ONE_TURN),
    "task.cooperation": (lambda c: c.task.kind == "coding", "only task.kind='coding' reads it"),
    "task.held_back": (_tested, "only task.kind='coding' and 'generation' have tests to hold back"),
    "task.prompts": (lambda c: c.task.kind in PROMPTED, _NO_PROMPTS),
    "task.bands": (_writes, _NO_TEXTS),
    "task.matching": (_writes, _NO_TEXTS),
    "task.column": (_writes, _NO_TEXTS),
    "task.revealed_tests": (
        lambda c: c.task.kind == "coding" and c.train.turns > 1,
        "only task.kind='coding' with train.turns above 1 tells of tests between turns",
    ),
    "train.grade_every": (_graded, f"only problems of task.kind={', '.join(map(repr, GRADED))} have grades"),
    "preference.reference": (
        lambda c: c.train.system in preference_checks.MADPO,
        f"only train.system={' and '.join(map(repr, preference_checks.MADPO))} read it",
    ),
    "expert.model": (_asks, "only task.feedback='expert_edits' with train.turns above 1 asks it"),
    "search.plans": (lambda c: c.train.protocol == "mapcoder", "only train.protocol='mapcoder' has plans"),
    **{f"search.{name}": (program_checks.searches, _NO_SEARCH) for name in SEARCH},
    **{f"lessons.{name}": (_lessons, _NO_LESSONS) for name in base_config().lessons},
    **{f"timing.{name}": (_timed, _NOT_TIMED) for name in base_config().timing},
    "mesh.fsdp": (_several_devices, "on one device nothing is cut"),
}


def found(config: ConfigDict) -> list[str]:
    """One sentence per field of `READ` that is set and that nothing reads."""
    base, bad = base_config(), []
    for path, (read, why) in READ.items():
        value, default = field(config, path), field(base, path)
        value = tuple(value) if isinstance(value, list) else value  # of a saved config
        if value != default and not read(config):
            bad.append(f"{path}={value!r}: {why}, allowed is {default!r}")
    return bad
