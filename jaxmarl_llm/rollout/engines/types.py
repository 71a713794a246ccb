"""The interface of engines."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax

from jaxmarl_llm import sampling
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import Sizes
from jaxmarl_llm.team import Member


class Published(NamedTuple):
    """A member of the team with the parameters that completions are drawn from.

    ``versions``: by agent, the version of its adapters, of which equal ones have the same; {} where the
    parameters are read in place, which need none. ``names``: by agent, what the servers call them.
    """

    member: Member
    trainable: Any
    versions: Mapping[str, str] = {}
    names: Mapping[str, str] = {}


class Drawn(NamedTuple):
    """Completions of N agents, on the host.

    ``samples``: row b * G + g is sample g of the agent's prompt b; rows after its last prompt fill up.
    Its ``finished_NR`` are the finish reasons: True where an EOS or a stop text ended the completion, False
    where the limit did. ``versions``: of the adapters that drew, by agent in order, '' where there are none.
    """

    samples: sampling.Samples
    versions: tuple[str, ...]


class Engine(Protocol):
    """Draws the completions of agents that are models of ours."""

    def publish(self, step: int, member: Member, trainable: Any) -> Published:
        """Make the parameters of a member, after ``step`` iterations, those that `draw` can draw from.

        Parameters that are published already are not published again.
        """
        ...

    def draw(
        self,
        published: Published,
        prompts: Mapping[str, Sequence[Sequence[int]]],
        key: jax.Array,
        samples: int,
        params: SamplingParams,
        *,
        greedy: Mapping[str, Sequence[bool]],
        sizes: tuple[int, int],
        prompt_sizes: Sizes | None = None,
        stems: Mapping[str, Sequence[int]] | None = None,
    ) -> Drawn:
        """Draw G ``samples`` of every prompt.

        Args:
          published: what `publish` returned.
          prompts: by agent, in the order of the stack, the token ids of its prompts; at least one each.
          key: random key; equal arguments give equal completions, as far as the engine's arithmetic does.
          samples: G.
          params: how to draw, the same for all agents.
          greedy: by agent, for each prompt, whether its last sample takes the most likely tokens.
          sizes, prompt_sizes: what batches are filled up to, where shapes matter: see `requests.sample_turns`.
          stems: by agent, how many tokens at the beginning of each prompt are an earlier prompt, which others may begin
            with too (0: none); what is read once for all of these is the engine's choice. None: there are none.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """Numbers since the last call, ``engine/<name>``."""
        ...
