"""Which engine computes a model: one table of what each engine cannot do."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import snapshot_download
from transformers import AutoConfig
from transformers.utils import logging

from vanilla_transformer.inference.engines import (
    Engine,
    EnsembleEngine,
    TransformersEngine,
    check_members,
)
from vanilla_transformer.inference.loading import (
    load_generation_settings,
    load_tokenizer,
    load_weights,
    with_int8_weights,
)
from vanilla_transformer.names import ENGINES

logger = logging.get_logger(__name__)


class EngineRequest(NamedTuple):
    """What an engine is to compute.

    Attributes:
        paths: Saved models; several are an ensemble.
        config: The config of the first model.
        compute_type: Type of the computation, as CTranslate2 names it.
        workers: Batches that are computed at the same time when several threads call.
    """

    paths: list[str]
    config: Any
    tokenizer: Any
    device: str
    compute_type: str = "float32"
    workers: int = 1


def _ensemble(request: EngineRequest) -> str:
    return "several models" if len(request.paths) > 1 else ""


def _compute_type(request: EngineRequest) -> str:
    kind = request.compute_type
    return "" if kind == "float32" else f"`compute_type` {kind!r}, which is one of CTranslate2"


def _device_besides_cpu(request: EngineRequest) -> str:
    return "" if request.device.startswith("cpu") else f"the device {request.device!r}"


def _device_besides_cpu_and_cuda(request: EngineRequest) -> str:
    is_known = request.device.startswith(("cpu", "cuda"))
    return "" if is_known else f"the device {request.device!r}"


def _before_installation(request: EngineRequest) -> str:
    return "" if find_spec("ctranslate2") else 'anything before `pip install ".[ctranslate2]"`'


def _architecture(request: EngineRequest) -> str:
    if find_spec("ctranslate2") is None:
        return ""
    from vanilla_transformer.interop.ctranslate2 import problems_for_ctranslate2

    return " ".join(problems_for_ctranslate2(request.config)).removesuffix(".")


CANNOT: dict[str, tuple[Callable[[EngineRequest], str], ...]] = {
    "ctranslate2": (_ensemble, _before_installation, _device_besides_cpu_and_cuda, _architecture),
    "int8": (_ensemble, _compute_type, _device_besides_cpu),
    "transformers": (_compute_type,),
}
"""What each engine cannot do, the fastest engine first. A row returns "" for what it can do.

What an engine cannot do of a search is in `Engine.problems`.
"""


def choose_engine(name: str, request: EngineRequest) -> str:
    """Returns the engine that computes a model.

    Args:
        name: One of `ENGINES`. "auto" takes CTranslate2 if it can, otherwise transformers.

    Raises:
        ValueError: If the engine is unknown, or cannot do what is asked for.
    """
    if name not in ENGINES:
        raise ValueError(f"Unknown engine {name!r}: use one of {ENGINES}.")
    problems = []
    for engine in ("ctranslate2", "transformers") if name == "auto" else (name,):
        limits = [limit for row in CANNOT[engine] if (limit := row(request))]
        if not limits:
            return engine
        problems.append(f"The engine {engine!r} cannot do this: {'; '.join(limits)}.")
        logger.info(problems[-1])
    raise ValueError(" ".join(problems))


def load_engine(name: str, request: EngineRequest) -> Engine:
    """Loads a model with the engine that computes it; see `choose_engine`."""
    engine = choose_engine(name, request)
    paths, device, tokenizer = request.paths, request.device, request.tokenizer
    if engine == "ctranslate2":
        from vanilla_transformer.inference.ctranslate2_engine import CTranslate2Engine

        (path,) = paths
        folder = Path(path) if Path(path).is_dir() else Path(snapshot_download(path))
        return CTranslate2Engine(
            folder, request.config, tokenizer, request.compute_type, device, request.workers
        )
    if len(paths) > 1:
        settings = [
            load_generation_settings(path, AutoConfig.from_pretrained(path)) for path in paths
        ]
        check_members(paths, [tokenizer, *map(load_tokenizer, paths[1:])], settings)
    models = [load_weights(path).to(device).eval() for path in paths]
    if len(models) > 1:
        return EnsembleEngine(models, tokenizer)
    if engine == "int8":
        return TransformersEngine(with_int8_weights(models[0]), "int8", tokenizer)
    return TransformersEngine(models[0], tokenizer=tokenizer)
