"""The base of all API experts: the key, parallel requests, and the limits. Each API has a subclass."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from jaxmarl_llm.experts.attempts import Failure, Garbage, attempt, hide, persist, read_key
from jaxmarl_llm.experts.limits import Account, OverBudget, RateLimit, estimate_prompt, estimate_tokens
from jaxmarl_llm.experts.types import ExpertError, Reply, Request, Spent, describe
from jaxmarl_llm.utils import files
from jaxmarl_llm.utils.errors import UserError

USUAL_KEY = "auto"
POLL = 0.05  # seconds between checks whether requests in flight have given back tokens
_NO_LIST = (404, 405)  # statuses of a reachable endpoint that does not list its models


class Remote:
    """A `Source` behind an API.

    Args:
      model: name, as the endpoint knows it.
      base_url: of the endpoint; "" is the API's own.
      key_variable: environment variable with the key; "auto" is the API's usual one, "" means that the
        endpoint needs no key. The key is read at each call and never kept.
      timeout_seconds: of one attempt, from the connection to the last byte.
      retries: attempts after the first.
      parallel: maximum number of requests in flight.
      rate, account: limits; every attempt counts.
      sleep: function that waits for some seconds.
    """

    kind: str  # also the name of the SDK's package
    client_class: str
    usual_url: str
    usual_key_variable: str

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "",
        key_variable: str = USUAL_KEY,
        timeout_seconds: float = 60.0,
        retries: int = 5,
        parallel: int = 8,
        rate: RateLimit | None = None,
        account: Account | None = None,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ):
        base_url = check_url(base_url or self.usual_url)
        self.identity = {"kind": self.kind, "base_url": base_url, "model": model}
        self._key_variable = self.usual_key_variable if key_variable == USUAL_KEY else key_variable
        self._timeout, self._retries, self._parallel = timeout_seconds, retries, parallel
        self._rate, self._account = rate or RateLimit(None), account or Account(None, Spent())
        self._sleep = sleep

    def refusal(self, request: Request) -> str | None:
        """See `Source.refusal`."""
        raise NotImplementedError

    async def complete(self, client, request: Request) -> Reply:
        """One answer, by one HTTP request. Raises `Garbage`, or the SDK's exceptions."""
        raise NotImplementedError

    async def models(self, client) -> list[str]:
        """Names of models that the endpoint lists, perhaps not all. Raises the same as `complete`."""
        raise NotImplementedError

    @property
    def spent(self) -> Spent:
        """See `Source.spent`."""
        return self._account.spent

    def check(self) -> None:
        """See `Source.check`. Requests the list of models, which costs no tokens."""
        listed = self._run(self._list_models)
        if isinstance(listed, Failure):
            if listed.status in _NO_LIST:
                return
            raise self._error("", listed.reason)
        if listed and self.identity["model"] not in listed:  # it may be listed under another name
            logging.warning("%s: not among the models listed: %s", self._name, ", ".join(listed[:20]))

    def answer(self, requests: Sequence[Request], arrived: Callable[[int, Reply], None]) -> None:
        """See `Source.answer`. After a failure no new request is sent."""
        failed = self._run(self._answer_all, requests, arrived)
        if failed:
            raise failed[min(failed)]

    @property
    def _name(self) -> str:
        return describe(self.identity)

    def _error(self, item: str, reason: str) -> ExpertError:
        return ExpertError(f"{self._name}, item {item!r}: {reason}" if item else f"{self._name}: {reason}")

    def _sdk(self):
        try:
            return importlib.import_module(self.kind)
        except ImportError as error:
            raise UserError(
                f"{self._name} needs a package: pip install 'jaxmarl_llm[experts]' ({error})"
            ) from error

    def _key(self) -> str:
        if not self._key_variable:
            return "none"  # the SDKs require a key
        try:
            return read_key(self._key_variable)
        except ValueError as error:
            raise UserError(f"{self._name}: {error}") from None

    def _run(self, function: Callable[..., Awaitable[Any]], *args) -> Any:
        """``function(client, sdk, key, *args)`` in a separate event loop; the caller may be in another."""
        sdk, key = self._sdk(), self._key()
        from anyio.from_thread import start_blocking_portal  # comes with the SDKs

        async def run():
            options = dict(base_url=self.identity["base_url"], timeout=self._timeout, max_retries=0)
            async with getattr(sdk, self.client_class)(api_key=key, **options) as client:
                return await function(client, sdk, key, *args)

        with start_blocking_portal() as portal:
            return portal.call(run)

    async def _list_models(self, client, sdk, key: str) -> list[str] | Failure:
        async def once():
            names = await attempt(sdk, self.models(client), self._timeout, key)
            return names if isinstance(names, Failure) else [hide(name, key) for name in names]

        return await persist(once, self._retries, self._sleep, self._name)

    async def _answer_all(self, client, sdk, key: str, requests, arrived) -> dict[int, ExpertError]:
        """Errors by index; the other answers have arrived, or were not requested because of an error."""
        failed, waiting = {}, iter(enumerate(requests))

        async def answer(index: int, request: Request):
            once = functools.partial(self._once, client, sdk, key, request)
            about = f"{self._name}, item {request.item!r}"
            outcome = await persist(once, self._retries, self._sleep, about)
            if isinstance(outcome, Failure):
                failed[index] = self._error(request.item, outcome.reason)
                return
            try:
                arrived(index, outcome)
            except ExpertError as error:
                failed[index] = error

        async def work():
            for index, request in waiting:
                await answer(index, request)
                if failed:
                    return

        await asyncio.gather(*(work() for _ in range(min(self._parallel, len(requests)))))
        return failed

    async def _once(self, client, sdk, key: str, request: Request) -> Reply | Failure:
        """One attempt within the limits."""
        most = estimate_prompt(request), request.max_tokens
        try:
            while not self._account.reserve(sum(most)):
                await self._sleep(POLL)
        except OverBudget as error:
            return Failure(str(error), retry=False)
        cost = most  # if it is unknown, for example after a timeout
        try:
            await self._sleep(self._rate.delay())
            outcome = await attempt(sdk, self.complete(client, request), self._timeout, key)
            if isinstance(outcome, Failure):
                cost = (0, 0) if outcome.free else most
                return outcome
            cost = outcome.input_tokens, outcome.output_tokens
            return dataclasses.replace(outcome, text=hide(outcome.text, key))
        finally:
            self._account.settle(sum(most), *cost)


def check_url(url: str) -> str:
    """The address without a final slash. ValueError if it may hold a secret; the error does not show it."""
    try:
        parts = urlsplit(url)
    except ValueError:  # a bracket without the other one
        raise UserError("expert: base_url is no address; allowed: http://… or https://…, or none") from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError(
            "expert: base_url holds a user name, a password, a query or a fragment; allowed are host, port "
            "and path (a key belongs in an environment variable)"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"expert: base_url={url!r} is no address; allowed: http://… or https://…, or none")
    return url.rstrip("/")


def make_reply(request: Request, text: Any, stop: Any, *, cut: str, usage: tuple[Any, Any]) -> Reply:
    """The reply of an endpoint that sent these fields.

    Args:
      text, stop: the answer, and the reason why it ended.
      cut: the value of ``stop`` for an answer cut at max_tokens.
      usage: input and output tokens; estimated if they are not numbers.

    Raises Garbage unless the text is a string that is not blank.
    """
    if not isinstance(text, str) or not text.strip():
        raise Garbage(f"an answer without text (stop reason {stop!r})")
    text = files.safe_text(text)
    estimates = estimate_prompt(request), estimate_tokens(text)
    counts = (n if type(n) is int and n >= 0 else other for n, other in zip(usage, estimates, strict=True))
    return Reply(text, *counts, finished=stop != cut)
