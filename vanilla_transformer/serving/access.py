"""API keys and the rate limit."""

import hashlib
import hmac
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from math import ceil

from vanilla_transformer.serving.errors import RequestError

MOST_CLIENTS = 100_000
"""Clients whose requests are counted; those that asked longest ago are forgotten first."""


class ApiKeys:
    """The keys that open the server.

    Args:
        keys: The keys; empty: none is needed.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [_digest_of(key) for key in keys]

    @property
    def are_needed(self) -> bool:
        """Whether a request must have a key."""
        return bool(self._digests)

    def number_of(self, key: str | None) -> int | None:
        """Finds a key.

        Args:
            key: What the request gave.

        Returns:
            The key's number in the file, from 1; None if no key is needed.

        Raises:
            RequestError: With status 401 if a key is missing, 403 if it is wrong.
        """
        if not self._digests:
            return None
        if not key:
            raise RequestError(
                401,
                "An API key is needed: send it as `api_key`, or as `Authorization: Bearer KEY`.",
                {"WWW-Authenticate": "Bearer"},
            )
        given = _digest_of(key)
        # All are compared, so that the time tells nothing.
        found = [number for number, one in enumerate(self._digests, 1) if _is_equal(one, given)]
        if not found:
            raise RequestError(403, "Invalid API key")
        return found[0]


class RateLimit:
    """Counts the requests of each client: a bucket that fills at an even rate (token bucket).

    Args:
        per_minute: Requests per minute, which is also how many may come at once; None: any number.
        clock: Returns seconds.
    """

    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def count(self, client: str) -> None:
        """Counts a request.

        Args:
            client: Name of the client: an address, or the number of a key.

        Raises:
            RequestError: With status 429 and `Retry-After` if the client asks too often.
        """
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


def network_of(address: str) -> str:
    """Returns what counts as one client: an IPv4 address, or an IPv6 network of 64 bits.

    Args:
        address: The address of a client.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed.packed, 64), strict=False))


def bearer_key(authorization: str | None) -> str | None:
    """Returns the key of an `Authorization` header, if it holds one.

    Args:
        authorization: The header.
    """
    scheme, _, key = (authorization or "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def _digest_of(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _is_equal(one: bytes, other: bytes) -> bool:
    return hmac.compare_digest(one, other)
