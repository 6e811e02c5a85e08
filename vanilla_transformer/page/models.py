"""The computations of the page: outputs, attention and shapes, for several users at once.

The models are shared by all users. A lock lets one request compute at a time, because heads are
switched off by hooks on a model, and because samples depend on the state of one generator.
"""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.results import Translation
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.inspection.attention_maps import AttentionMaps, attention_maps
from vanilla_transformer.inspection.head_ablation import ablate_heads, attention_heads
from vanilla_transformer.inspection.shapes import ShapeWalk, shape_walk
from vanilla_transformer.names import ENGINES
from vanilla_transformer.tokenizer_sides import ids_of_target_tokens

MOST_TOKENS = 64
"""Longest source and longest output, in tokens, whose attention the page draws."""
MOST_BEAMS = 16
"""Widest beam, and most outputs per line."""
HIGHEST_TEMPERATURE = 2.0
MOST_CHARACTERS = 2000
MOST_LINES = 20
"""Most lines that the page takes, blank ones included."""

HeadsOff = frozenset[tuple[str, int, int]]
"""Heads that are switched off: (module, layer, head), named and counted as in `ablate_heads`."""


@dataclass(frozen=True)
class PageRequest:
    """The request of one user.

    Attributes:
        lines: Source texts without line breaks.
        num_beams: Beam width; of no effect with a temperature.
        temperature: Temperature of sampling; 0: no sampling.
    """

    model: str
    engine: str
    lines: tuple[str, ...]
    num_beams: int
    n_best: int = 1
    temperature: float = 0.0
    heads_off: HeadsOff = frozenset()
    seed: int = 0

    @property
    def search(self) -> dict[str, Any]:
        """Settings of the search by their names in `GenerationConfig`."""
        if self.temperature:
            return {"num_beams": 1, "do_sample": True, "temperature": self.temperature}
        return {"num_beams": self.num_beams, "do_sample": False}


@dataclass(frozen=True)
class PageView:
    """A look into the model while it reads one line and writes one output.

    Attributes:
        walk: The shapes of one call of the model on the line and the output.
    """

    maps: AttentionMaps
    walk: ShapeWalk
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class PageResult:
    """The answer to a request, and the view of one of its outputs.

    Attributes:
        outputs: For each line its outputs, best first.
        whole: The outputs with all heads on; the same as `outputs` if no head is off.
        line: Index of the line that is looked into.
        rank: Index of the output of that line.
        view: Attention and shapes; None if there is none.
        problem: Why there is no view.
    """

    request: PageRequest
    outputs: tuple[tuple[Translation, ...], ...]
    whole: tuple[tuple[Translation, ...], ...]
    engine: str
    seconds: float
    line: int = 0
    rank: int = 0
    view: PageView | None = None
    problem: str = ""


class PageModel:
    """A saved model with its engines, which are loaded when they are first used.

    Args:
        device: Device of the model. None: a GPU if there is one, otherwise the CPU.
    """

    def __init__(self, path: str, device: str | None = None) -> None:
        self.path = path
        self.device = device
        reference = Translator.from_pretrained(path, "transformers", device)
        self.model: Any = reference.engines.transformers.model
        self.tokenizer: Any = reference.tokenizer
        self.heads: Mapping[str, Mapping[int, int]] = attention_heads(self.model)
        self.default_beams = min(reference.search_of(TranslateOptions()).num_beams, MOST_BEAMS)
        self._translators = {"transformers": reference}

    def translator(self, engine: str) -> Translator:
        """Returns the translator with an engine; loads it when it is first asked for."""
        if engine not in self._translators:
            loaded = Translator.from_pretrained(self.path, engine, self.device)
            self._translators[engine] = loaded
        return self._translators[engine]

    def translator_for(self, request: PageRequest) -> Translator:
        """Returns the translator that computes a request.

        Heads can be switched off in transformers alone. "auto" falls back to transformers for a
        search that its engine cannot do.
        """
        reference = self._translators["transformers"]
        translator = reference if request.heads_off else self.translator(request.engine)
        options = TranslateOptions.of(n_best=request.n_best, **request.search)
        search = reference.search_of(options)
        is_free = request.engine == "auto"
        return reference if is_free and translator.engine.problems(search) else translator

    def without_heads(self, heads_off: HeadsOff) -> AbstractContextManager[None]:
        """Returns a `with` block in which heads are switched off."""
        grouped: dict[str, dict[int, list[int]]] = {}
        for module, layer, head in sorted(heads_off):
            grouped.setdefault(module, {}).setdefault(layer, []).append(head)
        return ablate_heads(self.model, grouped) if grouped else nullcontext()

    def view(self, line: str, tokens: Sequence[str]) -> PageView:
        """Runs the model once on a line and an output of it.

        Args:
            tokens: Tokens of the output, the end included if the model ended it.

        Raises:
            ValueError: If there are too many tokens for maps, or none.
        """
        if not tokens:
            raise ValueError("The model does not read this line, which stays as it is.")
        inputs = self.tokenizer([line], return_tensors="pt", truncation=False, verbose=False)
        size = inputs["input_ids"].shape[1]
        limit = min(MOST_TOKENS, self.translator("transformers").source_limit)
        for name, count, most in (("line", size, limit), ("output", len(tokens), MOST_TOKENS)):
            if count > most:
                raise ValueError(
                    f"The {name} has {count} tokens. Attention is drawn for at most {most}: "
                    "run a shorter text."
                )
        target = ids_of_target_tokens(self.tokenizer, tokens)
        maps = attention_maps(self.model, self.tokenizer, line, target)
        labels = torch.tensor([target], device=self.model.device)
        fed = self.model.prepare_decoder_input_ids_from_labels(labels)
        call = {name: value.to(self.model.device) for name, value in inputs.items()}
        walk = shape_walk(self.model, {**call, "decoder_input_ids": fed})
        sizes = {
            "batch": 1,
            "source_len": size,
            "target_len": len(target),
            "d_model": self.model.config.d_model,
        }
        return PageView(maps, walk, sizes)


class PageModels:
    """The models of a page, by name. Requests may come from several threads.

    Args:
        paths: Directories, or names on the Hub.

    Raises:
        FileNotFoundError: If a directory does not exist, or holds no weights or no tokenizer.
        ValueError: If a path holds no model of this package, or if weights or the device cannot be
            used.
    """

    def __init__(self, paths: Sequence[str], device: str | None = None) -> None:
        names = [
            Path(os.path.abspath(path)).name if Path(path).is_dir() else path for path in paths
        ]
        # Names that are equal become the whole paths.
        names = names if len(set(names)) == len(names) else list(paths)
        self.by_name = {
            name: PageModel(path, device) for name, path in zip(names, paths, strict=True)
        }
        self._lock = Lock()

    def answer(self, request: PageRequest) -> PageResult:
        """Computes the outputs of a request; with heads off, by transformers, whatever its engine.

        Raises:
            ValueError: If the engine cannot compute the model or the search.
        """
        model = self.by_name[request.model]
        with self._lock:
            begin = time.perf_counter()
            translator = model.translator_for(request)
            with model.without_heads(request.heads_off):
                outputs = _translate_lines(translator, request)
            whole = _translate_lines(translator, request) if request.heads_off else outputs
            seconds = time.perf_counter() - begin
        return PageResult(request, outputs, whole, translator.engine.name, seconds)

    def look_into(self, result: PageResult, line: int, rank: int) -> PageResult:
        """Returns a result with the view of one of its outputs, or why there is none."""
        request = result.request
        model = self.by_name[request.model]
        tokens = result.outputs[line][rank].tokens or ()
        result = replace(result, line=line, rank=rank, view=None, problem="")
        try:
            with self._lock, model.without_heads(request.heads_off):
                return replace(result, view=model.view(request.lines[line], tokens))
        except ValueError as error:
            return replace(result, problem=str(error))


def installed_engines() -> list[str]:
    """Lists the engines that can be chosen here."""
    return [name for name in ENGINES if name != "ctranslate2" or find_spec(name)]


def _translate_lines(
    translator: Translator, request: PageRequest
) -> tuple[tuple[Translation, ...], ...]:
    """Generates the outputs of each line, the most probable one first."""
    torch.manual_seed(request.seed)
    rows = translator.translate(
        list(request.lines),
        n_best=request.n_best,
        return_scores=True,
        return_tokens=True,
        **request.search,
    )
    return tuple(map(tuple, rows))


def names_of_outputs(result: PageResult) -> list[tuple[str, str]]:
    """Lists the outputs of a result as (text for a person, "line.rank")."""
    several = len(result.outputs) > 1
    return [
        (f"{f'Source {line + 1}, output' if several else 'Output'} {rank + 1}", f"{line}.{rank}")
        for line, outputs in enumerate(result.outputs)
        for rank in range(len(outputs))
    ]


def check_text(text: str | None) -> tuple[str, ...]:
    """Returns the lines of a text that are not blank, after a check that the page can take it.

    Raises:
        ValueError: If the text is blank or too long, or if it holds half of a surrogate pair.
    """
    text = (text or "").replace("\r\n", "\n")
    lines = text.split("\n")
    if not text.strip():
        raise ValueError("The text is empty: type a text, then press Run.")
    if len(text) > MOST_CHARACTERS or len(lines) > MOST_LINES:
        raise ValueError(
            f"The text has {len(text):,} characters in {len(lines):,} lines, and the page takes "
            f"{MOST_CHARACTERS:,} in {MOST_LINES}: shorten it. `vanilla-transformer translate` "
            "takes files of any size."
        )
    text.encode()  # its error names half of a surrogate pair
    return tuple(line for line in lines if line.strip())
