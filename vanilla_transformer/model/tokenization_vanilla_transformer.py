r"""The tokenizer of a sequence-to-sequence model, with one shared or two separate vocabularies.

A copy of this file is saved beside every model. `AutoTokenizer.from_pretrained(directory,
trust_remote_code=True)` therefore works where this package is not installed. The file requires
`tokenizers`, `transformers` and the standard library.

`VanillaTransformerTokenizer.train(kind=...)` trains one of these kinds of vocabulary:

| kind | tokens | result of `decode(encode(text))` |
|---|---|---|
| `bpe` | merged characters (Sennrich et al. 2016); text is first split into words, runs of signs, and spaces | the text in Unicode form NFC without one leading space; unseen characters become `<unk>` |
| `unigram` | pieces of a unigram language model (Kudo 2018); text is split as for `bpe` | as for `bpe` |
| `word` | text between white space; punctuation stays attached to its word | the words in form NFC, joined by single spaces; unseen words become `<unk>` |
| `char` | single code points, including the space | the text in form NFC; unseen characters become `<unk>` |
| `byte_bpe` | merged UTF-8 bytes (Radford et al. 2019) | exactly the text, for any text |

A source means the same with any white space between its words and around them: `train` makes
tokenizers that fold it (see `fold_white_space`), so the table holds for texts without such.

`bpe` and `unigram` write a space as U+2581 (`▁`), so a literal U+2581 is decoded as a space. `word`
writes U+2060 (a word joiner) after the `<` of a literal `<s>`, `<pad>`, `</s>` or `<unk>`. No kind can
encode a lone surrogate (`"\ud800"`), because it is not Unicode text.
"""  # noqa: E501 - a table row is one line

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from json import dumps, loads
from pathlib import Path
from typing import Any, Literal, Self

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import BatchEncoding, TokenizersBackend

BOS_TOKEN, PAD_TOKEN, EOS_TOKEN, UNK_TOKEN = "<s>", "<pad>", "</s>", "<unk>"
SPECIAL_TOKENS = (BOS_TOKEN, PAD_TOKEN, EOS_TOKEN, UNK_TOKEN)
"""The tokens with the ids 0, 1, 2 and 3 in every trained vocabulary."""

PLACEHOLDERS = tuple(f"<ph{number}>" for number in range(1, 9))
"""Tokens that stand for parts of a text that stay as they are; see `add_placeholders`."""

TERM_TOKENS = ("<|term|>", "<|trans|>", "<|end|>")
"""What stands before a term of a source, between it and its target, and behind that."""

MEMORY_TOKEN = "<|memory|>"
"""What stands between a source and the translation of a similar one."""

KINDS = ("bpe", "unigram", "word", "char", "byte_bpe")
"""The kinds of vocabulary that `VanillaTransformerTokenizer.train` can train."""

Side = Literal["source", "target"]
"""The name of a vocabulary. With a shared vocabulary, both names mean the same one."""

ZERO_WIDTH = "\u200b\u2060\ufeff"
"""Spaces without a width: a break, a joiner, and the mark that files of Windows begin with."""

WHITE_SPACE = ZERO_WIDTH + "".join(filter(str.isspace, map(chr, range(0x3001))))
"""All white space. What of it surrounds a text does not belong to the text."""

CORE_TOKEN_NAMES = ("bos_token", "pad_token", "eos_token", "unk_token")
_SPACE = "▁"
# Marks belong to the letter or sign before them; ZWNJ and ZWJ (U+200C, U+200D) join letters.
_IN_WORD = r"\p{L}\p{M}\x{200c}\x{200d}"
_WORDS_OR_SIGNS = Regex(
    rf"{_SPACE}?[\p{{L}}\p{{N}}][{_IN_WORD}\p{{N}}]*|{_SPACE}?[^{_SPACE}\p{{L}}\p{{N}}]+|{_SPACE}"
)
_WORDS_OF_BYTES = Regex(  # Radford et al. 2019
    rf"'(?:[stmd]|re|ve|ll)| ?\p{{L}}[{_IN_WORD}]*| ?\p{{N}}[\p{{N}}\p{{M}}]*"
    r"| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)
_SPACES = re.compile(rf"[\s{ZERO_WIDTH}]+")
_FILLER = "\ufdd0"  # no character of Unicode: it keeps the place of white space that is left out
_FINAL_SIGMA = Regex(r"(?<=\p{L})\x{3c3}(?!\p{L})")
_LONG_WORD = re.compile(r"\S{1000}(?=\S)")
_ANY_CHARACTER = Regex(r"[\s\S]")
_WORD_JOINER = "\u2060"
_BRACKET_OF_SPECIAL_TOKEN = Regex(r"<(?=(?:/?s|pad|unk)>)")
_MARKED_BRACKET_OF_SPECIAL_TOKEN = Regex(rf"<{_WORD_JOINER}(?=(?:/?s|pad|unk)>)")
_SCORE_DIGITS = 6

_in_target_mode: ContextVar["VanillaTransformerTokenizer | None"] = ContextVar(
    "vanilla_transformer_tokenizer_in_target_mode", default=None
)
_backend_of_call: ContextVar["tuple[VanillaTransformerTokenizer, Tokenizer] | None"] = ContextVar(
    "vanilla_transformer_tokenizer_backend_of_call", default=None
)


class VanillaTransformerTokenizer(TokenizersBackend):
    r"""Encodes sources and targets, and decodes generated ids.

    Encoding: `tokenizer(text)` uses the source vocabulary. `tokenizer(text, text_target=...)` also
    returns `labels`, encoded with the target vocabulary. `tokenizer(text_target=...)` encodes
    targets only. Every sequence ends with `</s>`, even if it is truncated. No sequence begins with
    `<s>`: the model shifts the labels and starts its decoder with `<s>` itself.

    Sides: `decode` and `batch_decode` expect **target** ids (generated ids and labels) unless
    `side="source"` is given. `len()`, `vocab_size`, `get_vocab` and the conversions between ids and
    tokens use the **source** vocabulary unless `side="target"` is given; another value is an error.
    `target_vocab_size` is the number of target ids. With a shared vocabulary, both sides are the
    same.

    Special tokens in texts: by default, `"</s>"` inside a text is encoded as its characters and
    never as the end of the sequence (`split_special_tokens=True`). The same holds for `<s>`,
    `<pad>` and `<unk>`. To recognise these four in texts too, pass `split_special_tokens=False` to
    a call or set the attribute. Tokens that are added later, such as the tag `<2de>`, are always
    recognised in texts; decoding can skip those that are added as special tokens.

    Threads: calls may run at the same time. No call changes the tokenizer.

    Files: `tokenizer.json` (the source or shared vocabulary), `target_tokenizer.json` (only with
    separate vocabularies), `tokenizer_config.json` and this module.

    Args:
        separate_vocabularies: Whether the target has its own vocabulary. False ignores the target
            backend. None: True if a target backend is given.
        fold_white_space: Whether a source has one space for all white space between two words (tab,
            U+00A0, U+3000, ...), none of U+200B, U+2060 and U+FEFF, and a source or target none
            around it. Within a target all stays. `train` switches it on.
        do_lower_case: Whether sources are converted to lower case, as a model needs that was
            trained on such sources alone.
        **kwargs: The backend of the source, or of both sides, is `tokenizer_object` (a
            `tokenizers.Tokenizer`, which is copied) or `tokenizer_file` (the path of a saved one).
            The backend of the target is `target_tokenizer_object` or `target_tokenizer_file`. All
            arguments of `transformers.TokenizersBackend` are accepted, such as `model_max_length`
            (in tokens), `padding_side` and `truncation_side`. `bos_token`, `pad_token`, `eos_token`
            and `unk_token` default to `<s>`, `<pad>`, `</s>` and `<unk>`.

    Raises:
        ValueError: If a backend is missing or damaged, or if one of the four special tokens has
            different ids in the two vocabularies.
    """

    vocab_files_names = {  # noqa: RUF012 - as the base class declares it
        "tokenizer_file": "tokenizer.json",
        "target_tokenizer_file": "target_tokenizer.json",
    }
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012 - as above
    _auto_class = "AutoTokenizer"
    _target_tokenizer: Tokenizer | None = None

    def __init__(
        self,
        *,
        separate_vocabularies: bool | None = None,
        fold_white_space: bool = False,
        do_lower_case: bool = False,
        **kwargs: Any,
    ) -> None:
        self.fold_white_space, self.do_lower_case = fold_white_space, do_lower_case
        folder = kwargs.get("name_or_path")
        target_object = kwargs.pop("target_tokenizer_object", None)
        target_file = kwargs.pop("target_tokenizer_file", None)
        separate = separate_vocabularies
        if separate is None:
            separate = target_object is not None or target_file is not None
        if separate:
            self._target_tokenizer = _load_backend(
                target_object, target_file, "target_tokenizer", folder
            )
        source_file = kwargs.pop("tokenizer_file", None)
        source_object = kwargs.pop("tokenizer_object", None)
        source = _load_backend(source_object, source_file, "tokenizer", folder)
        if source.post_processor is None:
            kwargs.setdefault("add_eos_token", True)
        for name, token in zip(CORE_TOKEN_NAMES, SPECIAL_TOKENS, strict=True):
            kwargs.setdefault(name, token)
        kwargs.setdefault("split_special_tokens", True)
        # Only arguments are saved, so these two attributes become arguments.
        kwargs.setdefault("padding_side", self.padding_side)
        kwargs.setdefault("truncation_side", self.truncation_side)
        super().__init__(  # type: ignore[no-untyped-call]  # the base class is not typed
            tokenizer_object=source,
            separate_vocabularies=separate,
            fold_white_space=fold_white_space,
            do_lower_case=do_lower_case,
            **kwargs,
        )
        self._copy_sequence_ends_to_target()
        for name in CORE_TOKEN_NAMES:
            self._check_same_id_on_both_sides(name, getattr(self, name))
        if self._target_tokenizer is not None:
            core = [AddedToken(getattr(self, name), special=True) for name in CORE_TOKEN_NAMES]
            self._target_tokenizer.add_special_tokens(core)

    @classmethod
    def train(
        cls,
        source: Iterable[str],
        target: Iterable[str] | None = None,
        *,
        kind: str = "bpe",
        target_kind: str | None = None,
        vocab_size: int = 8000,
        target_vocab_size: int | None = None,
        shared: bool = True,
        lowercase: bool = False,
        min_frequency: int = 1,
        model_max_length: int | None = None,
        fold_white_space: bool = True,
        do_lower_case: bool | None = False,
        show_progress: bool = False,
    ) -> Self:
        """Trains the shared vocabulary, or both vocabularies, on texts.

        The same texts in the same order give the same vocabulary. Texts are read once, as a stream,
        so generators work. Kinds with subwords learn from pieces of 1,000 characters of what is
        longer without a space: their trainers take time in the square of the length.

        Args:
            target: Target texts. None: a shared vocabulary is trained on `source` only.
            kind, target_kind: Kinds of the source or shared vocabulary, and of a separate target's
                (None: the same): two of `KINDS`, which the table in the module's docstring
                describes.
            vocab_size, target_vocab_size: Maximum numbers of ids, including the four special
                tokens. Small corpora give fewer ids.
            shared: Whether both sides share one vocabulary, which is trained on `source` and
                `target` together (section 5.1 of the paper). Otherwise, each side has its own.
            lowercase: Whether to convert texts of both sides to lower case, in training and in use.
            min_frequency: Minimum number of occurrences of a token (`word`, `char`) or of a pair of
                tokens to merge (`bpe`, `byte_bpe`). `unigram` does not use it.
            model_max_length: Maximum length in tokens, including `</s>`, for `truncation=True`.
            fold_white_space: As for the class; the vocabulary is trained on such texts.
            do_lower_case: As for the class. None: whether no source has a capital letter, but some
                source has a small one.

        Raises:
            ValueError: If a kind is unknown; if a size is too small for the special tokens and the
                alphabet (for `byte_bpe` the 256 bytes, otherwise every character of the texts); if
                the texts are empty, a single string or not strings; or if `target` is missing with
                `shared=False`.
        """
        kinds = (kind,) if shared else (kind, target_kind or kind)
        sizes = (vocab_size, target_vocab_size or vocab_size)
        for name, texts in (("source", source), ("target", target)):
            if isinstance(texts, str):  # an iterable of letters
                raise ValueError(f"{name} is a single string: pass a list of texts.")
        for side_kind in kinds:
            if side_kind not in KINDS:
                raise ValueError(f"kind={side_kind!r} is unknown: use one of {', '.join(KINDS)}.")
        if target is None and not shared:
            raise ValueError("target=None with shared=False: pass target texts, or shared=True.")
        cases: set[str] = set()
        sources = _check_while_reading(source, "source", fold_white_space)
        corpora: list[Iterable[str]] = [_note_cases(sources, cases)]
        if target is not None:
            corpora.append(_check_while_reading(target, "target", fold_white_space))
        if shared:
            corpora = [chain(*corpora)]
        backends = [
            _train_backend(texts, side_kind, size, lowercase, min_frequency, show_progress)
            for texts, side_kind, size in zip(corpora, kinds, sizes, strict=False)
        ]
        options = {
            "kind": kinds[0],
            "target_kind": kinds[-1],
            "vocab_size": sizes[0],
            "target_vocab_size": sizes[1],
            "shared": shared,
            "lowercase": lowercase,
        }
        return cls(
            tokenizer_object=backends[0],
            target_tokenizer_object=None if shared else backends[1],
            model_max_length=model_max_length,
            fold_white_space=fold_white_space,
            do_lower_case=cases == {"small"} if do_lower_case is None else do_lower_case,
            training_options=options,
        )

    @property
    def separate_vocabularies(self) -> bool:
        """Whether source and target have separate vocabularies."""
        return self._target_tokenizer is not None

    @property
    def training_options(self) -> dict[str, Any]:
        """The options of `train` that the vocabularies were trained with, by name.

        Of a converted tokenizer, they are what its backends tell, without sizes.
        """
        if recorded := self.init_kwargs.get("training_options"):
            return dict(recorded)
        backends = [self._backend_of("source"), self._target_tokenizer]
        states = [loads(backend.to_str()) for backend in backends if backend is not None]
        options = {
            "kind": _detect_kind(states[0]),
            "target_kind": _detect_kind(states[-1]),
            "shared": not self.separate_vocabularies,
            "lowercase": '"Lowercase"' in dumps(states[0]["normalizer"]),
        }
        return {name: value for name, value in options.items() if value is not None}

    @property
    def target_vocab_size(self) -> int:
        """Number of target ids, including added tokens: the model's `decoder_vocab_size`.

        `len(tokenizer)` is the number of source ids.
        """
        return self._backend_of("target").get_vocab_size(with_added_tokens=True)

    def target_tokenizer(self) -> Self:
        """Returns this tokenizer, or one that uses the target vocabulary for both sides.

        Use it where targets are meant, as for `stop_strings` of `generate`, and streamers.
        """
        if not self.separate_vocabularies:
            return self
        kept = ("model_max_length", "padding_side", "truncation_side", "split_special_tokens")
        names = (*CORE_TOKEN_NAMES, *kept, "fold_white_space")
        options = {name: getattr(self, name) for name in names}
        return type(self)(tokenizer_object=self._backend_of("target"), **options)

    @property
    def _tokenizer(self) -> Tokenizer | None:
        """The backend in use: that of the running call, or the one of the current side.

        The source's backend is stored under the same name in `__dict__`, where `datasets` reads it
        to compute fingerprints.
        """
        owner, backend = _backend_of_call.get() or (None, None)
        if owner is self:
            return backend
        if _in_target_mode.get() is self and self._target_tokenizer is not None:
            return self._target_tokenizer
        return self.__dict__.get("_tokenizer")

    @_tokenizer.setter
    def _tokenizer(self, backend: Tokenizer | None) -> None:
        self.__dict__["_tokenizer"] = backend

    def _backend_of(self, side: Side) -> Tokenizer:
        with self._on_side(side):
            return self.backend_tokenizer

    @contextmanager
    def _on_side(self, side: Side | None) -> Iterator[None]:
        """Selects a vocabulary for the current thread; None keeps the current one."""
        current = _in_target_mode.get()
        chosen = {"source": None, "target": self, None: current}[side]
        reset_token = _in_target_mode.set(chosen)
        try:
            yield
        finally:
            _in_target_mode.reset(reset_token)

    @contextmanager
    def _on_backend_of_its_own(self) -> Iterator[None]:
        """Gives the current thread a backend whose options it may set without effect on others.

        The base class sets some on the backend for each call. This backend also leaves out what
        `_fold` marks, and lower-cases sources.
        """
        core = {str(getattr(self, name)) for name in CORE_TOKEN_NAMES}
        # Only the core tokens are special: `encode_special_tokens` would make others text.
        backend = copy_backend(self.backend_tokenizer, core)
        steps: list[Any] = []
        if self.fold_white_space:
            steps.append(normalizers.Replace(_FILLER, ""))
        if self.do_lower_case and _in_target_mode.get() is not self:
            steps += lower_case()
        if steps:
            own = [] if backend.normalizer is None else [backend.normalizer]
            backend.normalizer = normalizers.Sequence([*steps, *own])
        reset_token = _backend_of_call.set((self, backend))
        try:
            yield
        finally:
            _backend_of_call.reset(reset_token)

    def _switch_to_target_mode(self) -> None:
        """Selects the target; the base class calls it before it encodes `text_target`."""
        _in_target_mode.set(self)

    def _switch_to_input_mode(self) -> None:
        """Selects the source; the base class calls it before `text` and after `text_target`."""
        _in_target_mode.set(None)

    def __call__(self, *args: Any, **kwargs: Any) -> BatchEncoding:
        """Encodes `text`, `text_target` or both, with the options of the base class.

        Returns:
            `input_ids` and `attention_mask`, and `labels` if both texts are given. An empty batch
            gives empty lists.

        Raises:
            ValueError: If an entry of a batch is not a text.
        """
        with self._on_side("source"):
            encoded: BatchEncoding = super().__call__(*args, **kwargs)
            return encoded

    def _encode_plus(  # type: ignore[override]  # the base class's options are passed on
        self, text: Any, text_pair: Any = None, *, side: Side | None = None, **kwargs: Any
    ) -> BatchEncoding:
        """Encodes one text or a batch; `encode` and `tokenize` pass `side` on to it."""
        if isinstance(text, (list, tuple)) and not text and not kwargs.get("is_split_into_words"):
            empty: dict[str, list[int]] = {name: [] for name in self.model_input_names}
            return BatchEncoding(empty, tensor_type=kwargs.get("return_tensors"))
        with self._on_side(side), self._on_backend_of_its_own():
            try:
                return super()._encode_plus(self._fold(text), self._fold(text_pair), **kwargs)
            except (TypeError, UnicodeEncodeError) as error:
                raise _explain_text_error(text, error) from error

    def batch_ids(self, texts: list[str], side: Side = "source") -> list[list[int]]:
        """Returns the ids of many texts, as a call without truncation does, in less time."""
        with self._on_side(side), self._on_backend_of_its_own():
            backend = self.backend_tokenizer
            backend.encode_special_tokens = self.split_special_tokens
            try:
                folded = self._fold(texts)
                return [encoding.ids for encoding in backend.encode_batch_fast(folded)]
            except (TypeError, UnicodeEncodeError) as error:
                raise _explain_text_error(texts, error) from error

    def _fold(self, text: Any) -> Any:
        """Marks the white space to leave out in the texts of a nested list; see `_fold_text`."""
        if not self.fold_white_space:
            return text
        backend, is_target = self.backend_tokenizer, _in_target_mode.get() is self

        def fold(text: Any) -> Any:
            if isinstance(text, (list, tuple)):
                return type(text)(map(fold, text))
            return _fold_text(text, is_target, backend) if isinstance(text, str) else text

        return fold(text)

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        *,
        side: Side = "target",
        **kwargs: Any,
    ) -> str | list[str]:
        """Decodes ids to a text, or to one per sequence; `batch_decode` accepts the same options.

        Raises:
            ValueError: If an id is negative: in labels, replace -100 by `pad_token_id` first.
        """
        with self._on_side(side):
            return super().decode(token_ids, skip_special_tokens=skip_special_tokens, **kwargs)

    def _decode(self, token_ids: Any, *args: Any, **kwargs: Any) -> str:
        ids = token_ids["input_ids"] if isinstance(token_ids, dict) else token_ids
        if any(index < 0 for index in ([ids] if isinstance(ids, int) else ids)):
            raise ValueError(
                "token_ids contains a negative id: replace -100 in labels by pad_token_id "
                f"({self.pad_token_id})."
            )
        return super()._decode(token_ids, *args, **kwargs)

    def convert_ids_to_tokens(
        self, ids: int | list[int], skip_special_tokens: bool = False, *, side: Side | None = None
    ) -> str | list[str]:
        """Converts one or more ids to tokens: None for an id outside the vocabulary."""
        with self._on_side(side):
            return super().convert_ids_to_tokens(ids, skip_special_tokens)

    def convert_tokens_to_ids(
        self, tokens: str | list[str], *, side: Side | None = None
    ) -> int | list[int]:
        """Converts one or more tokens to ids; a token outside the vocabulary is `<unk>`."""
        with self._on_side(side):
            return super().convert_tokens_to_ids(tokens)

    def convert_tokens_to_string(self, tokens: list[str], *, side: Side | None = None) -> str:
        """Joins the tokens of one text to that text."""
        with self._on_side(side):
            return super().convert_tokens_to_string(tokens)

    def get_vocab(self, *, side: Side | None = None) -> dict[str, int]:
        """Returns a vocabulary, including added tokens, as a new dictionary from token to id."""
        with self._on_side(side):
            return super().get_vocab()

    def add_tokens(
        self,
        new_tokens: str | AddedToken | Sequence[str | AddedToken],
        special_tokens: bool = False,
        *,
        side: Side | None = None,
    ) -> int:
        """Adds tokens that are recognised as a whole in texts; decoding can skip special ones.

        Returns:
            The number of tokens that were new. Resize the model's embeddings by that number.
        """
        with self._on_side(side):
            return super().add_tokens(new_tokens, special_tokens=special_tokens)

    def add_special_tokens(
        self, special_tokens_dict: dict[str, Any], replace_extra_special_tokens: bool = True
    ) -> int:
        """Adds special tokens by role to the source or shared vocabulary, as `add_tokens` does.

        Raises:
            ValueError: If vocabularies are separate and a new `bos_token`, `pad_token`, `eos_token`
                or `unk_token` has different ids in them.
        """
        for name in CORE_TOKEN_NAMES:
            if name in special_tokens_dict:
                self._check_same_id_on_both_sides(name, str(special_tokens_dict[name]))
        return super().add_special_tokens(special_tokens_dict, replace_extra_special_tokens)

    def add_placeholders(self) -> None:
        """Adds `PLACEHOLDERS` to both sides, and saves that the model learns to copy them."""
        tokens = [AddedToken(token, normalized=False) for token in PLACEHOLDERS]
        for backend in filter(None, (self._backend_of("source"), self._target_tokenizer)):
            backend.add_tokens(tokens)
        self.init_kwargs["placeholders"] = list(PLACEHOLDERS)

    @property
    def placeholders(self) -> tuple[str, ...]:
        """The tokens of `PLACEHOLDERS` that the model has learnt to copy; none of others."""
        return tuple(self.init_kwargs.get("placeholders", ()))

    def train_new_from_iterator(self, *args: Any, **kwargs: Any) -> Self:
        """Trains a new shared vocabulary with the kind and options of this one."""
        if self.separate_vocabularies:
            raise ValueError(
                "train_new_from_iterator trains one vocabulary, but separate_vocabularies=True: "
                "use VanillaTransformerTokenizer.train(source, target, shared=False)."
            )
        new: Self = super().train_new_from_iterator(  # type: ignore[no-untyped-call]  # as __init__
            *args, **kwargs
        )
        new.init_kwargs.pop("training_options", None)  # they describe this tokenizer
        return new

    def update_post_processor(self) -> None:
        """Applies `add_bos_token` and `add_eos_token` to both sides."""
        with self._on_side("source"):
            super().update_post_processor()  # type: ignore[no-untyped-call]  # as __init__
        if self._target_tokenizer is not None:
            self._target_tokenizer.post_processor = self._backend_of("source").post_processor

    def save_vocabulary(  # type: ignore[override]  # the base class declares a single file
        self, save_directory: str | os.PathLike[str], filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Writes the shared vocabulary, or both, into a directory, which must exist."""
        backends = [self._backend_of("source"), self._target_tokenizer]
        paths = []
        for backend, name in zip(backends, self.vocab_files_names.values(), strict=True):
            if backend is not None:
                file_name = f"{filename_prefix}-{name}" if filename_prefix else name
                paths.append(os.path.join(save_directory, file_name))
                backend.save(paths[-1])
        return tuple(paths)

    def _save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        return file_names + self.save_vocabulary(save_directory, filename_prefix)

    @classmethod
    def _from_pretrained(
        cls, resolved_vocab_files: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Loads the files; an error of the base class's own reading is explained by the file."""
        try:
            return super()._from_pretrained(resolved_vocab_files, *args, **kwargs)  # type: ignore[no-untyped-call]  # as __init__
        except (ValueError, TypeError, KeyError, AttributeError):
            for name in ("tokenizer", "target_tokenizer"):
                if (path := resolved_vocab_files.get(f"{name}_file")) is not None:
                    _load_backend(None, path, name, None)
            raise

    @classmethod
    def convert_to_native_format(
        cls, trust_remote_code: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Returns the arguments as they are: `__init__` reads the files itself."""
        return kwargs

    def _copy_sequence_ends_to_target(self) -> None:
        """Reads from the source's backend whether it adds `<s>` and `</s>`; the target follows."""
        ids = self._backend_of("source").post_processor.process(Tokenizer(models.BPE()).encode(""))
        self._add_bos_token = self.bos_token_id in ids.ids
        self._add_eos_token = self.eos_token_id in ids.ids
        if self._target_tokenizer is not None and self._target_tokenizer.post_processor is None:
            self._target_tokenizer.post_processor = self._backend_of("source").post_processor

    def _check_same_id_on_both_sides(self, name: str, token: str) -> None:
        if self._target_tokenizer is None:
            return
        source_id = self._backend_of("source").token_to_id(token)
        target_id = self._target_tokenizer.token_to_id(token)
        if source_id is None or source_id != target_id:
            raise ValueError(
                f"{name}={token!r} has the id {source_id} in the source vocabulary and {target_id} "
                "in the target vocabulary. The model has one id for both sides: use a token that "
                "has the same id in both."
            )


def _load_backend(
    backend: Tokenizer | None, path: str | os.PathLike[str] | None, name: str, folder: Any
) -> Tokenizer:
    """Copies a backend, or reads one from a file of a folder; `name` is that of the arguments."""
    if backend is not None:
        return Tokenizer.from_str(backend.to_str())
    if path is None:
        raise ValueError(f"{folder!r} has no {name}.json: save the tokenizer again.")
    try:
        return Tokenizer.from_str(Path(path).read_text(encoding="utf-8"))
    except OSError:
        raise
    except Exception as error:  # the backend's parser raises bare Exception
        raise ValueError(
            f"{name}_file={os.fspath(path)!r} is not a saved tokenizer ({error}): it may be "
            "truncated. Save or copy it again."
        ) from error


def copy_backend(backend: Tokenizer, special: set[str] | None = None) -> Tokenizer:
    """Copies a backend; the vocabulary and the other parts are shared, not copied.

    Args:
        special: The tokens that stay special. None: all of them.
    """
    copied = Tokenizer(backend.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if (value := getattr(backend, part)) is not None:
            setattr(copied, part, value)
    added = backend.get_added_tokens_decoder()
    for token in added.values():  # copies
        token.special = token.special if special is None else token.content in special
    copied.add_tokens([added[index] for index in sorted(added)])  # each gets its id again
    return copied


def _explain_text_error(batch: object, error: Exception) -> Exception:
    """Returns an error that names the first entry that is not a text; otherwise the given one."""
    texts = batch if isinstance(batch, (list, tuple)) else [batch]
    for index, text in enumerate(texts):
        if text is None or isinstance(text, (int, float)):
            return ValueError(f"Batch entry {index} is {text!r}: every entry must be a text.")
        if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
            return ValueError(
                f"Batch entry {index} contains a lone surrogate, which is not Unicode text: "
                f"{text!r}. Decode the original bytes as UTF-8."
            )
    return error


def _detect_kind(state: dict[str, Any]) -> str | None:
    """Returns the kind of a saved backend, or None if it is not one of `KINDS`."""
    kinds = {
        "BPE Metaspace": "bpe",
        "Unigram Metaspace": "unigram",
        "WordLevel Sequence": "word",
        "WordLevel Fuse": "char",
        "BPE ByteLevel": "byte_bpe",
    }
    return kinds.get(f"{state['model']['type']} {(state['decoder'] or {}).get('type')}")


def puts_space_before(backend: Tokenizer) -> bool:
    """Returns whether a backend puts a space before a text, unless the text begins with one."""
    cut = backend.pre_tokenizer and backend.pre_tokenizer.pre_tokenize_str("a")
    return bool(cut) and cut[0][0] != "a"


def _fold_text(text: str, is_target: bool, backend: Tokenizer | None = None) -> str:
    """Puts `_FILLER` in the place of white space to leave out, and a space for what stays.

    The length stays, so offsets are those of the text. The normaliser cannot do this: it gets what
    stands between two added tokens, and a space after the tag of a language belongs to the text.

    Args:
        backend: If it puts a space before a text, this stands for the last space before the text;
            not before an added token other than the core tokens, which alone are special in it.
    """
    if " ".join(text.split()) == text and not any(sign in text for sign in ZERO_WIDTH):
        return text  # the usual case
    begin, core = len(text) - len(text.lstrip(WHITE_SPACE)), text.strip(WHITE_SPACE)
    lead, tail = _FILLER * begin, _FILLER * (len(text) - begin - len(core))
    if begin and core and backend and puts_space_before(backend):
        added = backend.get_added_tokens_decoder().values()
        if not core.startswith(tuple(token.content for token in added if not token.special)):
            lead = lead[1:] + " "

    def fold(run: re.Match[str]) -> str:
        kept = " " if run.group().strip(ZERO_WIDTH) else _FILLER
        return kept.ljust(len(run.group()), _FILLER)

    return lead + (core if is_target else _SPACES.sub(fold, core)) + tail


def _note_cases(texts: Iterable[str], cases: set[str]) -> Iterator[str]:
    """Yields the texts; adds "capital" where they have capital letters, or else "small"."""
    for text in texts:
        if text != text.lower():
            cases.add("capital")
        elif text != text.upper():
            cases.add("small")
        yield text


def _check_while_reading(texts: Iterable[str], name: str, fold: bool) -> Iterator[str]:
    """Yields the texts; raises if an entry is not a text, or at the end if all are blank."""
    empty = True
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"{name}[{index}] is {text!r}: every entry must be a text.")
        empty = empty and not text.strip()
        yield _fold_text(text, name == "target").replace(_FILLER, "") if fold else text
    if empty:
        raise ValueError(f"{name} contains no text: pass at least one that is not blank.")


def _train_backend(
    texts: Iterable[str],
    kind: str,
    vocab_size: int,
    lowercase: bool,
    min_frequency: int,
    show_progress: bool,
) -> Tokenizer:
    """Trains a backend that adds `</s>` to every sequence."""
    backend = _assemble_backend(kind, lowercase)
    trainer = _make_trainer(kind, vocab_size, min_frequency, show_progress)
    if kind in ("bpe", "unigram", "byte_bpe"):
        texts = (_LONG_WORD.sub(r"\g<0> ", text) for text in texts)
    cause: Exception | None = None
    try:
        backend.train_from_iterator(texts, trainer)
    except Exception as error:  # the unigram trainer raises bare Exception
        if "not large enough" not in str(error):
            raise
        cause = error
    if cause is not None or backend.get_vocab_size() > vocab_size:
        raise ValueError(
            f"vocab_size={vocab_size} is too small for kind {kind!r}: the special tokens and the "
            "different characters of the texts need more ids. Raise vocab_size, clean the texts, "
            "or use kind 'byte_bpe', whose alphabet is the 256 bytes."
        ) from cause
    if kind == "unigram":
        backend = _make_scores_reproducible(backend)
    eos_id = backend.token_to_id(EOS_TOKEN)
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS_TOKEN}",
        pair=f"$A {EOS_TOKEN} $B:1 {EOS_TOKEN}:1",
        special_tokens=[(EOS_TOKEN, eos_id)],
    )
    return backend


def _assemble_backend(kind: str, lowercase: bool) -> Tokenizer:
    """Assembles the untrained backend of a kind.

    No text can be encoded as a special token. `word` puts a word joiner (U+2060) after the first
    bracket of what looks like one, and removes it when it decodes; the other kinds split it at
    least after that bracket.
    """
    normalization: list[Any] = [] if kind == "byte_bpe" else [normalizers.NFC()]
    if kind == "byte_bpe":
        backend = Tokenizer(models.BPE())
        split_words = pre_tokenizers.Split(_WORDS_OF_BYTES, behavior="isolated")
        as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([split_words, as_bytes])
        backend.decoder = decoders.ByteLevel()
    elif kind == "char":
        backend = Tokenizer(models.WordLevel(unk_token=UNK_TOKEN))
        backend.pre_tokenizer = pre_tokenizers.Split(_ANY_CHARACTER, behavior="isolated")
        backend.decoder = decoders.Fuse()
    elif kind == "word":
        backend = Tokenizer(models.WordLevel(unk_token=UNK_TOKEN))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        # The prefix marks words that continue others. No word begins with a space, so none does.
        join_by_spaces = decoders.WordPiece(prefix=" ", cleanup=False)
        unmark = decoders.Replace(_MARKED_BRACKET_OF_SPECIAL_TOKEN, "<")
        backend.decoder = decoders.Sequence([join_by_spaces, unmark])
    else:
        unigram = kind == "unigram"
        model = models.Unigram() if unigram else models.BPE(unk_token=UNK_TOKEN, fuse_unk=True)
        backend = Tokenizer(model)
        spaces: dict[str, Any] = {"replacement": _SPACE, "prepend_scheme": "first"}
        mark_spaces = pre_tokenizers.Metaspace(**spaces, split=False)
        split_words = pre_tokenizers.Split(_WORDS_OR_SIGNS, behavior="isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([mark_spaces, split_words])
        backend.decoder = decoders.Metaspace(**spaces)
    if lowercase:
        normalization += lower_case()
    if kind == "word":  # after the lower case, which turns `</S>` into `</s>`
        mark = normalizers.Replace(_BRACKET_OF_SPECIAL_TOKEN, f"<{_WORD_JOINER}")
        normalization.append(mark)
    if normalization:
        backend.normalizer = normalizers.Sequence(normalization)
    return backend


def lower_case() -> list[normalizers.Normalizer]:
    """Converts each letter to lower case, and the sigma at the end of a Greek word to its form."""
    return [normalizers.Lowercase(), normalizers.Replace(_FINAL_SIGMA, "\u03c2")]


def _make_trainer(
    kind: str, vocab_size: int, min_frequency: int, show_progress: bool
) -> trainers.Trainer:
    common: dict[str, Any] = {
        "vocab_size": vocab_size,
        "special_tokens": list(SPECIAL_TOKENS),
        "show_progress": show_progress,
    }
    if kind == "unigram":
        return trainers.UnigramTrainer(unk_token=UNK_TOKEN, **common)
    common["min_frequency"] = min_frequency
    if kind == "bpe":
        return trainers.BpeTrainer(**common)
    if kind == "byte_bpe":
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        return trainers.BpeTrainer(initial_alphabet=alphabet, **common)
    return trainers.WordLevelTrainer(**common)


def _make_scores_reproducible(backend: Tokenizer) -> Tokenizer:
    """Makes the scores of a unigram model the same for every training on the same texts.

    The trainer has two sources of randomness. It sums in an arbitrary order, which changes scores
    by about 1e-14. It also adds the characters that it did not keep as pieces, with the scores m,
    m + 0.0001, m + 0.0002, ... (m is the lowest score), in the order of a randomly seeded hash map.
    This function rounds all scores, assigns the scores of those characters in the order of their
    code points, and sorts the pieces by score and then by text.
    """
    state = loads(backend.to_str())
    scores = {piece: round(score, _SCORE_DIGITS) for piece, score in state["model"]["vocab"]}
    pieces = {piece: scores[piece] for piece in scores if piece not in SPECIAL_TOKENS}
    step, lowest = 1e-4, min(pieces.values())
    characters = sorted(piece for piece in pieces if len(piece) == 1)
    steps = {round(lowest + step * index, _SCORE_DIGITS) for index in range(len(characters))}
    unkept = [character for character in characters if pieces[character] in steps]
    pieces.update(zip(unkept, sorted(pieces[piece] for piece in unkept), strict=True))
    ordered = sorted(pieces.items(), key=lambda item: (-item[1], item[0]))
    state["model"]["vocab"] = [[token, 0.0] for token in SPECIAL_TOKENS] + ordered
    return Tokenizer.from_str(dumps(state))
