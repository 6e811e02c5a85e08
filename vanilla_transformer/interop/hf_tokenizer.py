"""Writes our tokenizer as a `PreTrainedTokenizerFast`, which needs no code of this package."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from vanilla_transformer.interop.tokenizers import PROBES, save_tokenizer
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer

TARGET_FOLDER = "target_tokenizer"
"""Sub-folder of the target's tokenizer, where both sides have their own vocabulary."""

_CORE = ("bos_token", "pad_token", "eos_token", "unk_token")


def save_plain_tokenizer(tokenizer: Any, output_dir: str | Path) -> tuple[str, ...]:
    """Saves a tokenizer so that transformers loads it without code of this package.

    A tokenizer of transformers itself is saved as it is. Ours becomes a `PreTrainedTokenizerFast`
    with the same ids and texts; of two vocabularies, the target's goes to `TARGET_FOLDER`.

    Args:
        tokenizer: The tokenizer.
        output_dir: Directory of the exported model.

    Returns:
        What a user must know, one sentence each.

    Raises:
        ValueError: If a saved tokenizer encodes or decodes a text otherwise.
    """
    if not isinstance(tokenizer, VanillaTransformerTokenizer):
        save_tokenizer(tokenizer, output_dir)
        return ()
    notes = _save_side(tokenizer, output_dir)
    if not tokenizer.separate_vocabularies:
        return notes
    _save_side(tokenizer.target_tokenizer(), Path(output_dir) / TARGET_FOLDER)
    note = (
        f"The tokenizer of the directory encodes sources. Decode outputs with that of the target: "
        f'`AutoTokenizer.from_pretrained(path, subfolder="{TARGET_FOLDER}")`.'
    )
    return (*notes, note)


def to_plain_tokenizer(tokenizer: VanillaTransformerTokenizer) -> PreTrainedTokenizerFast:
    """Converts a tokenizer with one vocabulary; of two, the source's is taken.

    Args:
        tokenizer: The tokenizer.

    Returns:
        The same without our class. Tokens that were added as special ones, such as a tag, are
        recognised in texts as before, but decoding cannot skip them.
    """
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    core = {name: str(getattr(tokenizer, name)) for name in _CORE}
    for token in _added_special_tokens(backend, core):
        token.special = False
        backend.add_tokens([token])
    options = ("padding_side", "truncation_side", "split_special_tokens", "model_max_length")
    settings = {name: getattr(tokenizer, name) for name in options}
    make: Any = PreTrainedTokenizerFast
    plain: PreTrainedTokenizerFast = make(
        tokenizer_object=backend,
        clean_up_tokenization_spaces=False,
        model_input_names=list(tokenizer.model_input_names),
        **core,
        **settings,
    )
    return plain


def _save_side(tokenizer: VanillaTransformerTokenizer, folder: str | Path) -> tuple[str, ...]:
    """Saves the source's vocabulary, and checks what is loaded again."""
    to_plain_tokenizer(tokenizer).save_pretrained(folder)
    load: Any = AutoTokenizer.from_pretrained
    core = {name: str(getattr(tokenizer, name)) for name in _CORE}
    tags = [token.content for token in _added_special_tokens(tokenizer.backend_tokenizer, core)]
    _check_same(tokenizer, load(folder), (*PROBES, "</s> a <s>", " a ".join(tags)))
    if not tags:
        return ()
    return (f"Decoding does not skip the tokens {', '.join(tags)}, which the original skips.",)


def _added_special_tokens(backend: Tokenizer, core: dict[str, str]) -> list[Any]:
    """Returns copies of the special tokens of a backend beyond the four core ones."""
    added = backend.get_added_tokens_decoder().values()
    return [token for token in added if token.special and token.content not in core.values()]


def _check_same(tokenizer: VanillaTransformerTokenizer, saved: Any, texts: tuple[str, ...]) -> None:
    """Raises an error if a saved tokenizer differs from its source on the texts."""
    problems = []
    if isinstance(saved, VanillaTransformerTokenizer):
        problems.append(f"it loads as {type(saved).__name__}, a class of this package")
    for text in texts:
        expected, found = tokenizer(text)["input_ids"], saved(text)["input_ids"]
        original, decoded = tokenizer.decode(expected, side="source"), saved.decode(expected)
        if expected != found:
            problems.append(f"{text!r} becomes {found}, not {expected}")
        elif original != decoded:
            problems.append(f"{expected} becomes {decoded!r}, not {original!r}")
    if problems:
        listed = "".join(f"\n- {problem}" for problem in problems)
        raise ValueError(f"The exported tokenizer differs from the model's:{listed}")
