"""The engine CTranslate2: an export of the model, made on first use, and cached."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ctranslate2
from transformers import GenerationConfig

from vanilla_transformer.files.atomic_files import explained_full_disk, replaced_directory
from vanilla_transformer.files.file_contents import content_digest
from vanilla_transformer.files.loading import load_weights
from vanilla_transformer.files.model_directory import model_files
from vanilla_transformer.inference.engine import Engine, Hypothesis, Ids, OnBatch
from vanilla_transformer.model.inputs import end_tokens_of
from vanilla_transformer.model.pipeline_vanilla_transformer import NO_LIMIT
from vanilla_transformer.search import OF_SAMPLING, Search, needed_start, start_token_of
from vanilla_transformer.tokenizer_sides import unnamed_ids, vocabularies_of
from vanilla_transformer.weights.ctranslate2 import (
    LAYOUT,
    POSITIONS,
    aligning_heads,
    convert_to_ctranslate2,
)

_TAKEN_OVER = (  # settings that CTranslate2 takes over
    *("num_beams", "num_return_sequences", "length_penalty", "early_stopping"),
    *("max_length", "max_new_tokens", "min_length", "min_new_tokens"),
    *("bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id"),
    *("forced_bos_token_id", "forced_eos_token_id"),
    *("bad_words_ids", "no_repeat_ngram_size", "suppress_tokens", "renormalize_logits"),
)
_WITHOUT_EFFECT = (  # settings that change no output of CTranslate2
    *OF_SAMPLING,  # it does not sample
    *("use_cache", "cache_config", "cache_implementation", "transformers_version"),
)

_ALMOST_NO_PENALTY = 1e-9

_NEUTRAL = GenerationConfig._get_default_generation_params()
"""The values that `generate()` takes for settings of None; some models are saved with these."""


class CTranslate2Engine(Engine):
    """Computes with CTranslate2.

    Greedy search and beam search return what `generate()` returns, with `early_stopping=True` in
    beam search.

    Args:
        folder: An export with `positions_of` positions.
    """

    name = "ctranslate2"

    def __init__(
        self,
        folder: Path,
        config: Any,
        tokenizer: Any,
        compute_type: str = "float32",
        device: str = "cpu",
        workers: int = 1,
    ) -> None:
        self.positions = positions_of(config, tokenizer)
        kind, _, index = device.partition(":")
        self.translator = ctranslate2.Translator(
            str(folder),
            device=kind,
            device_index=int(index or 0),
            compute_type=compute_type,
            inter_threads=workers,
            intra_threads=0,  # as many as `OMP_NUM_THREADS`
        )
        self.end_id = end_tokens_of(config)[0]
        self.source_tokens, self.target_tokens = vocabularies_of(config, tokenizer)
        ids = range(len(self.target_tokens))  # the export never generates those without a token
        self.possible_ids = {*ids}.difference(unnamed_ids(tokenizer, len(ids)))
        self.target_ids = {token: index for index, token in enumerate(self.target_tokens)}
        # CTranslate2 returns the attention of the aligning heads alone, and `_best_source` leaves
        # out the last token: it must be the end. Otherwise transformers aligns.
        has_end = tokenizer("")["input_ids"][-1:] == [tokenizer.eos_token_id]
        self.aligns = aligning_heads(config) is not None and has_end

    @property
    def device_type(self) -> str:
        """As for `Engine`."""
        return str(self.translator.device)

    def problems(self, search: Search) -> list[str]:
        """Lists the settings of a search that CTranslate2 lacks, or takes in another way."""
        settings, is_beam = search.settings, search.num_beams > 1
        start, problems = start_token_of(settings), _settings_without_counterpart(settings)
        special = [[start], [settings.pad_token_id], [self.end_id]]  # which change nothing
        forbidden = [ids for ids in settings.bad_words_ids or () if ids not in special]
        if is_beam and not settings.renormalize_logits:
            problems += self._problems_of_forbidding(settings, forbidden)
        is_penalised = search.length_penalty or search.n_best > 1
        if is_beam and is_penalised and settings.early_stopping is not True:
            problems.append(f"`early_stopping` is {settings.early_stopping!r}")
        if any(ids[0] == start for ids in forbidden):
            problems.append(f"`bad_words_ids` is {forbidden}, which begins with the start")
        if settings.no_repeat_ngram_size == 1 and start == self.end_id:
            problems.append("`no_repeat_ngram_size` is 1, but the start is the end")
        if _forces_end(search) and search.max_new_tokens == 1:
            problems.append("`max_new_tokens` is 1, the end that `forced_eos_token_id` forces")
        if search.max_new_tokens > self.positions:
            problems.append(f"`max_new_tokens` is {search.max_new_tokens}, above {self.positions}")
        return problems + self.token_problems(settings)

    def _problems_of_forbidding(
        self, settings: GenerationConfig, words: list[list[int]]
    ) -> list[str]:
        """Lists the settings that forbid tokens in a beam search without `renormalize_logits`.

        CTranslate2 forbids tokens by their logits, so that the others share their probability.
        """
        forbidding = {
            "bad_words_ids": words,
            "min_length": _least_tokens(settings),
            "no_repeat_ngram_size": settings.no_repeat_ngram_size,
            "suppress_tokens": self._suppressed(settings),
        }
        return [
            f"`{name}` is {value!r} without `renormalize_logits`"
            for name, value in forbidding.items()
            if value
        ]

    def _suppressed(self, settings: GenerationConfig) -> list[int]:
        """Returns the tokens of `suppress_tokens` that could be chosen: others change nothing."""
        return [token for token in settings.suppress_tokens or () if token in self.possible_ids]

    def token_problems(self, settings: GenerationConfig) -> list[str]:
        """Lists the end tokens of settings that differ from those of the config and the export."""
        end = self.end_id
        possible = {"eos_token_id": (end, [end]), "forced_eos_token_id": (None, end)}
        return [
            f"`{name}` is {getattr(settings, name)}, but {end} in config.json"
            for name, values in possible.items()
            if getattr(settings, name) not in values
        ]

    def generate(
        self,
        sources: Sequence[Ids],
        search: Search,
        batch_tokens: int,
        align: bool = False,
        on_batch: OnBatch = lambda _: None,
    ) -> list[list[Hypothesis]]:
        """As for `Engine`."""
        aligns, settings = align and self.aligns, search.settings
        translate = partial(
            self.translator.translate_batch,
            [[self.source_tokens[index] for index in ids] for ids in sources],
            max_batch_size=batch_tokens,
            batch_type="tokens",
            max_input_length=0,
            return_end_token=True,
            return_attention=aligns,
        )
        begin = [self.target_tokens[needed_start(settings)]]
        forced = settings.forced_bos_token_id
        prefix = begin if forced is None else [*begin, self.target_tokens[forced]]
        results = translate([prefix] * len(sources), **self._options_of(search))
        outputs = [self._best_outputs(result, search) for result in results]
        on_batch(len(sources))  # CTranslate2 tells of no batch
        if not aligns or search.num_beams == 1:
            return outputs
        # CTranslate2 4.8 mixes up the sources of a batch at the first token of a beam search.
        firsts = translate(
            [begin] * len(sources), beam_size=1, min_decoding_length=0, max_decoding_length=1
        )
        weights = [first.attention[0] for first in firsts]
        pairs = zip(outputs, weights, strict=True)
        return [[_with_first_link(output, first) for output in row] for row, first in pairs]

    def _options_of(self, search: Search) -> dict[str, Any]:
        """Returns the options of CTranslate2 for a search, but for the beginning of targets."""
        settings, longest = search.settings, _longest(search)
        banned = [[token] for token in self._suppressed(settings)]
        banned += [ids for ids in settings.bad_words_ids or () if ids != [self.end_id]]
        return {
            "beam_size": search.num_beams,
            "num_hypotheses": _num_hypotheses(search),
            "length_penalty": _penalty(search),
            "return_scores": _forces_end(search),
            "suppress_sequences": [[self.target_tokens[index] for index in ids] for ids in banned],
            "no_repeat_ngram_size": settings.no_repeat_ngram_size or 0,
            "min_decoding_length": min(_least_tokens(settings), longest),
            "max_decoding_length": longest,
        }

    def _best_outputs(self, result: Any, search: Search) -> list[Hypothesis]:
        """Returns the outputs of a source; a forced end counts as a token without cost."""
        longest, forces_end = _longest(search), _forces_end(search)
        outputs = [
            self._hypothesis_of(tokens, weights, longest if forces_end else None)
            for tokens, weights in zip_longest(result.hypotheses, result.attention)
        ]
        if not forces_end:
            return outputs
        # generate() divides by a length with the forced end, CTranslate2 by one without it.
        penalty_of_end = (longest / (longest + 1)) ** _penalty(search)
        scores = [
            score * penalty_of_end if len(output.ids) == longest else score
            for output, score in zip(outputs, result.scores, strict=True)
        ]
        order = sorted(range(len(outputs)), key=lambda index: -scores[index])
        return [outputs[index] for index in order[: search.n_best]]

    def token_scores(
        self, sources: Sequence[Ids], targets: Sequence[Ids], batch_tokens: int, start: int
    ) -> list[list[float]]:
        """As for `Engine`."""
        results = self.translator.score_batch(
            [[self.source_tokens[index] for index in ids] for ids in sources],
            # CTranslate2 adds the end itself.
            [[self.target_tokens[index] for index in (start, *ids[:-1])] for ids in targets],
            max_batch_size=batch_tokens,
            batch_type="tokens",
            max_input_length=0,
        )
        return [list(result.log_probs) for result in results]

    def _hypothesis_of(
        self, tokens: list[str], weights: list[list[float]] | None, ends_at: int | None
    ) -> Hypothesis:
        """Makes a hypothesis; an output of the length `ends_at` has a forced end."""
        is_complete = bool(tokens) and tokens[-1] == self.target_tokens[self.end_id]
        content = tokens[:-1] if is_complete else tokens
        aligned = None if weights is None else tuple(map(_best_source, weights[: len(content)]))
        ids = tuple(self.target_ids[token] for token in content)
        has_end = is_complete or len(content) == ends_at
        return Hypothesis(ids, self.end_id if has_end else None, aligned)


def _settings_without_counterpart(settings: GenerationConfig) -> list[str]:
    """Lists the settings that have an effect in `generate()`, and none in CTranslate2."""
    return [
        f"`{name}` is {value!r}"
        for name, value in vars(settings).items()
        if not (name.startswith("_") or name in _TAKEN_OVER or name in _WITHOUT_EFFECT)
        and not (value is None or value is False or value == _NEUTRAL.get(name))
    ]


def _forces_end(search: Search) -> bool:
    return search.settings.forced_eos_token_id is not None


def _longest(search: Search) -> int:
    """Returns the longest output of CTranslate2, which does not have the forced end."""
    return search.max_new_tokens - _forces_end(search)


def _num_hypotheses(search: Search) -> int:
    """Returns the number of outputs of CTranslate2, whose order changes with a forced end."""
    return search.num_beams if _forces_end(search) else search.n_best


def _penalty(search: Search) -> float:
    """Returns the exponent of the length, which is never 0 where several outputs are wanted.

    With 0, CTranslate2 ends as soon as it has found the best output.
    """
    return search.length_penalty or (_ALMOST_NO_PENALTY if _num_hypotheses(search) > 1 else 0.0)


def _with_first_link(output: Hypothesis, weights: list[list[float]]) -> Hypothesis:
    """Returns an output whose first token is aligned by the first of the given weights."""
    if not output.aligned:
        return output
    return replace(output, aligned=(_best_source(weights[0]), *output.aligned[1:]))


def _least_tokens(settings: GenerationConfig) -> int:
    """Returns the least number of tokens before the end; a `min_length` counts the start too."""
    if settings.min_new_tokens is not None:
        return int(settings.min_new_tokens)
    return max((settings.min_length or 0) - 1, 0)


def _best_source(weights: list[float]) -> int:
    """Returns the source token with the largest weight; no token is aligned with the end."""
    return max(range(max(len(weights) - 1, 1)), key=weights.__getitem__)


def positions_of(config: Any, tokenizer: Any) -> int:
    """Returns the number of positions of an export: at least those of model and tokenizer."""
    positions, limit = int(config.max_position_embeddings), tokenizer.model_max_length
    if config.position_embedding_type == "learned":
        return positions
    return max(POSITIONS, positions, limit if limit < NO_LIMIT else 0)


def engine_of_weights(model: Any, tokenizer: Any) -> CTranslate2Engine:
    """Makes an engine of the present weights of a model in memory."""
    positions = positions_of(model.config, tokenizer)
    with TemporaryDirectory() as parent, explained_full_disk(Path(parent)):
        folder = Path(parent, "export")
        convert_to_ctranslate2(model, tokenizer, folder, "float32", positions, holds_start=False)
        return CTranslate2Engine(folder, model.config, tokenizer)


def cached_export(path: Path, config: Any, tokenizer: Any, compute_type: str) -> Path:
    """Returns the folder of a model's export in the cache; makes the export if it is missing.

    The cache is `$VANILLA_TRANSFORMER_CACHE`, or a folder in `~/.cache`. The name is the hash of
    all that an export depends on. Delete a folder to have its export made again.
    """
    quantization = "int8" if compute_type.startswith("int8") else "float32"
    positions = positions_of(config, tokenizer)
    key = f"{ctranslate2.__version__} {LAYOUT} {quantization} {positions}"
    digest = hashlib.sha256(key.encode())
    for file in model_files(path):  # config, weights and tokenizer
        digest.update(f"{file.name} {content_digest(file)}\n".encode())
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "vanilla_transformer")
    cache = Path(os.environ.get("VANILLA_TRANSFORMER_CACHE") or user_cache).expanduser()
    exported = cache / "ctranslate2" / digest.hexdigest()[:32]
    if not exported.exists():
        model = load_weights(str(path))
        try:
            with replaced_directory(exported) as unfinished:
                convert_to_ctranslate2(
                    model, tokenizer, unfinished, quantization, positions, holds_start=False
                )
        except OSError:
            if not exported.exists():  # or else another process has made it in the meantime
                raise
    return exported
