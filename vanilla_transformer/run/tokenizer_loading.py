"""The tokenizer of a run: loaded and checked against the options, or trained."""

from copy import deepcopy
from pathlib import Path
from typing import Any

from datasets import DatasetDict
from transformers.utils import logging

from vanilla_transformer.inference.loading import load_tokenizer
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.run.options import TokenizerArguments

logger = logging.get_logger(__name__)


def make_tokenizer(options: TokenizerArguments, data: DatasetDict, start: str | None) -> Any:
    """Loads the tokenizer of a run, or trains one on the training split.

    Args:
        options: Options of the tokenizer.
        data: The splits.
        start: Saved model or checkpoint that the run starts from.

    Returns:
        A tokenizer.

    Raises:
        ValueError: If a tokenizer must be trained without a training split, or a saved one
            contradicts the options or the saved model.
    """
    given = options.tokenizer_name_or_path
    if (path := given or start) is not None:
        try:
            tokenizer = load_tokenizer(path)
        except FileNotFoundError as error:
            if given is None:
                raise
            raise FileNotFoundError(f"`tokenizer_name_or_path`: {error}") from error
        _check_training_options(options.training_options(), tokenizer, path)
        if given is not None and start is not None:
            _check_same_tokens(tokenizer, given, start)
        return tokenizer
    if "train" not in data:
        raise ValueError(
            "A new tokenizer needs a training split: give one, or `--tokenizer_name_or_path`."
        )
    if options.target_tokenizer_kind and not options.separate_vocabularies:
        raise ValueError("`target_tokenizer_kind` needs `--separate_vocabularies True`.")
    return VanillaTransformerTokenizer.train(
        data["train"]["source"], data["train"]["target"], **options.training_options()
    )


def limit_length(tokenizer: Any, positions: int | None) -> Any:
    """Returns a tokenizer whose maximum length is the number of positions of the model.

    Args:
        tokenizer: Tokenizer; it is not changed.
        positions: Maximum number of tokens; None: no limit.

    Returns:
        A copy, or without a limit the tokenizer itself.
    """
    if positions is None:
        return tokenizer
    tokenizer = deepcopy(tokenizer)
    tokenizer.model_max_length = positions
    return tokenizer


def _check_training_options(asked: dict[str, Any], tokenizer: Any, path: str) -> None:
    """Refuses options that contradict how a saved tokenizer was trained."""
    known = getattr(tokenizer, "training_options", {})
    sizes = {"vocab_size": len(tokenizer)}
    sizes["target_vocab_size"] = getattr(tokenizer, "target_vocab_size", len(tokenizer))
    for name, value in asked.items():
        found = known.get(name, sizes.get(name))
        # Without a record, the limit in the training may have been larger than the vocabulary.
        if name in sizes and name not in known and value > sizes[name]:
            logger.warning(f"`{name}` {value} has no effect: {path!r} has {found} tokens.")
        elif value not in (found, sizes.get(name)):
            option, value, found = _command_line_terms(name, value, found)
            raise ValueError(
                f"`{option}` is {value!r}, but the tokenizer in {path!r} was trained with "
                f"{found!r}: leave the option out, or train a new model."
            )


def _command_line_terms(name: str, value: Any, found: Any) -> tuple[str, Any, Any]:
    """Translates an argument of the tokenizer's `train` to its command-line option."""
    if name == "shared":
        return "separate_vocabularies", not value, None if found is None else not found
    names = {"kind": "tokenizer_kind", "target_kind": "target_tokenizer_kind"}
    return names.get(name, name), value, found


def _check_same_tokens(tokenizer: Any, given: str, saved: str) -> None:
    """Refuses a tokenizer whose ids stand for other tokens than those of the saved model."""
    if Path(saved).is_dir() and not list(Path(saved).glob("tokenizer*.json")):
        return  # converted weights may come without a tokenizer
    own = load_tokenizer(saved)
    for side in ("source", "target"):
        ids = _side_vocabulary(tokenizer, side)
        for token, index in _side_vocabulary(own, side).items():
            if ids.get(token) != index:
                raise ValueError(
                    f"`tokenizer_name_or_path` {given!r} gives {token!r} the id "
                    f"{ids.get(token)}, but the model in {saved!r} learned it as {index} "
                    f"({side}): leave the option out, or train a new model."
                )


def _side_vocabulary(tokenizer: Any, side: str) -> dict[str, int]:
    options = {"side": side} if hasattr(tokenizer, "separate_vocabularies") else {}
    vocabulary: dict[str, int] = tokenizer.get_vocab(**options)
    return vocabulary
