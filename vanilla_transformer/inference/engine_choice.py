"""Which engine computes a model: one table of what each engine cannot do."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

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


def load_engine(
    name: str,
    paths: list[str],
    config: Any,
    tokenizer: Any,
    device: str,
    compute_type: str,
    workers: int,
) -> Engine:
    """Loads models with the engine that computes them; see `Translator.from_pretrained`.

    Args:
        name: One of `ENGINES`. "auto" takes CTranslate2 if it can, otherwise transformers.
        config: The config of the first model.

    Raises:
        ValueError: If the engine is unknown, or cannot do what is asked for.
    """
    engine = _choose_engine(name, paths, config, device, compute_type)
    if engine == "ctranslate2":
        from vanilla_transformer.inference.ctranslate2_engine import CTranslate2Engine

        (path,) = paths
        folder = Path(path) if Path(path).is_dir() else Path(snapshot_download(path))
        return CTranslate2Engine(folder, config, tokenizer, compute_type, device, workers)
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


def _choose_engine(name: str, paths: list[str], config: Any, device: str, compute_type: str) -> str:
    if name not in ENGINES:
        raise ValueError(f"Unknown engine {name!r}: use one of {ENGINES}.")
    problems = []
    for engine in ("ctranslate2", "transformers") if name == "auto" else (name,):
        limits = _limits(engine, paths, config, device, compute_type)
        if not limits:
            return engine
        problems.append(f"The engine {engine!r} cannot do this: {'; '.join(limits)}.")
        logger.info(problems[-1])
    raise ValueError(" ".join(problems))


def _limits(
    engine: str, paths: list[str], config: Any, device: str, compute_type: str
) -> list[str]:
    """Lists what an engine cannot do; for a search, its `problems` does."""
    is_installed, kind = find_spec("ctranslate2") is not None, device.partition(":")[0]
    table = (
        (("ctranslate2", "int8"), len(paths) > 1, "several models"),
        (("ctranslate2",), not is_installed, 'anything before `pip install ".[ctranslate2]"`'),
        (("ctranslate2",), kind not in ("cpu", "cuda"), f"the device {device!r}"),
        (("int8",), kind != "cpu", f"the device {device!r}"),
        (
            ("int8", "transformers"),
            compute_type != "float32",
            f"`compute_type` {compute_type!r}, which is one of CTranslate2",
        ),
    )
    limits = [limit for engines, holds, limit in table if engine in engines and holds]
    if engine == "ctranslate2" and is_installed:
        from vanilla_transformer.interop.ctranslate2 import problems_for_ctranslate2

        problems = problems_for_ctranslate2(config, holds_start=False)
        limits += [problem.removesuffix(".") for problem in problems]
    return limits
