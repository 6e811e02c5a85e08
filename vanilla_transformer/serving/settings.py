"""What a server is started with: models, addresses, limits. Needs no other package."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ANY = "any"
"""Code of the source language of a model that is given without a direction."""
_CODE = re.compile(r"[A-Za-z0-9_-]{1,35}")
_NAME = re.compile(r"[\w.+-]{1,100}")
_DIRECTION = re.compile(r"([a-z]{2,3})-([a-z]{2,3})")


@dataclass(frozen=True)
class ModelSource:
    """A model to serve.

    Attributes:
        path: Directory, or name on the Hub.
        name: Name by which `/v1/generate` chooses it.
        source: Code of the source language.
        target: Code of the target language.
    """

    path: str
    name: str
    source: str
    target: str


@dataclass(frozen=True)
class Limits:
    """What one request and one client may ask for.

    Attributes:
        body_bytes: Largest body of a request.
        characters: Characters of all texts of a request.
        texts: Texts of a request.
        tokens: Source tokens of a request.
        new_tokens: Tokens of an output.
        beams: Beam width, and outputs per text.
        seconds: Time from the complete request to its answer.
        read_seconds: Time for the head of a request, and time for its body.
        connections: Open connections.
        requests_per_minute: Requests of a client; None: any number.
    """

    body_bytes: int = 1_000_000
    characters: int = 20_000
    texts: int = 1_000
    tokens: int = 20_000
    new_tokens: int = 512
    beams: int = 10
    seconds: float = 60.0
    read_seconds: float = 10.0
    connections: int = 1_000
    requests_per_minute: int | None = None


@dataclass(frozen=True)
class Computation:
    """How the models compute.

    Attributes:
        engine: An engine of `Translator`.
        compute_type: Type of CTranslate2's computation.
        device: "cpu", "cuda", ...; None: a GPU if there is one.
        num_beams: Beam width of requests that name none; None: as saved with the model.
        batch_tokens: Largest size of a batch, in tokens with padding.
        batch_wait: Seconds that a batch waits for further requests.
        queue_size: Requests that a model accepts before it has answered the first of them.
        workers: Batches of a model that are computed at the same time.
    """

    engine: str = "auto"
    compute_type: str = "float32"
    device: str | None = None
    num_beams: int | None = None
    batch_tokens: int = 4096
    batch_wait: float = 0.0
    queue_size: int = 256
    workers: int = 1


@dataclass(frozen=True)
class Settings:
    """All settings of a server.

    Attributes:
        models: The models.
        host: Address to listen on.
        port: Port to listen on; 0: a free one.
        limits: What clients may ask for.
        computation: How the models compute.
        api_keys: Keys, one of which a request must have; empty: none is needed.
        allowed_origins: Origins whose web pages may ask this server (CORS).
        trusted_proxies: Addresses whose `X-Forwarded-For` names the client.
    """

    models: tuple[ModelSource, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    limits: Limits = Limits()
    computation: Computation = Computation()
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()


def parse_model(word: str) -> ModelSource:
    """Reads `SOURCE-TARGET=MODEL`, `SOURCE:TARGET=MODEL` or `MODEL`.

    Args:
        word: The argument. Language codes that hold a hyphen need the colon. A `MODEL` alone has
            the name of its directory. If that is a pair of codes such as `en-de`, it is the
            direction; otherwise the source is "any" and the target is the name.

    Returns:
        The model.

    Raises:
        ValueError: If a part is missing or holds other characters.
    """
    name, sign, path = word.partition("=")
    if not sign:
        path, name = word, Path(word).resolve().name if Path(word).is_dir() else Path(word).name
    if not path or not name:
        raise ValueError(f"{word!r} names no model: write MODEL or SOURCE-TARGET=MODEL.")
    divider = ":" if ":" in name else "-"
    source, _, target = name.partition(divider)
    if sign and not (_CODE.fullmatch(source) and _CODE.fullmatch(target)):
        raise ValueError(
            f"{name!r} in {word!r} is not a direction: write two language codes, such as en-de, or "
            "en:pt-BR where a code holds a hyphen."
        )
    if sign and divider == "-" and "-" in target:
        raise ValueError(
            f"{name!r} in {word!r} has several hyphens: write a colon between the two codes, such "
            "as en:pt-BR."
        )
    if not sign and not _DIRECTION.fullmatch(name):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{word!r} gives no name for the model: write SOURCE-TARGET={word}.")
        source, target = ANY, name
    return ModelSource(path, name.replace(":", "-"), source, target)


def parse_models(words: Sequence[str]) -> tuple[ModelSource, ...]:
    """Reads the models of a command line.

    Args:
        words: See `parse_model`.

    Returns:
        The models.

    Raises:
        ValueError: If a name or a direction occurs twice.
    """
    models = tuple(parse_model(word) for word in words)
    for number, model in enumerate(models):
        for other in models[:number]:
            if model.name == other.name or (model.source, model.target) == (
                other.source,
                other.target,
            ):
                raise ValueError(
                    f"{words[number]!r} has the name or the direction of another model: give one "
                    "model for each direction."
                )
    return models


def read_api_keys(path: str) -> tuple[str, ...]:
    """Reads a file with one key per line; blank lines and lines that begin with # are left out.

    Args:
        path: The file.

    Returns:
        The keys.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it holds no key, or a key of other characters than visible ASCII.
    """
    lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ValueError(f"{path!r} holds no API key: write one per line.")
    for number, key in enumerate(keys, 1):
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise ValueError(
                f"Key {number} in {path!r} holds other characters than visible ASCII: change it."
            )
    return keys
