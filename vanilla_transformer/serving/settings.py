"""The settings of a server, which are the options of `serve`: models, address, limits."""

import os
import re
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from vanilla_transformer.inference.options import KeptOptions
from vanilla_transformer.language_tags import is_language
from vanilla_transformer.options import TypedEngineOptions, argument, option

ANY = "any"
"""Code of the source language of a model without a direction."""
_CODE = re.compile(r"[A-Za-z0-9_-]{1,35}")


@dataclass(frozen=True)
class ModelEntry:
    """A model to serve, as the command names it."""

    path: str
    name: str  # by which `/v1/generate` chooses it
    source: str
    target: str

    @property
    def direction(self) -> tuple[str, str]:
        """The codes of source and target."""
        return self.source, self.target


def parse_model(word: str) -> ModelEntry:
    """Reads `SOURCE-TARGET=MODEL`, `SOURCE:TARGET=MODEL` or `MODEL`.

    A `MODEL` alone has the name of its directory. The direction is this name, or the name of the
    directory that a link leads to, if it is a pair of codes such as `en-de`. Otherwise the source
    is "any" and the target is the name, unless the model itself names its languages.
    """
    name, sign, path = word.partition("=")
    if not sign:
        path, names = word, [Path(os.path.abspath(word)).name, Path(word).resolve().name]
        name = next(filter(_names_two_languages, names), names[0])
    if not path or not name:
        raise ValueError(f"{word!r} names no model: write MODEL or SOURCE-TARGET=MODEL.")
    if sign:
        source, target = _parse_direction(name, word)
    else:
        source, target = name.split("-") if _names_two_languages(name) else (ANY, name)
    return ModelEntry(path, name.replace(":", "-"), source, target)


def _parse_direction(name: str, word: str) -> tuple[str, str]:
    """Reads `SOURCE-TARGET` or `SOURCE:TARGET`; codes with a hyphen need the colon."""
    divider = ":" if ":" in name else "-"
    source, _, target = name.partition(divider)
    are_codes = _CODE.fullmatch(source) and _CODE.fullmatch(target)
    if not are_codes or (divider == "-" and "-" in target):
        raise ValueError(
            f"{name!r} in {word!r} is not a direction: write two language codes, such as en-de, or "
            "en:pt-BR where a code holds a hyphen."
        )
    return source, target


def _names_two_languages(name: str) -> bool:
    parts = name.split("-")
    return len(parts) == 2 and all(map(is_language, parts))


def read_api_keys(path: str) -> list[str]:
    """Reads a file with one key per line; blank lines and lines that begin with # are left out."""
    lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:  # everybody could ask
        raise ValueError(f"{path!r} holds no API key: write one per line.")
    return keys


def parse_glossary(word: str) -> tuple[str, str]:
    """Reads `NAME=FILE`."""
    name, _, path = word.partition("=")
    if not (name and path):
        raise ValueError(f"{word!r} is no NAME=FILE.")
    return name, os.path.abspath(path)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of one request and of one client."""

    _argument_group_name = "limits of a request and of a client"

    max_body: int = option("bytes of the body", 1_000_000, ge=1)
    max_characters: int = option("characters of all texts", 20_000, ge=1)
    max_texts: int = option("texts", 1_000, ge=1)
    max_tokens: int = option("source tokens of all texts", 20_000, ge=1)
    max_new_tokens: int = option("largest max_new_tokens, in tokens", 512, ge=1)
    max_beams: int = option("largest beam width, and most outputs per text", 10, ge=1)
    timeout: float = option(
        "seconds until an answer is there, or the request is given up", 60.0, gt=0
    )
    read_timeout: float = option("seconds for the head of a request, and for its body", 10.0, gt=0)
    max_connections: int = option("open connections", 1_000, ge=1)


@dataclass(frozen=True, kw_only=True)
class Computation(KeptOptions, TypedEngineOptions):
    """How the models compute."""

    num_beams: int | None = option(
        "beam width of requests that name none (default: as saved with the model)", ge=1
    )
    queue_size: int = option(
        "requests that a model accepts before the first of them is answered", 256, ge=1
    )
    workers: int = option("batches of a model that are computed at the same time", 1, ge=1)
    threads: int | None = option(
        "processor threads of a computation (default: OMP_NUM_THREADS, or all)", ge=1
    )


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where the server listens."""

    _argument_group_name = "address"

    host: str = option("address to listen on; 0.0.0.0 is every one", "127.0.0.1", metavar="ADDRESS")
    port: int = option("port to listen on; 0 is a free one", 8000, ge=0, le=65_535)


@dataclass(frozen=True, kw_only=True)
class Clients:
    """The clients that may ask, and the level of the logs."""

    _argument_group_name = "clients"

    api_keys: list[str] = option(
        "keys, one per line; a request must have one of them",
        [],
        action="store",
        type=read_api_keys,
        metavar="FILE",
    )
    allow_origin: list[str] = option(
        "web pages that may ask this server, e.g. https://example.org (CORS); * is every one",
        [],
        metavar="ORIGIN",
    )
    trust_proxy: list[str] = option(
        "proxies whose X-Forwarded-For names the client, e.g. 127.0.0.1", [], metavar="ADDRESS"
    )
    log_level: str = option(
        "lowest level of the logs", "info", choices=("debug", "info", "warning", "error")
    )


@dataclass(frozen=True)
class Settings:
    """All settings of a server, which are the options of its command."""

    models: list[ModelEntry] = argument(
        "directory of a saved model or its name on the Hub; SOURCE-TARGET=MODEL gives its "
        "languages, e.g. en-de=runs/en-de",
        "MODEL",
        type=parse_model,
    )
    glossary: list[tuple[str, str]] = option(
        "glossaries that requests may name; a file is read again when it changes",
        [],
        type=parse_glossary,
        metavar="NAME=FILE",
    )
    memory: str | None = option(
        "corrections: /suggest adds them to this file, and they answer their texts from then on "
        "(docs/better.md)",
        metavar="FILE",
    )
    max_loaded: int | None = option(
        "most models in memory: each is loaded when asked for, and the one that was asked for "
        "least recently leaves (default: all are loaded at the start)",
        ge=1,
    )
    pivot: bool = option(
        "translate by way of a third language where no model has a direction, and two have it "
        "together: es to de by es-en and en-de",
        True,
    )
    address: Address = Address()
    computation: Computation = Computation()
    limits: Limits = Limits()
    clients: Clients = Clients()

    def __post_init__(self) -> None:
        for first, second in combinations(self.models, 2):
            if first.name == second.name or first.direction == second.direction:
                raise ValueError(
                    f"{second.path!r} has the name or the direction of another model: give one "
                    "model for each direction."
                )
        for (name, _), (other, path) in combinations(self.glossary, 2):
            if name == other:
                raise ValueError(
                    f"{path!r} has the name {name!r} of another glossary: choose another name."
                )
