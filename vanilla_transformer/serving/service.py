"""What the routes share: the models, who may ask and how often, how long an answer may take."""

import asyncio
import hashlib
import hmac
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import ceil
from typing import Any, TypeVar

from fastapi import Request

from vanilla_transformer.serving.errors import CLIENT_GONE, RequestError, check_limit
from vanilla_transformer.serving.models import Answers, Models, Query, ServedModel
from vanilla_transformer.serving.monitoring import Metrics
from vanilla_transformer.serving.settings import Settings

Result = TypeVar("Result")
MOST_CLIENTS = 100_000
"""Clients whose requests are counted; those that asked longest ago are forgotten first."""


class RateLimit:
    """Counts the requests of each client: a bucket that fills at an even rate (token bucket).

    Args:
        per_minute: Requests per minute, which is also how many may come at once; None: any number.
    """

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def count(self, client: str) -> None:
        """Counts a request of a client: an address, or the number of a key."""
        if self._per_minute is None:
            return
        rate, now = self._per_minute / 60, self._clock()
        left, last = self._buckets.pop(client, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - last) * rate)
        self._buckets[client] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1:
            retry = ceil((1 - left) / rate)
            raise RequestError(
                429,
                f"Slowdown: {self._per_minute} requests per minute are allowed; ask again in "
                f"{retry} s.",
                {"Retry-After": str(retry)},
            )


@dataclass(frozen=True)
class Service:
    """A server without its routes."""

    models: Models
    settings: Settings
    metrics: Metrics
    rate: RateLimit

    def admit(self, request: Request, given_key: str | None = None) -> None:
        """Checks the key of a request, counts the request, and looks for room in the queues.

        Raises:
            RequestError: With status 401, 403, 429 or 503.
        """
        number = self.identify(request, given_key)
        self.rate.count(_address_of(request) if number is None else f"key {number}")
        self.models.check_room()

    def identify(self, request: Request, given_key: str | None = None) -> int | None:
        """Returns the number of a request's key in the file, from 1; None if no key is needed.

        A request without a right key counts for its address, so that keys cannot be tried out.

        Args:
            given_key: A key in its body; None: the one of its headers.

        Raises:
            RequestError: With status 401 or 403, and 429 after too many of these.
        """
        if not self.settings.api_keys:
            return None
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        key = given_key or (bearer.strip() if scheme.lower() == "bearer" else "")
        digest = _digest_of(key)
        # All are compared, so that the time reveals nothing.
        equal = [hmac.compare_digest(_digest_of(one), digest) for one in self.settings.api_keys]
        if any(equal):
            note_fields(request, key=equal.index(True) + 1)
            return equal.index(True) + 1
        self.rate.count(_address_of(request))
        if key:
            raise RequestError(403, "Invalid API key")
        raise RequestError(
            401,
            "An API key is needed: send it as `api_key`, or as `Authorization: Bearer KEY`.",
            {"WWW-Authenticate": "Bearer"},
        )

    async def answer(
        self, request: Request, model: ServedModel, texts: list[str], query: Query
    ) -> Answers:
        """Computes the outputs of the texts of a request; see `ServedModel.answer`."""
        characters = sum(map(len, texts))
        note_fields(request, model=model.source.name, texts=len(texts), characters=characters)
        answers = await self.finish_in_time(request, model.answer(texts, query))
        note_fields(request, tokens=answers.tokens)
        return answers

    def check_size(self, texts: list[str]) -> None:
        """Refuses, with status 400, a request whose texts are too many or too long."""
        check_limit(len(texts), self.settings.limits.max_texts, "texts")
        check_limit(sum(map(len, texts)), self.settings.limits.max_characters, "characters")

    async def finish_in_time(self, request: Request, work: Awaitable[Result]) -> Result:
        """Waits for work as long as it may take and the client waits for it, then cancels it.

        Raises:
            RequestError: With status 504 after the time, 499 if the client is gone.
        """

        async def client_leaves() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        limit = self.settings.limits.timeout
        working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(client_leaves())
        both: set[asyncio.Future[Any]] = {working, leaving}
        try:
            await asyncio.wait(both, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            if leaving.done():
                raise RequestError(CLIENT_GONE, "The client closed the connection.")
            raise RequestError(
                504, f"The request took more than {limit:g} s: send less text at once."
            )
        finally:
            working.cancel()
            leaving.cancel()


def note_fields(request: Request, **fields: Any) -> None:
    """Adds facts to the log's line of a request."""
    request.scope["state"]["record"].fields.update(fields)


def _address_of(request: Request) -> str:
    return network_of(request.client.host if request.client else "")


def network_of(address: str) -> str:
    """Returns what counts as one client: an IPv4 address, or an IPv6 network of 64 bits."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed.packed, 64), strict=False))


def _digest_of(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
