"""Fields that nothing reads: whoever sets one expects something that does not happen, so it is refused."""

from collections.abc import Callable

from jaxmarl_llm.config import (
    credit_checks,
    preference_checks,
    program_checks,
    programs,
    remote,
    sft_checks,
    task_checks,
)
from jaxmarl_llm.config.common import ConfigDict, base_config, field
from jaxmarl_llm.config.credit_checks import is_dotted

WRITING = ("tldr", "arxiv")
PROMPTED = ("coding", *WRITING)  # kinds of tasks with published prompts
TELLS_TESTS = ("passed", "level_passed", "level_feedback")  # feedback that looks at revealed tests
OF_EXPERT = ("kind", "base_url", "cache", "offline")  # not key_variable, which messages must not show
SEARCH = ("problems", "prices")
GRADED = ("coding", "generation", "game")  # their problems may be of several grades


def _turns(config: ConfigDict) -> bool:
    c = config.train
    return c.turns > 1 or is_dotted(c.system) or is_dotted(c.protocol)


def _more_turns(config: ConfigDict) -> bool:
    return config.train.turns > 1 or is_dotted(config.train.protocol)


def _feedback(config: ConfigDict) -> bool:
    c = config.train
    between_turns = c.turns > 1 and c.protocol not in programs.METHODS
    of_the_game = config.task.kind == "game" and config.task.feedback == "played"  # also of one turn
    return between_turns or is_dotted(c.protocol) or of_the_game


def _critic(config: ConfigDict) -> bool:
    return config.train.system in credit_checks.CRITICS


def _pairs(config: ConfigDict) -> bool:
    return config.train.system in preference_checks.SYSTEMS


def _reduces(config: ConfigDict) -> bool:
    c = config.train
    shared = c.joint_mode == "cross" or c.partner_samples > 0 or c.protocol == "tree"
    return shared and _several(config) or is_dotted(c.system) or is_dotted(c.protocol)


def _several(config: ConfigDict) -> bool:
    return len(config.team.agents) > 1


def _of(*kinds: str) -> Callable[[ConfigDict], bool]:
    """Whether the task is of one of these kinds, or one of the user's, which may read all of ``task``."""
    return lambda config: config.task.kind in kinds or is_dotted(config.task.kind)


def _cooperation(config: ConfigDict) -> bool:
    helped = _several(config) or config.task.centralised or config.train.comlrl_compat
    return _of("coding")(config) and helped


def _revealed(config: ConfigDict) -> bool:
    shown = config.train.turns > 1 and config.task.feedback in TELLS_TESTS
    return config.task.kind == "coding" and shown or is_dotted(config.task.kind)


def _lessons(config: ConfigDict) -> bool:
    return config.train.protocol == "lessonl"


def _timed(config: ConfigDict) -> bool:
    return config.task.kind == "optimisation" and not config.task.reward


def _asks(config: ConfigDict) -> bool:
    behind = any(name.startswith(remote.EXPERT) for name in remote.agents(config).values())
    return behind or task_checks.asks_expert(config)


def _several_devices(config: ConfigDict) -> bool:
    return config.mesh.agent * config.mesh.data * config.mesh.model > 1


_ONE_TURN = "with train.turns=1 no turn follows"
_NO_CRITIC = "only train.system='iac' and 'maac' have a critic"
_NO_PAIRS = f"only train.system={', '.join(map(repr, preference_checks.SYSTEMS))} learn from pairs"
_NO_LESSONS = "only train.protocol='lessonl' has lessons"
_NOT_TIMED = "only task.kind='optimisation' times programs, and no task.reward does"
_NO_EXPERT = "only task.feedback='expert_edits' with train.turns above 1, and agents behind endpoints, ask it"
_NO_SEARCH = "only rounds of programs (task.kind='optimisation' and 'generation') are searches"
_NO_TEXTS = f"only task.kind={' and '.join(map(repr, WRITING))} read it"
_NO_GRADES = f"only problems of task.kind={', '.join(map(repr, GRADED))} have grades"
_NO_PROMPTS = f"only task.kind={', '.join(map(repr, PROMPTED))} read it"
# field: (when it is read, why it is not); unread, it must be as it is by default. Amounts such as critic.lr
# may stand in a config that many systems start from; these here say what is done.
READ: dict[str, tuple[Callable[[ConfigDict], bool], str]] = {
    "sft.source": (sft_checks.used, "only train.system='sft' and warm_up.steps above 0 read demonstrations"),
    "critic.form": (_critic, _NO_CRITIC),
    "critic.shared": (_critic, _NO_CRITIC),
    "preference.selection": (
        lambda c: _pairs(c) and c.preference.pairs > 0,
        f"{_NO_PAIRS}, and with preference.pairs=0 all pairs are kept",
    ),
    "preference.replay": (_pairs, _NO_PAIRS),
    "train.kl_kind": (lambda c: c.train.kl_coef > 0, "train.kl_coef is 0, so there is no KL term"),
    "train.ratio_level": (lambda c: c.train.clip > 0, "train.clip is 0, so there is no ratio"),
    "team.targets": (lambda c: c.team.mode == "adapters", "only team.mode='adapters' has adapters"),
    "model_options.date": (lambda c: c.model_options.chat, "without a chat template nothing writes a date"),
    "train.reduce": (_reduces, "a sample is in one joint answer"),
    "train.hand_on": (_turns, _ONE_TURN),
    "train.discount": (_turns, _ONE_TURN),
    "train.stop_above": (_more_turns, _ONE_TURN),
    "train.turn_loss": (_turns, _ONE_TURN),
    "task.cooperation": (_cooperation, "only task.kind='coding' with helpers reads it"),
    "task.held_back": (
        _of("coding", "generation"),
        "only task.kind='coding' and 'generation' have tests to hold back",
    ),
    "task.prompts": (_of(*PROMPTED), _NO_PROMPTS),
    "task.bands": (_of(*WRITING), _NO_TEXTS),
    "task.matching": (_of(*WRITING), _NO_TEXTS),
    "task.column": (_of(*WRITING), _NO_TEXTS),
    "task.feedback": (_feedback, "no turn follows in which agents are told anything"),
    "task.revealed_tests": (
        _revealed,
        "only task.kind='coding' with train.turns above 1 and task.feedback="
        f"{', '.join(map(repr, TELLS_TESTS))} tells of tests between turns",
    ),
    "train.grade_every": (_of(*GRADED), _NO_GRADES),
    "preference.reference": (
        lambda c: c.train.system in preference_checks.MADPO,
        f"only train.system={' and '.join(map(repr, preference_checks.MADPO))} read it",
    ),
    "expert.model": (
        task_checks.asks_expert,
        "only task.feedback='expert_edits' with train.turns above 1 asks it",
    ),
    **{f"expert.{name}": (_asks, _NO_EXPERT) for name in OF_EXPERT},
    "search.plans": (lambda c: c.train.protocol == "mapcoder", "only train.protocol='mapcoder' has plans"),
    **{f"search.{name}": (program_checks.searches, _NO_SEARCH) for name in SEARCH},
    "search.stop_when_solved": (
        lambda c: program_checks.searches(c) and c.task.kind == "generation",
        "only rounds of task.kind='generation' know when a problem is solved",
    ),
    **{f"lessons.{name}": (_lessons, _NO_LESSONS) for name in base_config().lessons},
    **{f"timing.{name}": (_timed, _NOT_TIMED) for name in base_config().timing},
    "mesh.fsdp": (_several_devices, "on one device nothing is cut"),
}


def problems(config: ConfigDict) -> list[str]:
    """One sentence per field of `READ` that is set and that nothing reads."""
    base, bad = base_config(), []
    for path, (read, why) in READ.items():
        value, default = field(config, path), field(base, path)
        value = tuple(value) if isinstance(value, list) else value  # of a saved config
        if value != default and not read(config):
            bad.append(f"{path}={value!r}: {why}, allowed is {default!r}")
    return bad
