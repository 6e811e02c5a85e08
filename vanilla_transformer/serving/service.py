"""The state of a server that its routes share: models, limits, glossaries, memory, files."""

import asyncio
import hmac
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import Request

from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.serving.bodies import SomeFields, check_fields, parse_body, read_bytes
from vanilla_transformer.serving.errors import CLIENT_GONE, RequestError, check_limit
from vanilla_transformer.serving.glossaries import Glossaries
from vanilla_transformer.serving.memories import StoredMemory
from vanilla_transformer.serving.models import Models, ServedDirection
from vanilla_transformer.serving.monitoring import Metrics, record_of
from vanilla_transformer.serving.served_model import Answer, Plan, Planned
from vanilla_transformer.serving.settings import Settings
from vanilla_transformer.serving.translated_files import TranslatedFiles

Result = TypeVar("Result")


@dataclass(frozen=True)
class Service:
    """Checks requests, and computes the answers to them."""

    models: Models
    settings: Settings
    metrics: Metrics
    glossaries: Glossaries
    memory: StoredMemory | None
    files: TranslatedFiles = field(default_factory=TranslatedFiles)

    async def read_fields(self, request: Request, fields: type[SomeFields]) -> SomeFields:
        """Reads the body of a request, and checks its key and its fields."""
        body = await read_bytes(request, self.settings.limits)
        values = await parse_body(request, body)
        key = values.get("api_key")
        self.check_key(request, key if isinstance(key, str) else None)
        return check_fields(fields, values)

    def check_key(self, request: Request, key: str | None = None) -> None:
        """Checks the key of a request if the server has keys, and logs its number.

        Args:
            key: The key in the body. None: the headers have it.
        """
        if not (keys := self.settings.clients.api_keys):
            return
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        key = key or (bearer.strip() if scheme.lower() == "bearer" else "")
        given = key.encode("utf-8", "surrogatepass")
        # All are compared, so that the time reveals nothing.
        equal = [hmac.compare_digest(known.encode(), given) for known in keys]
        if any(equal):
            record_of(request).fields["key"] = equal.index(True) + 1
        elif key:
            raise RequestError(403, "Invalid API key")
        else:
            raise RequestError(
                401,
                "An API key is needed: send it as `api_key`, or as `Authorization: Bearer KEY`.",
                {"WWW-Authenticate": "Bearer"},
            )

    async def answer(
        self,
        request: Request,
        direction: ServedDirection,
        plan: Plan[Planned],
        options: TranslateOptions,
    ) -> Answer[Planned]:
        """Computes the outputs of a request; corrections in the memory of the server count."""
        memories = []
        if self.memory is not None:  # a thread reads the corrections that other servers have added
            memories.append(await asyncio.to_thread(self.memory.of, *direction.codes))
        record = record_of(request)
        record.fields["model"] = direction.model.entry.name
        answer = await direction.compute(plan, options, memories)
        texts = answer.job.texts
        characters = sum(len(each.text) for each in texts)
        record.count(texts=len(texts), characters=characters, tokens=answer.num_tokens)
        if answer.loading_seconds:
            record.count(loading=round(answer.loading_seconds, 3))
        return answer

    def check_size(self, texts: list[str]) -> None:
        """Refuses, with status 400, a request whose texts are too many or too long."""
        check_limit(len(texts), self.settings.limits.max_texts, "texts")
        check_limit(sum(map(len, texts)), self.settings.limits.max_characters, "characters")

    async def finish_in_time(self, request: Request, work: Awaitable[Result]) -> Result:
        """Waits for work; cancels it when its time is over, or when the client leaves."""

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


def service_of(request: Request) -> Service:
    """Returns the server that a request has come to."""
    service: Service = request.app.state.service
    return service
