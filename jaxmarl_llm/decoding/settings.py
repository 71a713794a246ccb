"""Options for writing one text with several members; no JAX, so that wrong flags are refused at once."""

import dataclasses
from collections.abc import Sequence

from jaxmarl_llm.utils.errors import UserError

MIXTURES = ("mean_logits", "mean_probabilities", "contrast")
SWITCH = "switch"
MODES = (*MIXTURES, SWITCH)
CONFIDENCE, HEAD, ROLLOUTS = VALUES = ("confidence", "head", "rollouts")
TOKEN, LINE, ANSWER = EVERY = ("token", "line", "answer")
OWN, BEST = CONTINUE = ("own", "best")


@dataclasses.dataclass(frozen=True)
class Settings:
    """How members write together.

    Attributes:
      mode: one of `MODES`.
      weights: for mixtures, weights of the members, in order, with sum 1; (): equal weights.
      plausible: for contrasts, see `mixtures.contrast`.
      value: what decides a switch: the members' ``confidence``, a value ``head`` fitted on roll-outs of the
        training problems, or ``rollouts`` from the current text, which the task judges.
      every: where a switch may happen: after each ``token``, after each ``line``, or never, ``answer``:
        complete answers are compared.
      candidates: number of pieces that each member proposes: its likeliest tokens, or sampled lines or
        answers.
      rollouts: number of judged roll-outs for the value of a candidate.
      horizon: longest roll-out in tokens; 0: maximal answer length.
      goes_on: who writes roll-outs: the candidate's ``own`` member, or the switcher with these values,
        ``best``.
      alpha: weight of a member's divergence from the mean of all, in reward per nat.
    """

    mode: str = SWITCH
    weights: tuple[float, ...] = ()
    plausible: float = 0.1
    value: str = CONFIDENCE
    every: str = TOKEN
    candidates: int = 1
    rollouts: int = 2
    horizon: int = 0
    goes_on: str = OWN
    alpha: float = 0.0

    @property
    def searches(self) -> bool:
        """Whether texts are written piece by piece, by `switching`, instead of in one program."""
        return self.mode == SWITCH and not (self.value == CONFIDENCE and self.every == TOKEN)


def check(settings: Settings, given: Sequence[str] = ()) -> None:
    """UserError for invalid settings, and for settings in ``given``, set by the user, without effect."""
    s = settings
    for name, allowed in (("mode", MODES), ("value", VALUES), ("every", EVERY), ("goes_on", CONTINUE)):
        if getattr(s, name) not in allowed:
            raise UserError(f"{flag(name)}={getattr(s, name)!r}: allowed are {', '.join(allowed)}")
    for name, least in (("candidates", 1), ("rollouts", 1), ("horizon", 0), ("alpha", 0)):
        if not getattr(s, name) >= least:
            raise UserError(f"{flag(name)}={getattr(s, name)}: allowed is {least} or more")
    if s.mode == "contrast" and not s.weights:
        raise UserError("--together=contrast: give --weights, such as 1.5,-0.5: the better member first")
    reasons = {
        "weights": (s.mode in MIXTURES, "only mixtures weigh members"),
        "plausible": (s.mode == "contrast", "only a contrast reads it"),
        "value": (s.mode == SWITCH, "only a switch goes by a value"),
        "every": (s.mode == SWITCH, "a mixture is of every token"),
        "candidates": (s.searches, "each token is drawn once where no candidates are valued"),
        "rollouts": (s.mode == SWITCH and s.value == ROLLOUTS, "only --value=rollouts draws any"),
        "horizon": (s.mode == SWITCH and s.value == ROLLOUTS, "only --value=rollouts draws any"),
        "goes_on": (s.mode == SWITCH and s.value == ROLLOUTS, "only --value=rollouts draws any"),
        "alpha": (
            s.searches and s.every == TOKEN,
            "only tokens that are valued have distributions to compare",
        ),
    }
    for name, (read, why) in reasons.items():
        if name in given and not read:
            raise UserError(f"{flag(name)}={getattr(s, name)} would do nothing: {why}")
    if s.searches and s.every == ANSWER and s.value == ROLLOUTS:
        for name in ("rollouts", "horizon", "goes_on"):
            if name in given:
                raise UserError(
                    f"{flag(name)}={getattr(s, name)} would do nothing: whole answers are judged as they are"
                )


def check_members(settings: Settings, names: Sequence[str], models: Sequence[str], alike: bool) -> None:
    """UserError for members that cannot write together with these settings.

    Args:
      settings: the settings.
      names, models: names and models of the members.
      alike: whether all have the same vocabulary.
    """
    if len(names) < 2:
        raise UserError(f"members {', '.join(names) or 'none'}: to write together takes two or more")
    if settings.weights and len(settings.weights) != len(names):
        raise UserError(f"--weights={settings.weights}: allowed is a number for each of {', '.join(names)}")
    if len(set(models)) == 1 or settings.every != TOKEN:
        return
    needs = "needs one model for all" if alike else "needs one tokenizer"
    use = "" if settings.mode in MIXTURES else "; use --every=line"
    where = f"--together={settings.mode}" if settings.mode in MIXTURES else "--every=token"
    raise UserError(
        f"{where}: members of {' and '.join(dict.fromkeys(models))} differ, and every token {needs}{use}"
    )


def flag(name: str) -> str:
    """The flag of a field in `experiments.together`."""
    return "--" + {"mode": "together", "goes_on": "continue"}.get(name, name)
