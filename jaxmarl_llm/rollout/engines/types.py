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

    ``versions``: by agent, its adapters' version; equal adapters have the same. {} if the parameters are read
    in place and need no versions. ``names``: by agent, the servers' name for it.
    """

    member: Member
    trainable: Any
    versions: Mapping[str, str] = {}
    names: Mapping[str, str] = {}


class Drawn(NamedTuple):
    """Completions of N agents, on the host.

    ``samples``: row b * G + g is sample g of the agent's prompt b; rows after its last prompt are padding.
    Its ``finished_NR`` are the finish reasons: True if an EOS or a stop text ended the completion, False if
    the limit did. ``versions``: of the adapters that drew, by agent in order, '' if there are none.
    """

    samples: sampling.Samples
    versions: tuple[str, ...]


class Engine(Protocol):
    """Draws the completions of agents that are local models."""

    def publish(self, step: int, member: Member, trainable: Any) -> Published:
        """Make a member's parameters, after ``step`` iterations, available to `draw`.

        Already published parameters are not published again.
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
          key: random key; equal arguments give equal completions if the engine's arithmetic is deterministic.
          samples: G.
          params: how to draw, the same for all agents.
          greedy: by agent, for each prompt, whether its last sample takes the most likely tokens.
          sizes, prompt_sizes: sizes that batches are padded to, if shapes matter: see
            `requests.sample_turns`.
          stems: by agent, how many tokens at the beginning of each prompt are an earlier prompt (0: none),
            which other prompts may share; the engine decides what to read once for all of these. None: there
            are none.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """Numbers since the last call, ``engine/<name>``."""
        ...
