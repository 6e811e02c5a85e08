"""What the routes share: the models, the settings, who may ask, and how long an answer may take."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request

from vanilla_transformer.serving.access import ApiKeys, RateLimit, bearer_key, network_of
from vanilla_transformer.serving.errors import CLIENT_GONE, RequestError
from vanilla_transformer.serving.metrics import Metrics
from vanilla_transformer.serving.models import Answers, Models, Query, ServedModel
from vanilla_transformer.serving.settings import Settings

Result = TypeVar("Result")


@dataclass(frozen=True)
class Service:
    """A server without its routes.

    Attributes:
        models: The models.
        settings: The settings.
        metrics: Counts what happens.
        keys: The keys that open it.
        rate: Counts the requests of each client.
    """

    models: Models
    settings: Settings
    metrics: Metrics
    keys: ApiKeys
    rate: RateLimit

    def admit(self, request: Request, given_key: str | None = None) -> None:
        """Checks the key of a request and counts the request.

        Args:
            request: The request.
            given_key: A key in its body; None: the one of its headers.

        Raises:
            RequestError: With status 401, 403 or 429.
        """
        number = self.keys.number_of(given_key or bearer_key(request.headers.get("authorization")))
        note_fields(request, key=number)
        address = request.client.host if request.client else ""
        self.rate.count(network_of(address) if number is None else f"key {number}")

    async def answer(
        self, request: Request, model: ServedModel, texts: list[str], query: Query
    ) -> Answers:
        """Computes the outputs of the texts of a request; see `ServedModel.answer`.

        Args:
            request: The request.
            model: The model.
            texts: The texts.
            query: What to compute.

        Returns:
            The outputs.

        Raises:
            RequestError: As `check_size`, `finish_in_time` and `ServedModel.answer`.
        """
        note_fields(
            request, model=model.source.name, texts=len(texts), characters=sum(map(len, texts))
        )
        answers = await self.finish_in_time(request, model.answer(texts, query))
        note_fields(request, tokens=answers.tokens)
        return answers

    def check_size(self, texts: list[str]) -> None:
        """Checks the number and the length of the texts of a request.

        Args:
            texts: The texts.

        Raises:
            RequestError: With status 400 if they are too many or too long.
        """
        limits, characters = self.settings.limits, sum(map(len, texts))
        if len(texts) > limits.texts:
            raise RequestError(
                400,
                f"Invalid request: request ({len(texts)} texts) exceeds text limit ({limits.texts} "
                "texts)",
            )
        if characters > limits.characters:
            raise RequestError(
                400,
                f"Invalid request: request ({characters} characters) exceeds text limit "
                f"({limits.characters} characters)",
            )

    async def finish_in_time(self, request: Request, work: Awaitable[Result]) -> Result:
        """Waits for work as long as it may take and the client waits for it.

        Args:
            request: The request, whose body is read.
            work: The work; it is cancelled when nobody waits for it.

        Returns:
            The result of the work.

        Raises:
            RequestError: With status 504 after the time, 499 if the client is gone.
        """
        limit = self.settings.limits.seconds
        working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_client_gone(request))
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
    """Adds facts to the log's line of a request.

    Args:
        request: The request.
        **fields: The facts.
    """
    request.scope["state"]["record"].fields.update(fields)


async def _client_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
