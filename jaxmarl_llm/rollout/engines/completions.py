"""The engine of servers that speak ``/v1/completions`` as vLLM does, with adapters loaded by name.

All servers serve one base model; adapters are sent after every update. See docs/engines.md.
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxmarl_llm import sampling
from jaxmarl_llm.rollout.engines import agreement, answers
from jaxmarl_llm.rollout.engines.adapter_store import AdapterStore
from jaxmarl_llm.rollout.engines.answers import Completion, Vocabulary, Wanted
from jaxmarl_llm.rollout.engines.calls import Lines, Server, together
from jaxmarl_llm.rollout.engines.publishing import Publisher
from jaxmarl_llm.rollout.engines.types import Drawn, Published
from jaxmarl_llm.sampling import SamplingParams
from jaxmarl_llm.sampling.padding import Sizes
from jaxmarl_llm.sampling.stops import Stops
from jaxmarl_llm.team import Member
from jaxmarl_llm.utils.errors import UserError

COMPARED = 2  # completions of each agent whose log-probabilities are compared; at least one per server
SURE = 1e-3  # nats: tolerance around log-probability 0 for the only token left by top_k=1
PROBED = 8  # tokens of the request that shows which log-probabilities a server gives
_NOT_KNOWN = 404


class _Job(NamedTuple):
    """A request for some samples of an agent's prompt, the server that gets it, and the first of its rows."""

    server: Server
    wanted: Wanted
    agent: str
    prompt: int
    row: int


class CompletionsEngine:
    """An `Engine` whose completions are drawn by servers.

    Args:
      servers: the servers that share the prompts.
      store: the folder of the adapters.
      parallel: most requests under way at each server.
      max_gap: greatest mean distance of a server's log-probabilities, in nats, see `agreement`; 0: they are not
        compared.
    """

    def __init__(self, servers: Sequence[Server], store: AdapterStore, *, parallel: int, max_gap: float):
        self._servers, self._publisher = tuple(servers), Publisher(servers, store)
        self._parallel, self._max_gap = parallel, max_gap
        self._probed = False
        self._gap, self._seconds, self._repeated = 0.0, 0.0, 0

    def open(self) -> None:
        """Check that every server answers, and remove adapters left by an earlier process of the run."""
        self._publisher.open()

    def close(self) -> None:
        """Remove the adapters from the servers, if they answer, and from the disk."""
        self._publisher.close()

    def publish(self, step: int, member: Member, trainable: Any) -> Published:
        """See `Engine.publish`, and `Publisher.publish`."""
        return self._publisher.publish(step, member, trainable)

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
        """See `Engine.draw`. A prompt and its samples are one request; ``sizes`` and ``stems`` are unused.

        Raises:
          UserError: naming the server, if it does not answer, does not know the adapters, or gives an answer
            that was not requested (`answers.read`) or is not of this policy (`agreement`).
        """
        jobs = self._jobs(published, prompts, key, samples, params, greedy)
        if not self._probed:
            self._probe(jobs)
        calls, servers = [functools.partial(_complete, job) for job in jobs], [job.server for job in jobs]
        drawn = together(calls, self._parallel, servers)
        if self._max_gap:
            self._compare(published, jobs, drawn, params)
        versions = tuple(published.versions[agent] for agent in prompts)
        rows = max(map(len, prompts.values())) * samples
        return Drawn(_as_samples(list(prompts), rows, samples, params, jobs, drawn), versions)

    def _jobs(self, published: Published, prompts, key, samples: int, params, greedy) -> list[_Job]:
        """All requests of a draw; the prompts go to the servers in turn."""
        member, jobs = published.member, []
        policy = member.stack.policy
        stops = Stops.of_stack(member.stack, params)
        words = Vocabulary(policy.config.vocab_size, policy.unused_ids, stops)
        most_likely = SamplingParams(params.max_new_tokens, temperature=0.0)
        number = 0
        for agent, own_prompts in prompts.items():
            for b, prompt in enumerate(own_prompts):
                server = self._servers[number % len(self._servers)]
                last = bool(greedy[agent][b])
                sampled = samples - last if not params.greedy else 0
                parts = [(sampled, params, b * samples)] if sampled else []
                parts += [(1, most_likely, b * samples + sampled)] if last or params.greedy else []
                for n, how, row in parts:
                    seed = _seed(key, agent, row)
                    wanted = Wanted(published.names[agent], tuple(prompt), n, how, seed, words)
                    jobs.append(_Job(server, wanted, agent, b, row))
                number += 1
        return jobs

    def _probe(self, jobs: Sequence[_Job]) -> None:
        """Refuse servers whose log-probabilities are not of the distribution that was drawn from.

        With top_k=1 one token is left, with log-probability 0; vLLM's default reports the one before top_k.
        """
        params = SamplingParams(PROBED, top_k=1)
        words = jobs[0].wanted.vocabulary
        never = Vocabulary(words.size, words.unused, Stops(()))
        for server in self._servers:
            wanted = jobs[0].wanted._replace(samples=1, params=params, vocabulary=never)
            (one,) = together(
                [functools.partial(_complete, jobs[0]._replace(server=server, wanted=wanted))], 1
            )
            if np.abs(one[0].logprobs_L).max() > SURE:
                raise UserError(
                    f"the server {server.url} of engine.servers: its log-probabilities are not those of the "
                    "distribution that it draws from; start it with --logprobs-mode processed_logprobs"
                )
        self._probed = True

    def _compare(self, published: Published, jobs: Sequence[_Job], drawn, params: SamplingParams) -> None:
        """Refuse completions whose log-probabilities do not match the published parameters."""
        rows: dict[str, list[agreement.Read]] = {}
        for job, completions in zip(jobs, drawn, strict=True):
            if not job.wanted.params.greedy:
                read = agreement.Read(job.server.url, job.wanted.prompt, completions[0])
                rows.setdefault(job.agent, []).append(read)
        if not rows:
            return
        number = max(COMPARED, len(self._servers))
        some = {agent: _of_every_server(own, number) for agent, own in rows.items()}
        gaps = agreement.gaps(published, some, params, number)
        agent, server = max(gaps, key=lambda of: np.nan_to_num(gaps[of], nan=np.inf))
        gap = gaps[agent, server]
        self._gap = max(self._gap, gap)
        if not gap <= self._max_gap:
            raise UserError(
                f"the server {server} of engine.servers: its log-probabilities are {gap:.3g} nats per token away "
                f"from those of agent {agent!r} here, and engine.max_gap={self._max_gap:g}: it holds another base "
                f"model, other adapters than {published.names[agent]!r}, or gives log-probabilities of another "
                "kind; nothing of this is learned from"
            )

    def metrics(self) -> dict[str, float]:
        """Since the last call: a server's largest gap, seconds of publishing, and repeated attempts."""
        seconds, repeated = self._publisher.seconds, sum(server.repeated for server in self._servers)
        values = {"gap": self._gap}
        values |= {"publish_seconds": seconds - self._seconds, "repeated": repeated - self._repeated}
        self._gap, self._seconds, self._repeated = 0.0, seconds, repeated
        return {f"engine/{name}": float(value) for name, value in values.items()}


def _seed(key: jax.Array, agent: str, row: int) -> int:
    """A seed of 62 bits; requests of one draw get distant seeds."""
    data = np.asarray(jax.random.key_data(key)).tobytes() + f"{agent} {row}".encode()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") >> 2


def _of_every_server(rows: Sequence[agreement.Read], number: int) -> list[agreement.Read]:
    """The first of each server, then others, up to ``number`` in all."""
    first = {read.server: n for n, read in reversed(list(enumerate(rows)))}
    order = sorted(range(len(rows)), key=lambda n: (first[rows[n].server] != n, n))
    return [rows[n] for n in order[:number]]


def _complete(job: _Job, lines: Lines) -> list[Completion]:
    """The completions of one request, checked."""
    answer = job.server.call(lines, "/v1/completions", answers.body(job.wanted))
    where = f"the server {job.server.url} of engine.servers"
    if answer.status == _NOT_KNOWN:
        raise UserError(
            f"{where} does not know the adapters {job.wanted.name!r} (any more): nothing of this is learned from, "
            "and the same command publishes them again"
        )
    if answer.status != 200:
        raise UserError(
            f"{where}: HTTP {answer.status}: {str(answer.body)[:200]}; nothing of this is learned from"
        )
    try:
        return answers.read(answer.body, job.wanted)
    except UserError as error:
        raise UserError(f"{where}: {error}; nothing of this is learned from") from None


def _as_samples(agents, rows: int, samples: int, params: SamplingParams, jobs, drawn) -> sampling.Samples:
    """The completions of all requests as arrays; rows without a prompt have length 0."""
    shape = (len(agents), rows, params.max_new_tokens)
    tokens_NRL, logprobs_NRL = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    lengths_NR, finished_NR = np.zeros(shape[:2], np.int32), np.zeros(shape[:2], bool)
    for job, completions in zip(jobs, drawn, strict=True):
        n = agents.index(job.agent)
        # If the most likely tokens are always taken, one completion stands for all samples.
        copies = samples if params.greedy else 1
        for g, one in enumerate(completions * copies):
            r, length = job.row + g, len(one.tokens_L)
            tokens_NRL[n, r, :length], logprobs_NRL[n, r, :length] = one.tokens_L, one.logprobs_L
            lengths_NR[n, r], finished_NR[n, r] = length, one.finished
    return sampling.Samples(tokens_NRL, lengths_NR, logprobs_NRL, finished_NR)
