r"""One tokenizer class for a sequence-to-sequence model, with one shared or two separate vocabularies.

The module is flat and stands alone: it is copied beside every saved checkpoint, so that
`AutoTokenizer.from_pretrained(directory, trust_remote_code=True)` works where this package is not
installed. It needs `tokenizers`, `transformers` and the standard library.

Kinds of vocabulary (`VanillaTransformerTokenizer.train(kind=...)`) and what decoding gives back:

| kind | tokens | `decode(encode(text))` |
|---|---|---|
| `bpe` | merged characters (Sennrich et al. 2016); words, runs of signs and spaces are cut first | the text in Unicode form NFC, less one leading space; unseen characters become `<unk>` |
| `unigram` | pieces of a unigram language model (Kudo 2018), cut like `bpe` | as `bpe` |
| `word` | whatever stands between white space; punctuation stays on its word | words joined by single spaces; unseen words become `<unk>` |
| `char` | single code points, the space among them | the text; unseen characters become `<unk>` |
| `byte_bpe` | merged UTF-8 bytes (Radford et al. 2019) | the text, whatever it holds |

`bpe` and `unigram` write a space as U+2581 (`▁`), so a literal U+2581 comes back as a space. A lone
surrogate (`"\ud800"`) is no Unicode text and cannot be encoded by any kind.
"""  # noqa: E501 - a table's row is one line

import os
from collections.abc import Iterable, Iterator
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
"""The tokens with the ids 0, 1, 2 and 3 of every trained vocabulary."""

KINDS = ("bpe", "unigram", "word", "char", "byte_bpe")
"""The kinds of vocabulary that `VanillaTransformerTokenizer.train` makes."""

Side = Literal["source", "target"]
"""Which of the two vocabularies is meant. With a shared vocabulary both are the same."""

_CORE_TOKEN_NAMES = ("bos_token", "pad_token", "eos_token", "unk_token")
_SPACE = "▁"
_WORDS_OR_SIGNS = Regex(
    rf"{_SPACE}?[\p{{L}}\p{{M}}\p{{N}}]+|{_SPACE}?[^{_SPACE}\p{{L}}\p{{M}}\p{{N}}]+|{_SPACE}"
)
_ANY_CHARACTER = Regex(r"[\s\S]")
_BRACKET_OF_SPECIAL_TOKEN = Regex(r"<(?=(?:/?s|pad|unk)>)")
_SCORE_DIGITS = 6

_in_target_mode: ContextVar["VanillaTransformerTokenizer | None"] = ContextVar(
    "vanilla_transformer_tokenizer_in_target_mode", default=None
)


class VanillaTransformerTokenizer(TokenizersBackend):
    r"""Encodes sources and targets, and decodes what a model generates.

    `tokenizer(text)` encodes with the source vocabulary, `tokenizer(text, text_target=...)` adds
    `labels` encoded with the target vocabulary, `tokenizer(text_target=...)` encodes targets alone.
    Every sequence ends in `</s>`, also when truncated; none begins with `<s>`, because the model
    shifts the labels and starts its decoder with `<s>` itself. `decode` and `batch_decode` read
    **target** ids (what a model generates, and labels) unless told `side="source"`. `len()`,
    `vocab_size`, `get_vocab` and the conversions between ids and tokens mean the **source** unless
    told `side="target"`; `target_vocab_size` is the number of target ids. With a shared vocabulary
    the two sides are one.

    Text is text: `"</s>"` inside a text is encoded as the characters it is made of and never as
    the end of the sequence (`split_special_tokens=True`; pass `split_special_tokens=False` to a
    call, or set the attribute, to have special tokens recognised). Tags that shall be recognised
    in texts, such as `<2de>`, are added with `add_tokens`, not as special tokens.

    Files: `tokenizer.json` (the source or shared vocabulary), `target_tokenizer.json` (only with
    separate vocabularies), `tokenizer_config.json` and this module.

    Args:
        separate_vocabularies: Whether the target has its own vocabulary. None: whether a target
            backend is given. False ignores the target backend.
        **kwargs: `tokenizer_object`, a `tokenizers.Tokenizer` that is copied, or `tokenizer_file`,
            the path of a saved one: the backend of the source, or of both sides;
            `target_tokenizer_object` or `target_tokenizer_file`: that of the target; and what
            `transformers.TokenizersBackend` takes, e.g. `model_max_length` (tokens),
            `padding_side`, `truncation_side`. `bos_token`, `pad_token`, `eos_token` and
            `unk_token` default to `<s>`, `<pad>`, `</s>`, `<unk>`.

    Raises:
        ValueError: No backend is given, a file is not a saved backend, or one of the four special
            tokens does not have the same id in both vocabularies.
    """

    vocab_files_names = {  # noqa: RUF012 - a class attribute by the contract of the base class
        "tokenizer_file": "tokenizer.json",
        "target_tokenizer_file": "target_tokenizer.json",
    }
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012 - as above
    _auto_class = "AutoTokenizer"
    _target_tokenizer: Tokenizer | None = None

    def __init__(self, *, separate_vocabularies: bool | None = None, **kwargs: Any) -> None:
        target_object = kwargs.pop("target_tokenizer_object", None)
        target_file = kwargs.pop("target_tokenizer_file", None)
        separate = separate_vocabularies
        if separate is None:
            separate = target_object is not None or target_file is not None
        if separate:
            self._target_tokenizer = _backend(target_object, target_file, "target_tokenizer")
        source_file = kwargs.pop("tokenizer_file", None)
        source = _backend(kwargs.pop("tokenizer_object", None), source_file, "tokenizer")
        if source.post_processor is None:
            kwargs.setdefault("add_eos_token", True)
        for name, token in zip(_CORE_TOKEN_NAMES, SPECIAL_TOKENS, strict=True):
            kwargs.setdefault(name, token)
        kwargs.setdefault("split_special_tokens", True)
        # Only what is among the arguments is saved, so these two are put there.
        kwargs.setdefault("padding_side", self.padding_side)
        kwargs.setdefault("truncation_side", self.truncation_side)
        super().__init__(  # type: ignore[no-untyped-call]  # the base class is not typed
            tokenizer_object=source, separate_vocabularies=separate, **kwargs
        )
        self._agree_on_ends_of_sequences()
        self._agree_on_special_tokens()

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
        show_progress: bool = False,
    ) -> Self:
        """Learns the vocabulary, or the two vocabularies, from texts.

        The same texts in the same order give the same vocabulary. Texts are read once, as a
        stream: generators are welcome.

        Args:
            source: Source texts.
            target: Target texts; None, with a shared vocabulary, to learn it from `source` alone.
            kind: One of `KINDS` (the module's table says what each does), of the source or shared
                vocabulary.
            target_kind: The same for a separate target vocabulary. None: like `kind`.
            vocab_size: Ids of the source or shared vocabulary at most, the four special tokens
                included. There are fewer when the texts hold no more.
            target_vocab_size: The same for a separate target vocabulary. None: like `vocab_size`.
            shared: Whether both sides use one vocabulary learnt from `source` and `target`
                together (section 5.1 of the paper), or each side its own.
            lowercase: Whether both sides are lower-cased, in training and in use.
            min_frequency: How often a token (`word`, `char`) or a pair of tokens to be merged
                (`bpe`, `byte_bpe`) must occur. `unigram` has no such limit.
            model_max_length: Tokens, `</s>` included, to which `truncation=True` cuts. None: no
                limit.
            show_progress: Whether to draw progress bars.

        Returns:
            The trained tokenizer.

        Raises:
            ValueError: A kind is unknown; a size is too small for what its kind needs (the special
                tokens; the 256 bytes; every character of the texts for `bpe` and `unigram`); the
                texts are empty, a single string or not strings; `target` is missing with
                `shared=False`; a target option is given with `shared=True`; `min_frequency` or
                `model_max_length` is below 1; `min_frequency` is given where it has no effect.
        """
        _check_sides(target, target_kind, target_vocab_size, shared)
        kinds = (kind,) if shared else (kind, target_kind or kind)
        sizes = (vocab_size, target_vocab_size or vocab_size)
        for side_kind, size, name in zip(kinds, sizes, ("", "target_"), strict=False):
            _check_kind_and_size(side_kind, size, name)
        _check_limits(kinds, min_frequency, model_max_length)
        corpora = [_checked_texts(source, "source")]
        if target is not None:
            corpora.append(_checked_texts(target, "target"))
        if shared:
            corpora = [chain(*corpora)]
        backends = [
            _train_backend(texts, side_kind, size, lowercase, min_frequency, show_progress)
            for texts, side_kind, size in zip(corpora, kinds, sizes, strict=False)
        ]
        names = ("tokenizer_object", "target_tokenizer_object")
        named: dict[str, Any] = dict(zip(names, backends, strict=False))
        record = _record(kinds, sizes, shared=shared, lowercase=lowercase)
        return cls(**named, model_max_length=model_max_length, training_options=record)

    @property
    def separate_vocabularies(self) -> bool:
        """Whether source and target have a vocabulary each."""
        return self._target_tokenizer is not None

    @property
    def training_options(self) -> dict[str, Any]:
        """How the vocabularies were trained: options of `train`, by name.

        What is not known is not there: the sizes asked for, where a tokenizer was saved without
        this record; the kind of a vocabulary that was made by other means.
        """
        if recorded := self.init_kwargs.get("training_options"):
            return dict(recorded)
        backends = [self._backend_of("source"), self._target_tokenizer]
        states = [loads(backend.to_str()) for backend in backends if backend is not None]
        options = {
            "kind": _kind_of(states[0]),
            "target_kind": _kind_of(states[-1]),
            "shared": not self.separate_vocabularies,
            "lowercase": '"Lowercase"' in dumps(states[0]["normalizer"]),
        }
        return {name: value for name, value in options.items() if value is not None}

    @property
    def target_vocab_size(self) -> int:
        """Number of target ids, added tokens included: the model's `decoder_vocab_size`.

        `len(tokenizer)` is the same number for the source.
        """
        return self._backend_of("target").get_vocab_size(with_added_tokens=True)

    def target_alone(self) -> Self:
        """Makes a tokenizer with the target's vocabulary for both sides.

        It is for what knows one vocabulary and is to see the target's: `stop_strings` of
        `generate`, streamers, constraints.

        Returns:
            A new tokenizer; this one if there is one vocabulary.
        """
        if not self.separate_vocabularies:
            return self
        names = {name: getattr(self, name) for name in _CORE_TOKEN_NAMES}
        return type(self)(tokenizer_object=self._backend_of("target"), **names)

    @property
    def _tokenizer(self) -> Tokenizer | None:
        """The backend in use: the source's, or in target mode the target's.

        The source's is kept under the same name in `__dict__`, where `datasets` looks for it to
        compute fingerprints.
        """
        if _in_target_mode.get() is self and self._target_tokenizer is not None:
            return self._target_tokenizer
        return self.__dict__.get("_tokenizer")

    @_tokenizer.setter
    def _tokenizer(self, backend: Any) -> None:
        self.__dict__["_tokenizer"] = backend

    def _backend_of(self, side: Side) -> Tokenizer:
        with self._on_side(side):
            return self.backend_tokenizer

    @contextmanager
    def _on_side(self, side: Side | None) -> Iterator[None]:
        """Sets the vocabulary for the running thread; None leaves it as it is."""
        if side not in ("source", "target", None):
            raise ValueError(f"side={side!r} is unknown: use 'source' or 'target'.")
        current = _in_target_mode.get()
        chosen = {"source": None, "target": self, None: current}[side]
        reset_token = _in_target_mode.set(chosen)
        try:
            yield
        finally:
            _in_target_mode.reset(reset_token)

    def _switch_to_target_mode(self) -> None:
        """Called by the base class before it encodes `text_target`."""
        _in_target_mode.set(self)

    def _switch_to_input_mode(self) -> None:
        """Called by the base class before it encodes `text` and after `text_target`."""
        _in_target_mode.set(None)

    def __call__(self, *args: Any, **kwargs: Any) -> BatchEncoding:
        """Encodes `text`, `text_target` or both; see `PreTrainedTokenizerBase.__call__`.

        Args:
            *args: `text`, `text_pair`, `text_target`, `text_pair_target`, ...
            **kwargs: The same by name, and the base class's options (`padding`, `truncation`,
                `max_length`, `max_target_length`, `return_tensors`, ...).

        Returns:
            `input_ids` and `attention_mask` of the text, and `labels` where both are given. An
            empty batch gives empty lists.

        Raises:
            ValueError: `side` is given (the names of the arguments say the side here), an entry of
                a batch is not a text, or an empty batch shall become tensors.
        """
        if "side" in kwargs:
            raise ValueError(
                f"side={kwargs['side']!r}: a call takes no side; pass sources as `text` and "
                "targets as `text_target`."
            )
        with self._on_side("source"):
            encoded: BatchEncoding = super().__call__(*args, **kwargs)
            return encoded

    def _encode_plus(  # type: ignore[override]  # the base's options are passed on as they come
        self, text: Any, text_pair: Any = None, *, side: Side | None = None, **kwargs: Any
    ) -> BatchEncoding:
        """Encodes one text or a batch; `encode` and `tokenize` pass `side` on to here."""
        if isinstance(text, (list, tuple)) and not text and not kwargs.get("is_split_into_words"):
            return self._empty_batch(kwargs.get("return_tensors"))
        with self._on_side(side):
            backend = self.backend_tokenizer
            try:
                return super()._encode_plus(text, text_pair, **kwargs)
            except (TypeError, UnicodeEncodeError) as error:
                raise _bad_text_error(text, error) from error
            finally:
                # What one call asked for shall neither be saved nor change a fingerprint.
                backend.no_truncation()
                backend.no_padding()

    def _empty_batch(self, return_tensors: str | None) -> BatchEncoding:
        if return_tensors is not None:
            raise ValueError(
                f"The batch is empty: no tensor can be made of it (return_tensors="
                f"{return_tensors!r}). Pass at least one text."
            )
        return BatchEncoding({name: [] for name in self.model_input_names})

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        *,
        side: Side = "target",
        **kwargs: Any,
    ) -> str | list[str]:
        """Turns ids into text; `batch_decode` takes the same options.

        Args:
            token_ids: One id, a sequence of ids or a batch of sequences; lists, arrays or tensors.
            skip_special_tokens: Whether to leave out special tokens, `<unk>` among them.
            side: Whose ids they are: "target" (what the model generates, and labels) or "source".
            **kwargs: `clean_up_tokenization_spaces` of the base class.

        Returns:
            One text, or one for each sequence of a batch.

        Raises:
            ValueError: An id is negative (labels mask with -100: replace it by `pad_token_id`
                first) or not in the vocabulary of this side, or `side` is unknown.
        """
        with self._on_side(side):
            return super().decode(token_ids, skip_special_tokens=skip_special_tokens, **kwargs)

    def _decode(self, token_ids: Any, *args: Any, **kwargs: Any) -> str:
        ids = token_ids["input_ids"] if isinstance(token_ids, dict) else token_ids
        self._check_ids([ids] if isinstance(ids, int) else ids)
        return super()._decode(token_ids, *args, **kwargs)

    def _check_ids(self, ids: list[int]) -> None:
        size, backend = len(self), self.backend_tokenizer
        for index in ids:
            if index < 0:
                raise ValueError(
                    f"token_ids holds {index}, which is no id. Labels are masked with -100: "
                    f"replace negative ids by pad_token_id ({self.pad_token_id}) before decoding."
                )
            if index >= size and backend.id_to_token(index) is None:
                side = "target" if _in_target_mode.get() is self else "source"
                raise ValueError(
                    f"token_ids holds {index}, but the {side} vocabulary has the ids 0 to "
                    f"{size - 1}. Decode with the tokenizer the model was trained with, and "
                    "sources with side='source'."
                )

    def convert_ids_to_tokens(
        self,
        ids: int | list[int],
        skip_special_tokens: bool = False,
        *,
        side: Side | None = None,
    ) -> str | list[str]:
        """Looks up the tokens of ids.

        Args:
            ids: One id or several.
            skip_special_tokens: Whether to leave out special tokens.
            side: "target" for the target vocabulary; by default the source's.

        Returns:
            One token or several; None stands for an id outside the vocabulary.

        Raises:
            ValueError: `side` is unknown.
        """
        with self._on_side(side):
            return super().convert_ids_to_tokens(ids, skip_special_tokens)

    def convert_tokens_to_ids(
        self, tokens: str | list[str], *, side: Side | None = None
    ) -> int | list[int]:
        """Looks up the ids of tokens.

        Args:
            tokens: One token or several.
            side: "target" for the target vocabulary; by default the source's.

        Returns:
            One id or several; the id of `<unk>` for a token outside the vocabulary.

        Raises:
            ValueError: `side` is unknown.
        """
        with self._on_side(side):
            return super().convert_tokens_to_ids(tokens)

    def convert_tokens_to_string(self, tokens: list[str], *, side: Side | None = None) -> str:
        """Joins tokens to a text.

        Args:
            tokens: Tokens of one text.
            side: "target" for tokens of the target vocabulary; by default the source's.

        Returns:
            The text.

        Raises:
            ValueError: `side` is unknown.
        """
        with self._on_side(side):
            return super().convert_tokens_to_string(tokens)

    def get_vocab(self, *, side: Side | None = None) -> dict[str, int]:
        """Gives every token with its id, added tokens included.

        Args:
            side: "target" for the target vocabulary; by default the source's.

        Returns:
            A new dictionary from token to id.

        Raises:
            ValueError: `side` is unknown.
        """
        with self._on_side(side):
            return super().get_vocab()

    def add_tokens(
        self, new_tokens: Any, special_tokens: bool = False, *, side: Side | None = None
    ) -> int:
        """Adds tokens that are recognised whole in texts.

        Args:
            new_tokens: A token or several, as strings or `tokenizers.AddedToken`.
            special_tokens: Whether decoding may skip them. Special tokens are recognised in texts
                only with `split_special_tokens=False`.
            side: "target" for the target vocabulary; by default the source's. A shared vocabulary
                is extended for both.

        Returns:
            How many of them were new. Resize the model's embeddings by as many.

        Raises:
            ValueError: `side` is unknown.
        """
        with self._on_side(side):
            return super().add_tokens(new_tokens, special_tokens=special_tokens)

    def add_special_tokens(
        self,
        special_tokens_dict: dict[str, Any],
        replace_extra_special_tokens: bool = True,
    ) -> int:
        """Adds special tokens to the source or shared vocabulary.

        Args:
            special_tokens_dict: Tokens by role (`mask_token`, `extra_special_tokens`, ...).
            replace_extra_special_tokens: Whether earlier extra special tokens lose their role.

        Returns:
            How many of them were new. Resize the model's embeddings by as many.

        Raises:
            ValueError: With separate vocabularies, `bos_token`, `pad_token`, `eos_token` or
                `unk_token` would get a token that does not have the same id on both sides.
        """
        for name in _CORE_TOKEN_NAMES:
            if name in special_tokens_dict:
                self._check_same_id_on_both_sides(name, str(special_tokens_dict[name]))
        return super().add_special_tokens(special_tokens_dict, replace_extra_special_tokens)

    def train_new_from_iterator(self, *args: Any, **kwargs: Any) -> Self:
        """Learns a new shared vocabulary with the pipeline of this one.

        Args:
            *args: See `TokenizersBackend.train_new_from_iterator`.
            **kwargs: As above.

        Returns:
            A new tokenizer.

        Raises:
            ValueError: This tokenizer has separate vocabularies.
        """
        if self.separate_vocabularies:
            raise ValueError(
                "train_new_from_iterator learns one vocabulary, but separate_vocabularies=True: "
                "use VanillaTransformerTokenizer.train(source, target, shared=False)."
            )
        new: Self = super().train_new_from_iterator(  # type: ignore[no-untyped-call]  # as __init__
            *args, **kwargs
        )
        new.init_kwargs.pop("training_options", None)  # those of this one
        return new

    def update_post_processor(self) -> None:
        """Puts `add_bos_token` and `add_eos_token` into effect on both sides."""
        with self._on_side("source"):
            super().update_post_processor()  # type: ignore[no-untyped-call]  # as __init__
        if self._target_tokenizer is not None:
            self._target_tokenizer.post_processor = self._backend_of("source").post_processor

    def save_vocabulary(  # type: ignore[override]  # the base promises one file, not one or two
        self, save_directory: str | os.PathLike[str], filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Writes the vocabulary, or both.

        Args:
            save_directory: An existing directory.
            filename_prefix: Put before the names of the files, with a hyphen.

        Returns:
            The paths written.

        Raises:
            FileNotFoundError: The directory does not exist.
        """
        if not os.path.isdir(save_directory):
            raise FileNotFoundError(f"save_directory={os.fspath(save_directory)!r}: no directory.")
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
    def convert_to_native_format(
        cls, trust_remote_code: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Called by `from_pretrained`: checks the files and leaves their reading to `__init__`.

        Args:
            trust_remote_code: Not used.
            **kwargs: Arguments of `__init__`.

        Returns:
            The arguments as they came.

        Raises:
            FileNotFoundError: `tokenizer.json` is missing, or `target_tokenizer.json` where
                `tokenizer_config.json` says that the vocabularies are separate.
        """
        needed = ["tokenizer_file"]
        if kwargs.get("separate_vocabularies"):
            needed.append("target_tokenizer_file")
        for argument in needed:
            if kwargs.get(argument) is None:
                raise FileNotFoundError(
                    f"{kwargs.get('name_or_path')!r} holds no {cls.vocab_files_names[argument]}, "
                    f"which its tokenizer needs (separate_vocabularies="
                    f"{bool(kwargs.get('separate_vocabularies'))}): save the tokenizer there again."
                )
        return kwargs

    def _agree_on_ends_of_sequences(self) -> None:
        """Reads from the source's backend what it adds, and has the target's add the same."""
        ids = self._backend_of("source").post_processor.process(Tokenizer(models.BPE()).encode(""))
        self._add_bos_token = self.bos_token_id in ids.ids
        self._add_eos_token = self.eos_token_id in ids.ids
        if self._target_tokenizer is not None and self._target_tokenizer.post_processor is None:
            self._target_tokenizer.post_processor = self._backend_of("source").post_processor

    def _agree_on_special_tokens(self) -> None:
        if self._target_tokenizer is None:
            return
        for name in _CORE_TOKEN_NAMES:
            token = getattr(self, name)
            self._check_same_id_on_both_sides(name, token)
            self._target_tokenizer.add_special_tokens([AddedToken(token, special=True)])

    def _check_same_id_on_both_sides(self, name: str, token: str) -> None:
        if self._target_tokenizer is None:
            return
        source_id = self._backend_of("source").token_to_id(token)
        target_id = self._target_tokenizer.token_to_id(token)
        if source_id is None or source_id != target_id:
            raise ValueError(
                f"{name}={token!r} has the id {source_id} in the source vocabulary and {target_id} "
                "in the target vocabulary. The model knows one id for both: use a token that has "
                "the same id in both."
            )


def _backend(
    backend: Tokenizer | None, path: str | os.PathLike[str] | None, name: str
) -> Tokenizer:
    if backend is not None:
        return Tokenizer.from_str(backend.to_str())
    if path is None:
        raise ValueError(
            f"{name}_object and {name}_file are both missing: give one of them, or make a "
            "tokenizer with VanillaTransformerTokenizer.train or from_pretrained."
        )
    try:
        return Tokenizer.from_str(Path(path).read_text(encoding="utf-8"))
    except OSError:
        raise
    except Exception as error:  # the backend's parser raises bare Exception
        raise ValueError(
            f"{name}_file={os.fspath(path)!r} is not a saved tokenizer ({error}): it may be cut "
            "short; save or copy it again."
        ) from error


def _bad_text_error(batch: Any, error: Exception) -> Exception:
    texts = batch if isinstance(batch, (list, tuple)) else [batch]
    for index, text in enumerate(texts):
        if text is None or isinstance(text, (int, float)):
            return ValueError(f"The batch's entry {index} is {text!r}: every entry must be a text.")
        if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
            return ValueError(
                f"The batch's entry {index} holds a lone surrogate, which is not Unicode text: "
                f"{text!r}. Decode the bytes it came from as UTF-8."
            )
    return error


def _check_sides(
    target: Any, target_kind: str | None, target_vocab_size: int | None, shared: bool
) -> None:
    if not shared and target is None:
        raise ValueError(
            "target=None with shared=False: pass target texts, or shared=True for one vocabulary."
        )
    for name, value in (("target_kind", target_kind), ("target_vocab_size", target_vocab_size)):
        if shared and value is not None:
            raise ValueError(
                f"{name}={value!r} has no effect with shared=True: pass shared=False, or leave "
                f"{name} out."
            )


def _record(
    kinds: tuple[str, ...], sizes: tuple[int, int], *, shared: bool, lowercase: bool
) -> dict[str, Any]:
    return {
        "kind": kinds[0],
        "target_kind": kinds[-1],
        "vocab_size": sizes[0],
        "target_vocab_size": sizes[1],
        "shared": shared,
        "lowercase": lowercase,
    }


def _kind_of(state: dict[str, Any]) -> str | None:
    """Tells the kind of a saved backend by its parts; None: it is of no kind here."""
    parts = (state["model"]["type"], (state["decoder"] or {}).get("type"))
    return {
        ("BPE", "Metaspace"): "bpe",
        ("Unigram", "Metaspace"): "unigram",
        ("WordLevel", None): "word",
        ("WordLevel", "Fuse"): "char",
        ("BPE", "ByteLevel"): "byte_bpe",
    }.get(parts)


def _check_kind_and_size(kind: str, vocab_size: int, name: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"{name}kind={kind!r} is unknown: use one of {', '.join(KINDS)}.")
    smallest = len(SPECIAL_TOKENS) + (256 if kind == "byte_bpe" else 1)
    if vocab_size < smallest:
        raise ValueError(
            f"{name}vocab_size={vocab_size} is too small: kind {kind!r} needs {smallest} or more "
            f"({len(SPECIAL_TOKENS)} special tokens and its alphabet)."
        )


def _check_limits(kinds: tuple[str, ...], min_frequency: int, model_max_length: int | None) -> None:
    if min_frequency < 1:
        raise ValueError(f"min_frequency={min_frequency}: it must be 1 or more.")
    if min_frequency > 1 and set(kinds) == {"unigram"}:
        raise ValueError(
            f"min_frequency={min_frequency} has no effect on kind 'unigram': leave it out, and "
            "choose vocab_size instead."
        )
    if model_max_length is not None and model_max_length < 1:
        raise ValueError(f"model_max_length={model_max_length}: it must be 1 or more, or None.")


def _checked_texts(texts: Iterable[str], name: str) -> Iterator[str]:
    if isinstance(texts, str):
        raise ValueError(f"{name} is a single string: pass a list or another iterable of texts.")
    return _stream_of_texts(texts, name)


def _stream_of_texts(texts: Iterable[str], name: str) -> Iterator[str]:
    empty = True
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"{name}[{index}] is {text!r}: every entry must be a text.")
        empty = empty and not text.strip()
        yield text
    if empty:
        raise ValueError(f"{name} holds no text: pass at least one that is not blank.")


def _train_backend(
    texts: Iterable[str],
    kind: str,
    vocab_size: int,
    lowercase: bool,
    min_frequency: int,
    show_progress: bool,
) -> Tokenizer:
    backend = _untrained_backend(kind, lowercase)
    trainer = _trainer(kind, vocab_size, min_frequency, show_progress)
    try:
        backend.train_from_iterator(texts, trainer)
    except Exception as error:  # the unigram trainer raises bare Exception
        if "not large enough" not in str(error):
            raise
        raise _alphabet_error(kind, vocab_size) from error
    if backend.get_vocab_size() > vocab_size:
        raise _alphabet_error(kind, vocab_size)
    if kind == "unigram":
        backend = _with_reproducible_scores(backend)
    eos_id = backend.token_to_id(EOS_TOKEN)
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS_TOKEN}",
        pair=f"$A {EOS_TOKEN} $B:1 {EOS_TOKEN}:1",
        special_tokens=[(EOS_TOKEN, eos_id)],
    )
    return backend


def _alphabet_error(kind: str, vocab_size: int) -> ValueError:
    return ValueError(
        f"vocab_size={vocab_size} is too small for kind {kind!r}: the special tokens and the "
        "different characters of the texts alone are more. Raise vocab_size, clean the texts, or "
        "use kind 'byte_bpe', whose alphabet is the 256 bytes."
    )


def _untrained_backend(kind: str, lowercase: bool) -> Tokenizer:
    """Assembles a kind's pipeline.

    No pipeline lets a text reach a special token's entry in the vocabulary: `</s>` is cut at least
    after its first bracket.
    """
    backend = Tokenizer(_model(kind))
    backend.pre_tokenizer = _pre_tokenizer(kind)
    if kind in ("bpe", "unigram"):
        backend.decoder = decoders.Metaspace(replacement=_SPACE, prepend_scheme="first")
    elif kind == "char":
        backend.decoder = decoders.Fuse()
    elif kind == "byte_bpe":
        backend.decoder = decoders.ByteLevel()
    steps: list[normalizers.Normalizer] = [normalizers.NFC()] if kind in ("bpe", "unigram") else []
    if lowercase:
        steps.append(normalizers.Lowercase())
    if steps:
        backend.normalizer = normalizers.Sequence(steps)
    return backend


def _model(kind: str) -> models.Model:
    if kind == "bpe":
        return models.BPE(unk_token=UNK_TOKEN, fuse_unk=True)
    if kind == "byte_bpe":
        return models.BPE()
    if kind == "unigram":
        return models.Unigram()
    return models.WordLevel(unk_token=UNK_TOKEN)


def _pre_tokenizer(kind: str) -> pre_tokenizers.PreTokenizer:
    if kind == "byte_bpe":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if kind == "char":
        return pre_tokenizers.Split(_ANY_CHARACTER, behavior="isolated")
    if kind == "word":
        steps = [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Split(_BRACKET_OF_SPECIAL_TOKEN, behavior="isolated"),
        ]
    else:
        steps = [
            pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme="first", split=False),
            pre_tokenizers.Split(_WORDS_OR_SIGNS, behavior="isolated"),
        ]
    return pre_tokenizers.Sequence(steps)


def _trainer(
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


def _with_reproducible_scores(backend: Tokenizer) -> Tokenizer:
    """Removes what differs between two trainings of a unigram model on the same texts.

    The trainer sums in any order (differences near 1e-14), and gives the characters that it did
    not keep as pieces the scores m, m + 0.0001, m + 0.0002, ... (m the lowest score) in the order
    of a randomly seeded hash map. Scores are rounded, those characters get theirs in the order of
    their code points, and pieces are sorted by score and then by text.
    """
    state = loads(backend.to_str())
    scores = {piece: round(score, _SCORE_DIGITS) for piece, score in state["model"]["vocab"]}
    pieces = {piece: scores[piece] for piece in scores if piece not in SPECIAL_TOKENS}
    step, lowest = 1e-4, min(pieces.values())
    characters = sorted(piece for piece in pieces if len(piece) == 1)
    ladder = {round(lowest + step * rung, _SCORE_DIGITS) for rung in range(len(characters))}
    moved = [character for character in characters if pieces[character] in ladder]
    pieces.update(zip(moved, sorted(pieces[piece] for piece in moved), strict=True))
    ordered = sorted(pieces.items(), key=lambda item: (-item[1], item[0]))
    state["model"]["vocab"] = [[token, 0.0] for token in SPECIAL_TOKENS] + ordered
    return Tokenizer.from_str(dumps(state))
