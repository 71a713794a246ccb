"""Answers on disk, so that a run can be repeated or resumed without new requests and without network."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import logging
import pathlib
from collections.abc import Sequence

from jaxmarl_llm.experts.types import ExpertError, Reply, Request, Source, Spent, describe
from jaxmarl_llm.utils.errors import UserError
from jaxmarl_llm.utils.files import atomic_write_text

_REPLY = {"text": str, "input_tokens": int, "output_tokens": int, "finished": bool}


class Cached:
    """An `Expert` that sends to its source only requests whose answer it does not have yet.

    Two requests are equal if they go to the same source with the same messages, max_tokens and temperature.
    At temperature 0 equal requests share one answer. Above 0 their streams must be equal too, and the first,
    second, … equal request in one call of `ask` get separate answers, which are used again for the first,
    second, … in any later call.

    Args:
      source: gives new answers.
      folder: one JSON file per answer; "" keeps none.
      offline: never ask the source; a request without a stored answer is an ExpertError.
    """

    def __init__(self, source: Source, folder: str = "", offline: bool = False):
        if offline and not folder:
            raise UserError("expert.offline=True needs expert.cache, the folder to take the answers from")
        self._source, self._offline = source, offline
        self._folder = pathlib.Path(folder) if folder else None
        self._n_cached = 0

    @property
    def spent(self) -> Spent:
        """What the source has spent, and how many answers cost nothing."""
        spent = self._source.spent
        return dataclasses.replace(spent, cached=spent.cached + self._n_cached)

    def check(self, examples: Sequence[Request] = ()) -> None:
        """See `Expert.check`. Offline, the source needs neither key nor network nor package."""
        for request in examples:
            self._accept(request)
        if not self._offline:
            self._source.check()
        elif not self._folder.is_dir():
            raise UserError(f"expert: offline, but the cache folder {self._folder} does not exist")

    def ask(self, requests: Sequence[Request]) -> list[Reply]:
        """See `Expert.ask`."""
        for request in requests:
            self._accept(request)
        keys, wanted = self._keys(requests), {}
        for key, request in zip(keys, requests, strict=True):
            wanted.setdefault(key, request)
        answered = {key: reply for key in wanted if (reply := self._find(key)) is not None}
        self._ask_source({key: request for key, request in wanted.items() if key not in answered}, answered)
        replies = []
        for key in keys:
            replies.append(answered[key])
            answered[key] = dataclasses.replace(answered[key], cached=True)  # for other equal requests
        self._n_cached += sum(reply.cached for reply in replies)
        return replies

    def _ask_source(self, missing: dict[str, Request], replies: dict[str, Reply]) -> None:
        """Add the answers to ``replies``, and keep each as it arrives."""
        if missing and self._offline:
            item = next(iter(missing.values())).item
            reason = f"offline, and its answer is not in {self._folder} (missing answers: {len(missing)})"
            raise self._error(item, reason)
        keys, requests = list(missing), list(missing.values())

        def arrived(index: int, reply: Reply) -> None:
            replies[keys[index]] = reply
            self._keep(keys[index], requests[index], reply)

        if missing:
            self._source.answer(requests, arrived)

    def _accept(self, request: Request) -> None:
        reason = self._source.refusal(request)
        if reason is not None:
            raise UserError(f"{describe(self._source.identity)}, item {request.item!r}: {reason}")

    def _keys(self, requests: Sequence[Request]) -> list[str]:
        """File name of each request's answer, without ending."""
        keys, seen = [], collections.Counter()
        for request in requests:
            content = self._content(request)
            text = json.dumps(content, sort_keys=True)
            occurrence = 0 if request.temperature == 0 else seen[text]
            seen[text] += 1
            keys.append(hashlib.sha256(f"{occurrence} {text}".encode()).hexdigest()[:40])
        return keys

    def _content(self, request: Request) -> dict:
        """Return the content that makes two requests equal; it excludes the item's name."""
        question = {"messages": list(request.messages), "max_tokens": request.max_tokens}
        temperature = None if request.temperature is None else float(request.temperature)
        content = self._source.identity | question | {"temperature": temperature}
        return content | ({"stream": request.stream} if request.stream and temperature != 0 else {})

    def _path(self, key: str) -> pathlib.Path:
        return self._folder / f"{key}.json"

    def _find(self, key: str) -> Reply | None:
        """The answer in the folder; None if there is none or it cannot be read."""
        if self._folder is None:
            return None
        try:
            stored = json.loads(self._path(key).read_text("utf-8"))["reply"]
            if any(type(stored[name]) is not kind for name, kind in _REPLY.items()):
                raise TypeError("a field has the wrong type")
            return Reply(**{name: stored[name] for name in _REPLY}, cached=True)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            logging.warning("expert: %s cannot be used and counts as absent (%s)", self._path(key), error)
            return None

    def _keep(self, key: str, request: Request, reply: Reply) -> None:
        if self._folder is None:
            return
        stored = {name: getattr(reply, name) for name in _REPLY}
        content = {"item": request.item, "request": self._content(request), "reply": stored}
        try:
            atomic_write_text(self._path(key), json.dumps(content, indent=1) + "\n")
        except OSError as error:
            reason = f"its answer cannot be kept in {self._folder}: {error.strerror or error}"
            raise self._error(request.item, reason) from None

    def _error(self, item: str, reason: str) -> ExpertError:
        return ExpertError(f"{describe(self._source.identity)}, item {item!r}: {reason}")
