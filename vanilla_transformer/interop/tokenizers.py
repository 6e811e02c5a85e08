"""Tokenizers of converted and exported models."""

import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from vanilla_transformer.files.file_contents import read_object
from vanilla_transformer.model.directions import in_language
from vanilla_transformer.model.tokenization_vanilla_transformer import (
    CORE_TOKEN_NAMES,
    ZERO_WIDTH,
    VanillaTransformerTokenizer,
    lower_case,
    puts_space_before,
)
from vanilla_transformer.tokenizer_sides import call_tokenizer
from vanilla_transformer.weights.match_weights import raise_problems

PROBES = (
    "Hello, world! This is a test of 3 sentences.",
    "Ein Löwe frißt 1.234,50 kg; \u00abnaïve\u00bb caf\u00e9s \u2014 d\u2019accord?",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u4f60\u597d \ud55c\uad6d\uc5b4 \U0001f642",
    "  two  spaces\tand a tab ",
    "",
)
"""Texts that both tokenizers must encode alike."""

TARGET_FOLDER = "target_tokenizer"
"""Sub-folder of the target's tokenizer in an export with two vocabularies."""

_PATTERNS = ("tokenizer*.json", "vocab*.json", "vocab*.txt", "*.spm", "*.model", "merges.txt")


def load_tokenizer(source: str | Path) -> Any:
    """Loads the tokenizer of a source; None: the source is a directory without one."""
    if Path(source).is_dir() and not any(any(Path(source).glob(each)) for each in _PATTERNS):
        return None
    load: Any = AutoTokenizer.from_pretrained
    return load(source, trust_remote_code=False)


def save_tokenizer(tokenizer: Any, output_dir: str | Path) -> None:
    """Saves a tokenizer beside a model, and checks that the Auto classes find the same."""
    tokenizer.save_pretrained(output_dir)
    saved, problems = load_tokenizer(output_dir), []
    if type(saved) is not type(tokenizer):
        problems.append(f"it loads as {type(saved).__name__}, not {type(tokenizer).__name__}")
    problems += _find_differences(tokenizer, saved, PROBES, ("source", "target"))
    raise_problems("The saved tokenizer differs from the source's", problems)


def _find_differences(
    tokenizer: Any, saved: Any, texts: Sequence[str], sides: Sequence[str]
) -> Iterator[str]:
    """Yields a sentence for each text that a saved tokenizer encodes or decodes otherwise."""
    both = (tokenizer, saved)
    sided = [isinstance(each, VanillaTransformerTokenizer) for each in both]
    for text, side in product(texts, sides):
        encoders = both if side == "source" else [in_language(each, None) for each in both]
        expected, encoded = (call_tokenizer(each, side, text)["input_ids"] for each in encoders)
        original, decoded = (
            each.decode(expected, **({"side": side} if is_sided else {}))
            for each, is_sided in zip(both, sided, strict=True)
        )
        if expected != encoded:
            yield f"the {side} {text!r} becomes {encoded}, not {expected}"
        elif original != decoded:
            yield f"{expected} becomes {decoded!r}, not {original!r}"


# Words listed by id ------------------------------------------------------------------------------


def word_backend(words: Sequence[str], unk_token: str) -> Tokenizer:
    """Makes a backend that splits at white space and looks words up.

    Decoding undoes the segmentation, if the vocabulary shows it: `▁` of SentencePiece, `￭` of
    OpenNMT's tokenizer, or `@@` of subword-nmt.
    """
    vocab = {word: index for index, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(vocab, unk_token=unk_token))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if any(word.startswith("▁") for word in words):
        steps = [decoders.Fuse(), decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)]
    else:
        # The prefix marks words that continue others. No word begins with a space, so none does.
        steps = [decoders.WordPiece(prefix=" ", cleanup=False), decoders.Fuse()]
        if any("￭" in word for word in words):
            steps.append(decoders.Replace(Regex(" ?￭ ?"), ""))
        elif any(word.endswith("@@") for word in words):
            steps.append(decoders.Replace(Regex("@@( |$)"), ""))
    backend.decoder = decoders.Sequence(steps)
    return backend


def set_ends(backend: Tokenizer, first: str | None, last: str | None) -> None:
    """Sets the tokens around each sequence."""
    begin, end = (f"{first} " if first else ""), (f" {last}" if last else "")
    backend.post_processor = processors.TemplateProcessing(
        single=f"{begin}$A{end}",
        pair=f"{begin}$A{end} $B:1{end and end + ':1'}",
        special_tokens=[
            (token, backend.token_to_id(token))
            for token in dict.fromkeys(filter(None, (first, last)))
        ],
    )


# Without code of this package --------------------------------------------------------------------


def save_plain_tokenizer(tokenizer: Any, output_dir: str | Path) -> tuple[str, ...]:
    """Saves a tokenizer so that transformers loads it without code of this package.

    A tokenizer of transformers itself is saved as it is. Ours becomes a `PreTrainedTokenizerFast`
    with the same ids and texts; of two vocabularies, the target's goes to `TARGET_FOLDER`.

    Returns:
        Notes for the user, one sentence each.
    """
    if not isinstance(tokenizer, VanillaTransformerTokenizer):
        save_tokenizer(tokenizer, output_dir)
        _use_known_names(Path(output_dir))
        return ()
    notes = _save_side(tokenizer, output_dir)
    if not tokenizer.separate_vocabularies:
        return notes
    _save_side(tokenizer.target_tokenizer(), Path(output_dir) / TARGET_FOLDER)
    note = (
        f"The tokenizer of the directory encodes sources. Decode outputs with the target's: "
        f'`AutoTokenizer.from_pretrained(path, subfolder="{TARGET_FOLDER}")`.'
    )
    return (*notes, note)


def to_plain_tokenizer(tokenizer: VanillaTransformerTokenizer) -> PreTrainedTokenizerFast:
    """Returns a tokenizer, or the source's of two, without our class.

    Tokens that were added as special ones, such as a tag, are recognised in texts as before, but
    decoding cannot skip them.
    """
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    added = _added_tokens(tokenizer)
    steps: list[Any] = [] if backend.normalizer is None else [backend.normalizer]
    if tokenizer.do_lower_case:
        steps = [*lower_case(), *steps]
    if tokenizer.fold_white_space:
        # Beside an added token, a space belongs to the text.
        strip = [] if added else [normalizers.Strip(left=not puts_space_before(backend))]
        spaces = [(rf"^[\s{ZERO_WIDTH}]+", " "), (rf"[{ZERO_WIDTH}]", ""), (r"\s+", " ")]
        fold = [normalizers.Replace(Regex(pattern), kept) for pattern, kept in spaces]
        steps = [*fold, *strip, *steps]
    if steps:
        backend.normalizer = normalizers.Sequence(steps)
    for token in filter(lambda token: token.special, added):
        token.special = False
        backend.add_tokens([token])
    options = ("padding_side", "truncation_side", "split_special_tokens", "model_max_length")
    make: Any = PreTrainedTokenizerFast
    plain: PreTrainedTokenizerFast = make(
        tokenizer_object=backend,
        clean_up_tokenization_spaces=False,
        model_input_names=list(tokenizer.model_input_names),
        **{name: str(getattr(tokenizer, name)) for name in CORE_TOKEN_NAMES},
        **{name: getattr(tokenizer, name) for name in options},
    )
    return plain


def _save_side(tokenizer: VanillaTransformerTokenizer, folder: str | Path) -> tuple[str, ...]:
    """Saves the source's vocabulary, and checks the tokenizer that is loaded again."""
    to_plain_tokenizer(tokenizer).save_pretrained(folder)
    _use_known_names(Path(folder))
    added = _added_tokens(tokenizer)
    tags = [token.content for token in added if token.special]
    saved, problems = load_tokenizer(folder), []
    if isinstance(saved, VanillaTransformerTokenizer):
        problems.append(f"it loads as {type(saved).__name__}, a class of this package")
    probes = [text.strip() for text in PROBES] if added else PROBES
    texts = (*probes, "</s> a <s>", " a ".join(token.content for token in added))
    problems += _find_differences(tokenizer, saved, texts, ("source",))
    raise_problems("The exported tokenizer differs from the model's", problems)
    skipped = f"Decoding does not skip the tokens {', '.join(tags)}, which the original skips."
    spaces = "White space around a source is a part of it: strip it before."
    return (*([skipped] if tags else []), *([spaces] if added else []))


def _use_known_names(folder: Path) -> None:
    """Writes names that transformers 4 and transformers.js know too into a tokenizer's config."""
    path = folder / "tokenizer_config.json"
    config = read_object(path)
    if config["tokenizer_class"] == "TokenizersBackend":
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    if "extra_special_tokens" in config:
        config["additional_special_tokens"] = config.pop("extra_special_tokens")
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _added_tokens(tokenizer: VanillaTransformerTokenizer) -> list[Any]:
    """Returns copies of the added tokens of a tokenizer beyond the four core ones."""
    core = {str(getattr(tokenizer, name)) for name in CORE_TOKEN_NAMES}
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder().values()
    return [token for token in added if token.content not in core]
