"""External experts that give advice during training, behind one interface (`Expert`). No JAX here.

    expert = experts.build("anthropic", "claude-sonnet-4-5", cache="runs/advice")
    expert.check()  # is there a key, and does the endpoint answer?
    (reply,) = expert.ask([Request(({"role": "user", "content": "…"},), item="HumanEval/0")])

`types` has requests and replies; `cached` is the `Expert`, which keeps answers on disk and gets missing ones
from a source: `openai_api`, `anthropic_api` (each a `remote`, which repeats `attempts` within
`limits`) or `local`, a model on this machine and the only part that imports JAX.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from jaxmarl_llm.experts.anthropic_api import Anthropic
from jaxmarl_llm.experts.cached import Cached
from jaxmarl_llm.experts.limits import Account, RateLimit
from jaxmarl_llm.experts.openai_api import OpenAI
from jaxmarl_llm.experts.remote import USUAL_KEY
from jaxmarl_llm.experts.types import Expert, ExpertError, Reply, Request, Spent
from jaxmarl_llm.utils.errors import UserError

__all__ = ["KINDS", "Cached", "Expert", "ExpertError", "Reply", "Request", "Spent", "build"]

APIS = {api.kind: api for api in (OpenAI, Anthropic)}
KINDS = (*APIS, "local")


def build(
    kind: str,
    model: str,
    *,
    base_url: str = "",
    key_variable: str = USUAL_KEY,
    timeout_seconds: float = 60.0,
    retries: int = 5,
    parallel: int = 8,
    requests_per_minute: int = 0,
    token_budget: int = 0,
    cache: str = "",
    offline: bool = False,
    spent: Spent | None = None,
    seed: int = 0,
    load: Callable | None = None,
    prompts: str = "",
) -> Expert:
    """Build an expert, without loading a model or sending a request.

    Args:
      kind: one of `KINDS`: an endpoint with OpenAI's chat completions API, Anthropic's API, or a model on
        this machine.
      model: name at the endpoint, or what `weights.load` takes.
      base_url: of the endpoint; "" is the API's own.
      key_variable: environment variable that holds the key: "auto" is OPENAI_API_KEY or ANTHROPIC_API_KEY, ""
        means that the endpoint needs no key.
      timeout_seconds: of one attempt, from the connection to the last byte.
      retries: attempts after the first, for temporary failures: no connection, a broken or late answer,
        garbage, and the statuses 408, 409, 429 and 500 or above. They wait 0.5, 1, 2, … up to 30 s, or as
        long as the endpoint says.
      parallel: maximum number of requests in flight.
      requests_per_minute: 0 is no limit.
      token_budget: maximum number of tokens for the run, input and output together; 0 is no limit. A request
        that could exceed it, by its max_tokens and an estimate of its prompt, is an ExpertError instead.
      cache: folder that keeps every answer; "" keeps none.
      offline: take answers only from the cache.
      spent: what the run had spent when it was interrupted.
      seed: of a local model's sampling.
      load: function that loads a local model by its name; None for `weights.load`.
      prompts: how a local model's prompts are written, if ``load`` changes that: cached answers to
        prompts of other kinds are not used.

    Raises ValueError for bad values.
    """
    _check_numbers(
        timeout_seconds=(timeout_seconds, 1e-3),
        retries=(retries, 0),
        parallel=(parallel, 1),
        requests_per_minute=(requests_per_minute, 0),
        token_budget=(token_budget, 0),
    )
    if not model:
        raise UserError("expert.model is empty; allowed: a model's name")
    account = Account(token_budget or None, spent or Spent())
    if kind == "local":
        _check_local(base_url=base_url, requests_per_minute=requests_per_minute, token_budget=token_budget)
        from jaxmarl_llm.experts.local import Local  # brings in JAX

        local = Local(model, seed=seed, account=account, load=load, prompts=prompts)
        return Cached(local, cache, offline)
    if kind not in APIS:
        raise UserError(f"expert.kind={kind!r}; allowed: {', '.join(KINDS)}")
    source = APIS[kind](
        model,
        base_url=base_url,
        key_variable=key_variable,
        timeout_seconds=timeout_seconds,
        retries=retries,
        parallel=parallel,
        rate=RateLimit(requests_per_minute or None),
        account=account,
    )
    return Cached(source, cache, offline)


def _check_numbers(**ranges: tuple[float, float]) -> None:
    """Raise ValueError for the first value below its minimum."""
    for name, (value, least) in ranges.items():
        if not least <= value < math.inf:
            raise UserError(f"expert.{name}={value!r}; allowed: a number from {least}")


def _check_local(**options) -> None:
    """Raise ValueError for options that apply only to an endpoint."""
    for name, value in options.items():
        if value:
            raise UserError(f"expert.{name}={value!r}: a local model has no such thing; leave it out")
