"""The engine CTranslate2: an export of the model, made on first use and kept in a cache."""

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import zip_longest
from operator import and_
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import ctranslate2
from transformers import GenerationConfig
from transformers.utils import logging

from vanilla_transformer.data.file_contents import content_digest, read_object
from vanilla_transformer.data.model_directory import WEIGHTS, model_files
from vanilla_transformer.inference.engines import Hypothesis, Ids
from vanilla_transformer.inference.loading import load_weights
from vanilla_transformer.interop.ctranslate2 import (
    LAYOUT,
    POSITIONS,
    aligning_heads,
    convert_to_ctranslate2,
    end_token_of,
)
from vanilla_transformer.interop.vocabularies import vocabularies_of
from vanilla_transformer.model.pipeline_vanilla_transformer import NO_LIMIT
from vanilla_transformer.search import Search, start_token_of

logger = logging.get_logger(__name__)

_WITHOUT_EFFECT = (
    "bos_token_id",
    "cache_config",
    "cache_implementation",
    "decoder_start_token_id",
    "early_stopping",
    "eos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "pad_token_id",
    "return_dict_in_generate",
    "temperature",
    "top_k",
    "top_p",
    "transformers_version",
    "use_cache",
    "_from_model_config",
)
"""Settings that CTranslate2 takes over, that only sampling reads, or that name what is returned."""

_ALMOST_NO_PENALTY = 1e-9

DIGESTS_FILE = "digests.json"
"""File in an export that holds the digests of the others."""


class CacheError(OSError):
    """The folder of the exports cannot be found or written."""


class CTranslate2Engine:
    """Computes with CTranslate2.

    Greedy search and beam search return what `generate()` returns, with `early_stopping=True` in
    beam search. One token is never generated: the start token.

    Args:
        vocabularies: Tokens of the source and of the target, in the order of their ids.
        positions: Longest sequence in tokens.
        aligns: Whether the attention that it returns is that of the heads that align.
        workers: Batches that are computed at the same time when several threads call.
    """

    name = "ctranslate2"

    def __init__(
        self,
        directory: str | Path,
        vocabularies: tuple[list[str], list[str]],
        start_id: int,
        end_id: int,
        positions: int,
        compute_type: str,
        device: str,
        aligns: bool = False,
        workers: int = 1,
    ) -> None:
        kind, _, index = device.partition(":")
        self.translator = ctranslate2.Translator(
            str(directory),
            device=kind,
            device_index=int(index or 0),
            compute_type=compute_type,
            inter_threads=workers,
            intra_threads=_number_of_threads(),
        )
        self.start_id, self.end_id = start_id, end_id
        self.positions, self.aligns = positions, aligns
        self.source_tokens, self.target_tokens = vocabularies
        self.target_ids = {token: index for index, token in enumerate(self.target_tokens)}

    def problems(self, search: Search) -> list[str]:
        """Lists what CTranslate2 cannot do of a search, or does otherwise."""
        settings = search.settings
        unset = GenerationConfig().to_dict()
        # What `generate()` takes for settings that are None; some models are saved with these.
        neutral = GenerationConfig._get_default_generation_params()
        problems = [
            f"`{name}` is {value!r}"
            for name, value in settings.to_dict().items()
            if name not in _WITHOUT_EFFECT
            and value != unset.get(name)
            and (name not in neutral or value != neutral[name])
        ]
        penalised = search.length_penalty or search.n_best > 1
        if search.num_beams > 1 and penalised and settings.early_stopping is not True:
            problems.append(f"`early_stopping` is {settings.early_stopping!r}")
        if settings.forced_eos_token_id is not None and search.max_new_tokens == 1:
            problems.append("`max_new_tokens` is 1, the end that `forced_eos_token_id` forces")
        if search.max_new_tokens > self.positions:
            problems.append(f"`max_new_tokens` is {search.max_new_tokens}, above {self.positions}")
        return problems + self.token_problems(settings)

    def token_problems(self, settings: GenerationConfig) -> list[str]:
        """Lists the tokens of settings that differ from those of the config, which it was given."""
        start = start_token_of(settings)
        forced, ends = settings.forced_eos_token_id, settings.eos_token_id
        found = {
            "decoder_start_token_id": (start, self.start_id, start == self.start_id),
            "eos_token_id": (ends, self.end_id, ends in (self.end_id, [self.end_id])),
            "forced_eos_token_id": (forced, self.end_id, forced in (None, self.end_id)),
        }
        return [
            f"`{name}` is {value}, but {own} in config.json"
            for name, (value, own, is_equal) in found.items()
            if not is_equal
        ]

    def generate(
        self,
        sources: Sequence[Ids],
        search: Search,
        batch_tokens: int,
        align: bool = False,
        on_batch: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """Computes the outputs; see `Engine.generate`."""
        forced = search.settings.forced_eos_token_id is not None
        longest = search.max_new_tokens - forced
        aligns = align and self.aligns
        common: dict[str, Any] = {
            "source": [[self.source_tokens[index] for index in ids] for ids in sources],
            "max_batch_size": batch_tokens,
            "batch_type": "tokens",
            "max_input_length": 0,
            "min_decoding_length": 0,
            "return_end_token": True,
            "return_attention": aligns,
        }
        # Without a penalty, CTranslate2 ends when the best output is found, not all of them.
        least = _ALMOST_NO_PENALTY if search.n_best > 1 else 0.0
        results = self.translator.translate_batch(
            **common,
            beam_size=search.num_beams,
            num_hypotheses=search.n_best,
            length_penalty=search.length_penalty or least,
            max_decoding_length=longest,
        )
        outputs = [
            [
                self._read_hypothesis(tokens, weights, longest if forced else None)
                for tokens, weights in zip_longest(result.hypotheses, result.attention)
            ]
            for result in results
        ]
        if not aligns or search.num_beams == 1:
            return outputs
        # CTranslate2 4.8 mixes up the sources of a batch at the first token of a beam search.
        firsts = self.translator.translate_batch(**common, beam_size=1, max_decoding_length=1)
        return [
            [_with_first_link(output, first.attention[0]) for output in row]
            for row, first in zip(outputs, firsts, strict=True)
        ]

    def token_scores(
        self, sources: Sequence[Ids], targets: Sequence[Ids], batch_tokens: int, start: int
    ) -> list[list[float]]:
        """Computes the log-probabilities after its own start; see `Engine.token_scores`."""
        results = self.translator.score_batch(
            [[self.source_tokens[index] for index in ids] for ids in sources],
            # CTranslate2 adds the end itself.
            [[self.target_tokens[index] for index in ids[:-1]] for ids in targets],
            max_batch_size=batch_tokens,
            batch_type="tokens",
            max_input_length=0,
        )
        return [list(result.log_probs) for result in results]

    def _read_hypothesis(
        self, tokens: list[str], weights: list[list[float]] | None, ends_at: int | None
    ) -> Hypothesis:
        """Reads tokens, and for each of them the weights of the source tokens.

        An output of the length `ends_at` gets the end that `forced_eos_token_id` puts there.
        """
        complete = bool(tokens) and tokens[-1] == self.target_tokens[self.end_id]
        kept = tokens[:-1] if complete else tokens
        aligned = None if weights is None else tuple(map(_best_source, weights[: len(kept)]))
        ids = tuple(self.target_ids[token] for token in kept)
        has_end = complete or len(kept) == ends_at
        return Hypothesis(ids, self.end_id if has_end else None, aligned)


def _number_of_threads() -> int:
    """Returns the first number of `$OMP_NUM_THREADS`, a list; 0, CTranslate2's choice, if none."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() else 0


def _with_first_link(output: Hypothesis, weights: list[list[float]]) -> Hypothesis:
    """Returns an output whose first token is aligned by the first of the given weights."""
    if not output.aligned:
        return output
    return replace(output, aligned=(_best_source(weights[0]), *output.aligned[1:]))


def _ends_sources(tokenizer: Any) -> bool:
    """Returns whether sources end with a token to which no output token is aligned."""
    ids = tokenizer("")["input_ids"]
    return bool(ids) and bool(ids[-1] == tokenizer.eos_token_id)


def _best_source(weights: list[float]) -> int:
    """Returns the source token with the largest weight; no token is aligned with the end."""
    return max(range(max(len(weights) - 1, 1)), key=weights.__getitem__)


def load_ctranslate2(
    path: Path,
    config: Any,
    tokenizer: Any,
    compute_type: str,
    device: str,
    workers: int = 1,
) -> CTranslate2Engine:
    """Loads the export of a saved model, and makes it first where the cache does not hold it.

    Raises:
        ValueError: If CTranslate2 cannot compute the model or use the device, or has no such type
            on this device.
        CacheError: If the cache holds no export of the model, and cannot be written, or if others
            could have written the export that it holds.
    """
    if not device.startswith(("cpu", "cuda")):
        raise ValueError(
            f"CTranslate2 computes on cpu and cuda, not on {device!r}: use the engine "
            "'transformers', or another device."
        )
    device = device if device.startswith("cuda") else "cpu"
    possible = sorted(ctranslate2.get_supported_compute_types(device.partition(":")[0]))
    if compute_type not in possible:
        raise ValueError(
            f"CTranslate2 has no compute_type {compute_type!r} on this device: use one of "
            f"{possible}."
        )
    positions, limit = int(config.max_position_embeddings), tokenizer.model_max_length
    if config.position_embedding_type != "learned":  # at least what model and tokenizer state
        positions = max(POSITIONS, positions, limit if limit < NO_LIMIT else 0)
    stored = "int8" if compute_type.startswith("int8") else "float32"
    version = f"{ctranslate2.__version__}-{LAYOUT}"
    exported = cache_directory() / f"{_model_digest(path)}-{stored}-{positions}-{version}"
    if exported.exists():
        _check_owners(exported)
        if damaged := _damaged_file(exported):
            logger.warning(f"{str(damaged)!r} is damaged: the export is made again.")
            shutil.rmtree(exported)
    if not exported.exists():
        _export_once(path, tokenizer, exported, stored, positions)
    vocabularies = vocabularies_of(config, tokenizer)
    return CTranslate2Engine(
        exported,
        vocabularies,
        config.decoder_start_token_id,
        end_token_of(config),
        positions,
        compute_type,
        device,
        aligns=aligning_heads(config) is not None and _ends_sources(tokenizer),
        workers=workers,
    )


def sees_gpu(device: str) -> bool:
    """Returns whether CTranslate2 can use "cuda" or "cuda:1", even if torch cannot."""
    kind, _, index = device.partition(":")
    number = int(index) if index.isdecimal() else 0 if not index else -1
    return kind == "cuda" and 0 <= number < ctranslate2.get_cuda_device_count()


def cache_directory() -> Path:
    """Returns the folder of the exports: `$VANILLA_TRANSFORMER_CACHE`, or one in `~/.cache`."""
    if given := os.environ.get("VANILLA_TRANSFORMER_CACHE"):
        return Path(given, "ctranslate2")
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:
        raise CacheError(
            "This user has no home directory for the export to CTranslate2: set "
            "VANILLA_TRANSFORMER_CACHE to a folder that can be written."
        ) from error
    return caches / "vanilla_transformer" / "ctranslate2"


def _model_digest(path: Path) -> str:
    """Returns a name for the content of a saved model: its weights, config and tokenizer."""
    digest = hashlib.sha256()
    for file in model_files(path):
        digest.update(f"{file.name} {content_digest(file)}\n".encode())
    return digest.hexdigest()[:32]


def _trusted_owners() -> set[int]:
    """Returns the users whose exports are read: this one and the administrator."""
    return {os.getuid(), 0} if hasattr(os, "getuid") else set()


def _check_owners(exported: Path) -> None:
    """Refuses, by its name, a file of an export that another user has written, or may write."""
    owners = _trusted_owners()
    for file in (exported, *exported.iterdir()) if owners else ():
        found = file.lstat()
        if found.st_uid not in owners or stat.S_ISLNK(found.st_mode) or found.st_mode & 0o022:
            raise CacheError(
                f"{str(file)!r} in the cache of exports is a link, belongs to another user, or can "
                f"be written by others: delete {str(exported)!r}, or set VANILLA_TRANSFORMER_CACHE "
                "to a folder of your own."
            )


def _damaged_file(exported: Path) -> Path | None:
    """Returns a file of an export that has another content than when it was written."""
    record = exported / DIGESTS_FILE
    try:
        digests = read_object(record)
    except (OSError, ValueError):
        return record
    for name in sorted({*digests, *(file.name for file in exported.iterdir())} - {DIGESTS_FILE}):
        file = exported / name
        if not file.is_file() or content_digest(file) != digests.get(name):
            return file
    return None


def _protect_export(made: Path, source: Path) -> None:
    """Records what was written; lets those read it who can read the source, nobody else write."""
    digests = {file.name: content_digest(file) for file in made.iterdir()}
    (made / DIGESTS_FILE).write_text(json.dumps(digests), encoding="utf-8")
    weights = [file for pattern in WEIGHTS for file in source.glob(pattern)]
    readers = reduce(and_, (file.stat().st_mode for file in weights), 0o644)
    for file in made.iterdir():
        file.chmod(readers & 0o644 | 0o600)
    made.chmod(source.stat().st_mode & 0o755 | 0o700)


def _export_once(path: Path, tokenizer: Any, exported: Path, stored: str, positions: int) -> None:
    """Exports into a folder of its own, which then takes its place: several processes may try."""
    try:
        exported.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(mkdtemp(dir=exported.parent, prefix=f".{exported.name}-"))
    except OSError as error:
        raise CacheError(
            f"The export to CTranslate2 cannot be written to {str(exported.parent)!r} "
            f"({error.strerror}): set VANILLA_TRANSFORMER_CACHE to a folder that can be written."
        ) from error
    try:
        made = unfinished / "model"
        convert_to_ctranslate2(load_weights(str(path)), tokenizer, made, stored, positions)
        _protect_export(made, path)
        try:
            made.rename(exported)
        except OSError:
            if not exported.is_dir():  # no other process was faster
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
