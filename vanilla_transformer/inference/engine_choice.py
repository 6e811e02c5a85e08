"""The choice of the engine that computes a model."""

from collections.abc import Callable
from ctypes import CDLL
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from huggingface_hub import snapshot_download
from transformers.utils import logging

from vanilla_transformer.files.loading import load_on, load_tokenizer
from vanilla_transformer.inference.engine import Engine
from vanilla_transformer.inference.ensemble_engine import EnsembleEngine
from vanilla_transformer.inference.transformers_engine import TransformersEngine
from vanilla_transformer.names import ENGINES
from vanilla_transformer.search import Search

logger = logging.get_logger(__name__)

_CUBLAS = "libcublas.so.12"
"""The library that CTranslate2 loads at its first computation on a GPU."""


class Engines:
    """The engine of a model, and transformers as a second engine, loaded at its first use.

    Args:
        load: Loads the second engine. None: `engine` is transformers itself.
        is_demanded: Whether a search that `engine` lacks is an error.
    """

    def __init__(
        self,
        engine: Engine,
        load: Callable[[], TransformersEngine] | None = None,
        is_demanded: bool = True,
    ) -> None:
        self.engine, self._load, self._loading = engine, load, Lock()
        self._is_demanded = is_demanded
        self.loaded: TransformersEngine | None = None  # None: nothing has used it

    @property
    def transformers(self) -> TransformersEngine:
        """The engine of transformers, or an ensemble; a second engine is loaded when first used."""
        if isinstance(self.engine, TransformersEngine):
            return self.engine
        assert self._load is not None
        with self._loading:  # several threads may ask at once
            self.loaded = self.loaded or self._load()
        return self.loaded

    def for_search(self, search: Search) -> Engine:
        """Returns the engine, or transformers, if the engine cannot do this search."""
        return self._engine_for(self.engine.problems(search))

    def for_scores(self, search: Search) -> Engine:
        """Returns the engine, or transformers, if the engine cannot score these outputs."""
        return self._engine_for(self.engine.token_problems(search.settings))

    def _engine_for(self, problems: list[str]) -> Engine:
        if not problems:
            return self.engine
        listed = "; ".join(problems)
        if self._is_demanded:
            raise ValueError(
                f"The engine {self.engine.name!r} cannot do this search ({listed}): use another "
                "engine, one model, or other options."
            )
        logger.debug(f"Transformers computes this search: {listed}.")
        return self.transformers


def load_engines(
    name: str,
    paths: list[str],
    config: Any,
    tokenizer: Any,
    device: str,
    compute_type: str,
    workers: int,
) -> Engines:
    """Loads models with the engine that computes them; see `Translator.from_pretrained`."""
    if name not in ENGINES:
        raise ValueError(f"Unknown engine {name!r}: use one of {ENGINES}.")

    def load_transformers() -> TransformersEngine:
        return TransformersEngine(load_on(paths[0], device), tokenizer=tokenizer)

    if name != "transformers":
        limits = "; ".join(_limits_of_ctranslate2(len(paths), config, device))
        if not limits:
            engine = _load_ctranslate2(paths[0], config, tokenizer, compute_type, device, workers)
            return Engines(engine, load_transformers, is_demanded=name != "auto")
        if name != "auto":
            raise ValueError(f"CTranslate2 cannot compute this: {limits}.")
        logger.debug(f"Transformers computes, not the faster CTranslate2: {limits}.")
    if len(paths) == 1:
        return Engines(load_transformers())
    models = [load_on(path, device) for path in paths]
    return Engines(EnsembleEngine(models, [tokenizer, *map(load_tokenizer, paths[1:])]))


def _load_ctranslate2(
    path: str, config: Any, tokenizer: Any, compute_type: str, device: str, workers: int
) -> Engine:
    """Loads a model with CTranslate2; its export is made, unless the cache has it."""
    from vanilla_transformer.inference.ctranslate2_engine import CTranslate2Engine, cached_export

    folder = Path(path) if Path(path).is_dir() else Path(snapshot_download(path))
    export = cached_export(folder, config, tokenizer, compute_type)
    return CTranslate2Engine(export, config, tokenizer, compute_type, device, workers)


def engines_of_model(model: Any, tokenizer: Any, copies_weights: bool) -> Engines:
    """Returns the engine of transformers for a model in memory, or the fastest for its weights.

    On a GPU it is transformers: a copy of the weights would take memory from a training.
    """
    transformers = TransformersEngine(model, tokenizer=tokenizer)
    # An export would lack the adapters of PEFT.
    has_adapters = any(hasattr(module, "base_layer") for module in model.modules())
    is_copied = copies_weights and transformers.device_type == "cpu" and not has_adapters
    if not is_copied or _limits_of_ctranslate2(1, model.config, "cpu"):
        return Engines(transformers)
    from vanilla_transformer.inference.ctranslate2_engine import engine_of_weights

    return Engines(engine_of_weights(model, tokenizer), lambda: transformers, is_demanded=False)


def _limits_of_ctranslate2(num_models: int, config: Any, device: str) -> list[str]:
    """Lists the reasons why CTranslate2 cannot compute models, whatever the search is."""
    if find_spec("ctranslate2") is None:
        return ['it is not installed (`pip install ".[ctranslate2]"`)']
    from vanilla_transformer.weights.ctranslate2 import problems_for_ctranslate2

    problems = problems_for_ctranslate2(config, holds_start=False)
    limits = [problem.removesuffix(".") for problem in problems]
    if (kind := device.partition(":")[0]) not in ("cpu", "cuda"):
        limits.append(f"the device {device!r}")
    if kind == "cuda":
        try:
            CDLL(_CUBLAS)
        except OSError:  # torch may have another version
            limits.append(
                f"a GPU without the library {_CUBLAS} (CUDA 12: put its directory into "
                "LD_LIBRARY_PATH)"
            )
    return ["several models", *limits] if num_models > 1 else limits
