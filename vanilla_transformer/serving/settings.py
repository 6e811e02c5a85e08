"""What a server is started with: models, addresses, limits."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vanilla_transformer.data.arguments import option
from vanilla_transformer.languages import is_language

ANY = "any"
"""Code of the source language of a model that is given without a direction."""
_CODE = re.compile(r"[A-Za-z0-9_-]{1,35}")


@dataclass(frozen=True)
class ModelSource:
    """A model to serve.

    Attributes:
        name: Name by which `/v1/generate` chooses it.
    """

    path: str
    name: str
    source: str
    target: str


@dataclass(frozen=True)
class Limits:
    """What one request and one client may ask for; options of the command line."""

    max_body: int = option("bytes of the body", 1_000_000)
    max_characters: int = option("characters of all texts", 20_000)
    max_texts: int = option("texts", 1_000)
    max_tokens: int = option("source tokens of all texts", 20_000)
    max_new_tokens: int = option("largest max_new_tokens, in tokens", 512)
    max_beams: int = option("largest beam width, and most outputs per text", 10)
    timeout: float = option("seconds until an answer is there, or the request is given up", 60.0)
    read_timeout: float = option("seconds for the head of a request, and for its body", 10.0)
    max_connections: int = option("open connections", 1_000)


@dataclass(frozen=True)
class Computation:
    """How the models compute; options of the command line.

    `engine`, `compute_type`, `device` and `batch_tokens` are those of `Translator`.
    """

    engine: str = "auto"
    compute_type: str = "float32"
    device: str | None = None
    batch_tokens: int = 4096
    num_beams: int | None = option(
        "beam width of requests that name none (default: as saved with the model)"
    )
    batch_wait: float = option("milliseconds that a batch waits for further requests", 0.0)
    queue_size: int = option(
        "requests that a model accepts before the first of them is answered", 256
    )
    workers: int = option("batches of a model that are computed at the same time", 1)


@dataclass(frozen=True)
class Settings:
    """All settings of a server.

    Attributes:
        port: Port to listen on; 0: a free one.
        api_keys: Keys, one of which a request must have; empty: none is needed.
        allowed_origins: Origins whose web pages may ask this server (CORS).
        glossaries: Names and files of glossaries.
        trusted_proxies: Addresses whose `X-Forwarded-For` names the client.
        keep_patterns: As for `Translator.translate`.
    """

    models: tuple[ModelSource, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    limits: Limits = Limits()
    computation: Computation = Computation()
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    glossaries: tuple[tuple[str, str], ...] = ()
    keep_patterns: tuple[str, ...] = ()


def parse_models(words: Sequence[str]) -> tuple[ModelSource, ...]:
    """Reads `SOURCE-TARGET=MODEL`, `SOURCE:TARGET=MODEL` or `MODEL`, several times.

    Args:
        words: The arguments. Language codes that hold a hyphen need the colon. A `MODEL` alone has
            the name of its directory. If that, or the name of the directory that it is a link to,
            is a pair of codes such as `en-de`, it is the direction; otherwise the source is "any"
            and the target is the name, unless the model itself names its languages.

    Raises:
        ValueError: If a part is missing or holds other characters, or if a name or a direction
            occurs twice.
    """
    models: dict[str, ModelSource] = {}
    for word in words:
        model = _parse_model(word)
        directions = [(other.source, other.target) for other in models.values()]
        if model.name in models or (model.source, model.target) in directions:
            raise ValueError(
                f"{word!r} has the name or the direction of another model: give one model for each "
                "direction."
            )
        models[model.name] = model
    return tuple(models.values())


def _parse_model(word: str) -> ModelSource:
    name, sign, path = word.partition("=")
    if not sign:
        path, names = word, [Path(os.path.abspath(word)).name, Path(word).resolve().name]
        name = next(filter(_is_direction, names), names[0])
    divider = ":" if ":" in name else "-"
    source, _, target = name.partition(divider)
    is_direction = bool(_CODE.fullmatch(source) and _CODE.fullmatch(target))
    if not path or not name:
        raise ValueError(f"{word!r} names no model: write MODEL or SOURCE-TARGET=MODEL.")
    if sign and not (is_direction and (divider == ":" or "-" not in target)):
        raise ValueError(
            f"{name!r} in {word!r} is not a direction: write two language codes, such as en-de, or "
            "en:pt-BR where a code holds a hyphen."
        )
    if not sign and not _is_direction(name):
        source, target = ANY, name
    elif not sign and name.isupper():
        source, target = source.lower(), target.lower()
    return ModelSource(path, name.replace(":", "-"), source, target)


def _is_direction(name: str) -> bool:
    parts = name.split("-")
    return len(parts) == 2 and all(map(is_language, parts))


def read_api_keys(path: str) -> tuple[str, ...]:
    """Reads a file with one key per line; blank lines and lines that begin with # are left out.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it holds no key: without one, everybody could ask.
    """
    lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ValueError(f"{path!r} holds no API key: write one per line.")
    return keys
