"""The methods of `experiments.merge`: how members are weighted, and how their task vectors are combined.

A member is {agent of the result: task vector}. All agents of the result are merged with the same weights;
docs/merging.md has the equations.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.weights import elementwise, merging, mixtures
from jaxmarl_llm.weights.merging import Lost, LowRank, TaskVector, Whole

Member = dict[str, TaskVector]
WEIGHTS, SCALES, DENSITY, TRIALS, SEED = "weights", "scales", "density", "trials", "seed"


@dataclasses.dataclass(frozen=True)
class Method:
    """Description of a method.

    Attributes:
      about: a sentence.
      reads: which of the settings above it uses.
      scales: the default of `SCALES`; if several, the best on validation is taken.
      averages: whether the members' default weights are 1 / M, otherwise 1.
      chooses: whether it chooses the weights on validation.
      density: the default of `DENSITY`.
      least: minimal number of members.
    """

    about: str
    reads: tuple[str, ...]
    scales: tuple[float, ...] = (1.0,)
    averages: bool = False
    chooses: bool = False
    density: float = 1.0
    least: int = 2


METHODS = {
    "sum": Method("the weighted sum, weights 1 unless they are given", (WEIGHTS, SCALES), least=1),
    "mean": Method("the mean", (SCALES,), averages=True),
    "soup": Method("greedy soup: the mean of those that do not lower the score", (), averages=True, chooses=True),
    "arithmetic": Method("the sum times the best of some scales", (SCALES,), (0.2, 0.4, 0.6, 0.8, 1.0)),
    "ties": Method("trim, elect signs, mean of those that agree", (SCALES, DENSITY), density=0.2),
    "dare": Method(
        "the sum of members with numbers dropped at random", (WEIGHTS, SCALES, DENSITY, SEED),
        (0.2, 0.4, 0.6, 0.8, 1.0), density=0.5,
    ),
    "search": Method("the weighted sum with the best weights of a random search", (TRIALS, SEED), chooses=True),
    "extrapolate": Method("the mean times the best of some scales above 1", (SCALES,), (1.25, 1.5, 2.0), True, least=1),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Settings:
    """A method and its settings; empty or 0 means the method's default."""

    method: str
    weights: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    density: float = 0.0
    trials: int = 20
    seed: int = 0

    @property
    def all_scales(self) -> tuple[float, ...]:
        """The scales that are tried."""
        return self.scales or METHODS[self.method].scales

    @property
    def needs_scores(self) -> bool:
        """Whether anything is chosen on validation."""
        return METHODS[self.method].chooses or len(self.all_scales) > 1


def check(settings: Settings, members: int) -> None:
    """UserError for too few members, or if the number of weights differs from theirs."""
    least = METHODS[settings.method].least
    if members < least:
        raise UserError(f"--method={settings.method}: {members} member(s); allowed are {least} or more")
    if settings.weights and len(settings.weights) != members:
        given = ",".join(f"{w:g}" for w in settings.weights)
        raise UserError(f"--weights={given}: there are {members} members; allowed is one weight for each")


@dataclasses.dataclass(frozen=True)
class Form:
    """Form of the result: adapters of a rank, or full weights if ``rank`` is None."""

    rank: int | None

    def of_vector(self, vector: TaskVector) -> tuple[TaskVector, Lost]:
        """A task vector in this form, and the loss of the conversion."""
        if self.rank is None or isinstance(vector, Whole):
            return vector, Lost(0.0, vector.norm())
        return merging.with_rank(vector, min(self.rank, vector.rank))

    def of_pieces(self, pieces: elementwise.Pieces, adapters: bool) -> tuple[TaskVector, Lost]:
        """The same for pieces, those of the adapters' linear maps or of all parameters."""
        if self.rank is not None:
            return merging.factorised(pieces, self.rank)
        leaves = merging.stacked(pieces)
        vector = Whole({(*path, "kernel") if adapters else path: leaf for path, leaf in leaves.items()})
        return vector, Lost(0.0, vector.norm())


@dataclasses.dataclass(frozen=True)
class Merged:
    """The result by agent, in its form, and how it was obtained.

    Attributes:
      vectors, lost: by agent, the task vector, and what the conversion to the form lost.
      weights: weights of the members, without the scale; None for methods without weights.
      scale: factor applied to the result.
      tried: what was scored on validation, in order: ``weights`` or ``scale``, and ``score``.
    """

    vectors: Member
    lost: dict[str, Lost]
    weights: tuple[float, ...] | None
    scale: float
    tried: tuple[dict, ...] = ()


def merge(
    members: Sequence[Member], settings: Settings, form: Form, score: Callable[[Member], float] | None = None
) -> Merged:
    """Merge the members.

    ``score`` is called if the method chooses something; it takes task vectors by agent, in the result's form.
    """
    method, tried = METHODS[settings.method], []
    number = len(members)

    def scored(vectors: Member, **what) -> float:
        value = score(vectors)
        tried.append({**what, "score": value})
        return value

    def of_weights(weights: Iterable[float]) -> float:
        return scored(_summed(members, tuple(weights), form)[0], weights=list(weights))

    if settings.method == "soup":
        weights = mixtures.greedy_soup(number, of_weights)
    elif settings.method == "search":
        weights = mixtures.random_search(number, of_weights, settings.trials, settings.seed)
    else:
        weights = settings.weights or ((1 / number if method.averages else 1.0),) * number
    if settings.method in ("ties", "dare"):
        vectors, lost = _elementwise(members, weights, settings, form)
    else:
        vectors, lost = _summed(members, weights, form)
    scale, *others = settings.all_scales
    if others:
        values = {each: scored(_scaled(vectors, each), scale=each) for each in settings.all_scales}
        scale = max(values, key=values.__getitem__)  # the first of equally good ones
    lost = {agent: Lost(abs(scale) * one.rest, abs(scale) * one.whole) for agent, one in lost.items()}
    shown = None if settings.method == "ties" else weights
    return Merged(_scaled(vectors, scale), lost, shown, scale, tuple(tried))


def _scaled(vectors: Member, factor: float) -> Member:
    return vectors if factor == 1 else _by_agent([vectors], lambda own: merging.scaled(own[0], factor))


def _summed(
    members: Sequence[Member], weights: Sequence[float], form: Form
) -> tuple[Member, dict[str, Lost]]:
    """The weighted sum of every agent's task vectors, in the form of the result."""
    return _apart(_by_agent(members, lambda own: form.of_vector(merging.weighted_sum(own, weights))))


def _elementwise(
    members: Sequence[Member], weights, settings: Settings, form: Form
) -> tuple[Member, dict[str, Lost]]:
    """TIES or DARE of every agent's task vectors, in the form of the result."""
    density = settings.density or METHODS[settings.method].density

    def combine(own):
        ties = settings.method == "ties"
        pieces = (
            elementwise.ties(own, density) if ties else elementwise.dare(own, weights, density, settings.seed)
        )
        return form.of_pieces(pieces, isinstance(own[0], LowRank))

    return _apart(_by_agent(members, combine))


def _apart(pairs: dict[str, tuple[TaskVector, Lost]]) -> tuple[Member, dict[str, Lost]]:
    return {agent: pair[0] for agent, pair in pairs.items()}, {
        agent: pair[1] for agent, pair in pairs.items()
    }


def _by_agent(members: Sequence[Member], combine: Callable) -> dict:
    """Apply ``combine`` to the members' task vectors of every agent; once for agents that share them."""
    done, results = {}, {}
    for agent in members[0]:
        own = [member[agent] for member in members]
        key = tuple(map(id, own))
        if key not in done:
            done[key] = combine(own)
        results[agent] = done[key]
    return results
