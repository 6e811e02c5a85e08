"""The errors that a client gets as a status and a JSON object."""

from collections.abc import Mapping

CLIENT_GONE = 499
"""Status in the logs and metrics of a request whose client went away; nobody receives it."""


class RequestError(Exception):
    """A request that is not answered as asked.

    Args:
        status: HTTP status.
        message: What is wrong, for the person who sent the request.
        headers: Headers of the answer, such as `Retry-After`.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})
