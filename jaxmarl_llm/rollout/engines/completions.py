"""The engine of servers that speak ``/v1/completions`` as vLLM does, with adapters loaded by name.

Of one base model, which the servers serve; adapters go there after every update. See docs/engines.md.
"""

import functools
import hashlib
import logging
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxmarl_llm import sampling
from jaxmarl_llm.rollout.engines import adapter_store, agreement, answers
from jaxmarl_llm.rollout.engines.adapter_store import AdapterStore, AgentAdapters
from jaxmarl_llm.rollout.engines.answers import Completion, Vocabulary, Wanted
from jaxmarl_llm.rollout.engines.calls import Lines, Server, together
from jaxmarl_llm.rollout.engines.types import Drawn, Published
from jaxmarl_llm.sampling import SamplingParams, stop_sequences
from jaxmarl_llm.sampling.padding import Sizes
from jaxmarl_llm.team import Member
from jaxmarl_llm.utils.errors import UserError

KEPT = 3  # versions of an agent's adapters that servers hold: of an update under way, its draws, an evaluation
COMPARED = 2  # completions of each agent whose log-probabilities are compared, at least one of every server
SURE = 1e-3  # nats: what the only token that top_k=1 leaves may be away from log-probability 0
PROBED = 8  # tokens of the request that shows which log-probabilities a server gives
CLOSING = 5.0  # seconds that a server has for each call at the end of a run
_NOT_KNOWN = 404


class _Known(NamedTuple):
    """What servers hold of a member: its agents, weak references to the arrays, versions and names by agent."""

    agents: tuple[str, ...]
    leaves: tuple[weakref.ref, ...]
    versions: Mapping[str, str]
    names: Mapping[str, str]

    def holds(self, member: Member, trainable: Any) -> bool:
        """Whether these very arrays are published."""
        leaves = jax.tree.leaves(trainable)
        if self.agents != member.stack.agents or len(leaves) != len(self.leaves):
            return False
        return all(old() is new for old, new in zip(self.leaves, leaves, strict=True))


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
      servers: those that share the prompts.
      store: the folder of the adapters.
      parallel: most requests under way at each server.
      max_gap: greatest mean distance of log-probabilities, in nats, see `agreement`; 0: they are not compared.
    """

    def __init__(self, servers: Sequence[Server], store: AdapterStore, *, parallel: int, max_gap: float):
        self._servers, self._store = tuple(servers), store
        self._parallel, self._max_gap = parallel * len(self._servers), max_gap
        self._lock = threading.Lock()
        self._known: list[_Known] = []  # the one used last at the end
        self._probed = False
        self._gap, self._seconds, self._repeated = 0.0, 0.0, 0

    def open(self) -> None:
        """Check that every server answers, and remove what an earlier process of the run left there.

        UserError naming the server if one does not.
        """
        for server, known in zip(self._servers, self._on_all(_models), strict=True):
            for name in known:
                if name.startswith(self._store.prefix):
                    together([functools.partial(_unload, server, name=name)], 1)
        self._store.forget()

    def close(self) -> None:
        """Remove the adapters from the servers, as far as they answer, and from the disk."""
        names = {name for known in self._known for name in known.names.values()}
        for server in self._servers:
            try:
                for name in names:
                    _unload(server, Lines(), name=name, once=True)
            except UserError as error:
                logging.warning("adapters stay at %s: %s", server.url, error)
        for name in names:
            self._store.remove(name)
        self._known = []

    def publish(self, step: int, member: Member, trainable: Any) -> Published:
        """See `Engine.publish`. Every server has loaded the adapters when it returns.

        The oldest versions are removed, so that `KEPT` of each agent stay.
        """
        if member.remote:
            return Published(member, trainable)
        if member.stack.mode != "adapters":
            raise UserError(f"team.mode={member.stack.mode!r}: an engine of servers is sent adapters only")
        with self._lock:
            held = next((known for known in self._known if known.holds(member, trainable)), None)
            if held is None:
                started = time.perf_counter()
                held = self._publish(step, member, trainable)
                self._seconds += time.perf_counter() - started
            self._known = [known for known in self._known if known is not held] + [held]
            self._drop_oldest(member)
        return Published(member, trainable, held.versions, held.names)

    def _publish(self, step: int, member: Member, trainable: Any) -> _Known:
        """Have the servers load what they do not hold; equal adapters keep their name."""
        agents, leaves = member.stack.agents, tuple(map(weakref.ref, jax.tree.leaves(trainable)))
        own = [known for known in self._known if known.agents == agents]
        names, versions = {}, {}
        for adapters in adapter_store.of_member(member, trainable):
            agent = adapters.agent
            versions[agent] = adapters.version
            same = [known.names[agent] for known in own if known.versions[agent] == adapters.version]
            names[agent] = same[0] if same else self._store.name(step, adapters)
            if not same:
                self._load(names[agent], member, adapters)
        # Copies of the same arrays, as of a rollout that is drawn early, are no version of their own.
        self._known = [known for known in self._known if known.agents != agents or known.versions != versions]
        return _Known(agents, leaves, versions, names)

    def _load(self, name: str, member: Member, adapters: AgentAdapters) -> None:
        """Write some adapters, and have every server load them."""
        self._store.write(name, member, adapters)
        self._on_all(functools.partial(_load, name=name, path=str(self._store.path(name))))

    def _drop_oldest(self, member: Member) -> None:
        """Remove versions of a member's adapters beyond the `KEPT` that were used last."""
        own = [known for known in self._known if known.agents == member.stack.agents]
        for old in own[:-KEPT]:
            self._known = [known for known in self._known if known is not old]
            used = {name for known in self._known for name in known.names.values()}
            for name in set(old.names.values()) - used:
                self._on_all(functools.partial(_unload, name=name))
                self._store.remove(name)

    def _on_all(self, call) -> list:
        """``call(server, lines)`` of every server, in their order."""
        return together([functools.partial(call, server) for server in self._servers], len(self._servers))

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
    ) -> Drawn:
        """See `Engine.draw`. A prompt and its samples are one request; ``sizes`` are of no use here.

        Raises:
          UserError: naming the server, where one does not answer, does not know the adapters, or gives an
            answer that is not what was wanted (`answers.read`) or not of this policy (`agreement`).
        """
        jobs = self._jobs(published, prompts, key, samples, params, greedy)
        if not self._probed:
            self._probe(jobs)
        drawn = together([functools.partial(_complete, job) for job in jobs], self._parallel)
        if self._max_gap:
            self._compare(published, jobs, drawn, params)
        versions = tuple(published.versions[agent] for agent in prompts)
        rows = max(map(len, prompts.values())) * samples
        return Drawn(_as_samples(list(prompts), rows, samples, params, jobs, drawn), versions)

    def _jobs(self, published: Published, prompts, key, samples: int, params, greedy) -> list[_Job]:
        """All requests of a draw; the prompts go to the servers in turn."""
        member, jobs = published.member, []
        policy = member.stack.policy
        stops = stop_sequences.of_stack(member.stack, params.max_new_tokens)
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

        After top_k=1 one token is left, whose log-probability is 0; vLLM's default is that before.
        """
        params = SamplingParams(PROBED, top_k=1)
        words = jobs[0].wanted.vocabulary
        never = Vocabulary(words.size, words.unused, ())
        for server in self._servers:
            wanted = jobs[0].wanted._replace(samples=1, params=params, vocabulary=never)
            (one,) = together([functools.partial(_complete, jobs[0]._replace(server=server, wanted=wanted))], 1)
            if np.abs(one[0].logprobs_L).max() > SURE:
                raise UserError(
                    f"the server {server.url} of engine.servers: its log-probabilities are not those of the "
                    "distribution that it draws from; start it with --logprobs-mode processed_logprobs"
                )
        self._probed = True

    def _compare(self, published: Published, jobs: Sequence[_Job], drawn, params: SamplingParams) -> None:
        """Refuse completions whose log-probabilities are not those of the parameters that were published."""
        rows: dict[str, list[agreement.Read]] = {}
        for job, completions in zip(jobs, drawn, strict=True):
            if not job.wanted.params.greedy:
                rows.setdefault(job.agent, []).append((job.wanted.prompt, completions[0]))
        if not rows:
            return
        number = min(max(COMPARED, len(self._servers)), *map(len, rows.values()))
        some = {agent: own[:number] for agent, own in rows.items()}
        for agent, gap in agreement.gaps(published, some, params).items():
            self._gap = max(self._gap, gap)
            if not gap <= self._max_gap:
                raise UserError(
                    f"the log-probabilities of the servers are {gap:.3g} nats per token away from those of agent "
                    f"{agent!r} here, and engine.max_gap={self._max_gap:g}: they hold another base model, other "
                    f"adapters than {published.names[agent]!r}, or give log-probabilities of another kind; "
                    "nothing of this is learned from"
                )

    def metrics(self) -> dict[str, float]:
        """Since the last call: the greatest gap, seconds of publishing, and attempts that were repeated."""
        repeated = sum(server.repeated for server in self._servers)
        values = {"gap": self._gap, "publish_seconds": self._seconds, "repeated": repeated - self._repeated}
        self._gap, self._seconds, self._repeated = 0.0, 0.0, repeated
        return {f"engine/{name}": float(value) for name, value in values.items()}


def _seed(key: jax.Array, agent: str, row: int) -> int:
    """A seed of 62 bits; requests of one draw get seeds that lie far apart."""
    data = np.asarray(jax.random.key_data(key)).tobytes() + f"{agent} {row}".encode()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") >> 2


def _models(server: Server, lines: Lines) -> list[str]:
    """Names of what a server serves, adapters among them."""
    answer = server.call(lines, "/v1/models")
    listed = answer.body.get("data") if isinstance(answer.body, dict) else None
    if answer.status != 200 or not isinstance(listed, list):
        raise UserError(
            f"the server {server.url} of engine.servers lists no models (HTTP {answer.status}): is it an "
            "OpenAI-compatible one, and the address without /v1?"
        )
    return [str(model.get("id")) for model in listed if isinstance(model, dict)]


def _load(server: Server, lines: Lines, *, name: str, path: str) -> None:
    """Have a server load the adapters in a folder; a name that it knows is loaded again."""
    answer = server.call(lines, "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})
    if answer.status == 400 and "already" in str(answer.body):
        _unload(server, lines, name=name)
        answer = server.call(lines, "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})
    if answer.status != 200:
        raise UserError(
            f"the server {server.url} of engine.servers does not load the adapters in {path} (HTTP "
            f"{answer.status}: {str(answer.body)[:200]}): it must see the folder under this path, and be started "
            "with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
        )


def _unload(server: Server, lines: Lines, *, name: str, once: bool = False) -> None:
    """Have a server forget some adapters, if it knows them."""
    timeout = CLOSING if once else None
    server.call(lines, "/v1/unload_lora_adapter", {"lora_name": name}, once=once, timeout=timeout)


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
        raise UserError(f"{where}: HTTP {answer.status}: {str(answer.body)[:200]}; nothing of this is learned from")
    try:
        return answers.read(answer.body, job.wanted)
    except UserError as error:
        raise UserError(f"{where}: {error}; nothing of this is learned from") from None


def _as_samples(agents, rows: int, samples: int, params: SamplingParams, jobs, drawn) -> sampling.Samples:
    """The completions of all requests as arrays; what no prompt fills is of length 0."""
    shape = (len(agents), rows, params.max_new_tokens)
    tokens_NRL, logprobs_NRL = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    lengths_NR, finished_NR = np.zeros(shape[:2], np.int32), np.zeros(shape[:2], bool)
    for job, completions in zip(jobs, drawn, strict=True):
        n = agents.index(job.agent)
        # Where the most likely tokens are always taken, one completion stands for all samples.
        copies = samples if params.greedy else 1
        for g, one in enumerate(completions * copies):
            r, length = job.row + g, len(one.tokens_L)
            tokens_NRL[n, r, :length], logprobs_NRL[n, r, :length] = one.tokens_L, one.logprobs_L
            lengths_NR[n, r], finished_NR[n, r] = length, one.finished
    return sampling.Samples(tokens_NRL, lengths_NR, logprobs_NRL, finished_NR)
