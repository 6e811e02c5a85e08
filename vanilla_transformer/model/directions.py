"""From one language to another: what a model reads before a source, and begins a target with.

Models of many languages are of two kinds. The tokenizers of NLLB, M2M100 and mBART put the token
of a language beside each text, and a target begins with that of its own. Others read a tag before
each source, such as `<2de>` (Johnson et al. 2017, https://arxiv.org/abs/1611.04558).
`Direction.resolve` alone tells them apart. Nothing here changes a tokenizer.
"""

import re
from collections.abc import Callable, Collection, Iterable
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Any, Self

from .tokenization_vanilla_transformer import (
    MEMORY_TOKEN,
    SPECIAL_TOKENS,
    TERM_TOKENS,
    copy_backend,
)

Row = tuple[str | None, str, str]
"""Source and target language of a direction, and the tag that its sources begin with; "": none."""

FirstTokens = tuple[tuple[str, int], ...]
"""Settings of `generate()`, by name, for the token before a target or the one that begins it."""

_LANGUAGE_TOKEN = re.compile(r"__(\w+)__|([a-z]{2,3}_[A-Za-z]{2,4})")
_RECORD, _OTHER_TAGS = "directions", "other_tags"


def with_first_token(settings: Any, begin: FirstTokens) -> Any:
    """Returns settings of `generate()` whose targets begin with these tokens."""
    if all(getattr(settings, name) == token for name, token in begin):
        return settings
    changed = deepcopy(settings)
    for name, token in begin:
        setattr(changed, name, token)
    return changed


def language_tokens(tokenizer: Any) -> dict[str, int]:
    """Returns the id of each language's token by its code; empty for tokenizers without these."""
    if not hasattr(tokenizer, "set_src_lang_special_tokens"):
        return {}
    tokens = tokenizer.get_added_vocab().items()
    matches = ((_LANGUAGE_TOKEN.fullmatch(token), index) for token, index in tokens)
    return {match[1] or match[2]: index for match, index in matches if match}


def in_language(tokenizer: Any, language: str | None) -> Any:
    """Returns a tokenizer that puts the token of a language beside sources and targets.

    It shares the vocabulary with the given one, which stays as it is.

    Args:
        language: Code of a language. None: that of the tokenizer's targets, or else of its sources.
    """
    tokens = language_tokens(tokenizer)
    if not tokens:
        return tokenizer
    language = language or tokenizer.tgt_lang or tokenizer.src_lang
    view = copy(tokenizer)
    if tokenizer.is_fast:
        view._tokenizer = copy_backend(tokenizer.backend_tokenizer)
    else:  # that of M2M100 knows a fixed list of languages: some may have been added
        names = {index: token for token, index in tokenizer.get_added_vocab().items()}
        view.lang_code_to_token = {code: names[index] for code, index in tokens.items()}
        view.lang_token_to_id = {names[index]: index for index in tokens.values()}
    view.src_lang = view.tgt_lang = language
    return view


def language_prompts(tokenizer: Any, start: int, labels: Any) -> dict[str, Any]:
    """Returns what lets `generate()` begin each target with the language of its labels.

    It is nothing where labels begin with no language.

    Args:
        start: The token that targets start with.
        labels: Token ids of shape (batch, target_len).
    """
    if not {*labels[:, 0].tolist()} <= {*language_tokens(tokenizer).values()}:
        return {}
    prompts = labels[:, :1].repeat(1, 2)  # (batch, 2): the start and the language
    prompts[:, 0] = start
    return {"decoder_input_ids": prompts}


def recorded_directions(tokenizer: Any) -> list[Row]:
    """Returns the directions that a training has recorded, or that tags of Marian name."""
    if rows := tokenizer.init_kwargs.get(_RECORD):
        return [(source, target, tag) for source, target, tag in rows]
    codes = getattr(tokenizer, "supported_language_codes", [])  # of Marian, such as >>deu<<
    return [(None, code.strip("<>"), code) for code in codes] if len(codes) > 1 else []


def record_directions(tokenizer: Any, rows: Collection[Row], tags: Iterable[str] = ()) -> None:
    """Saves with a tokenizer which directions its model learns, unless it has them already.

    Of several rows of a direction, one without a tag counts: others mark a kind of text. A row
    without a source is left out where a known direction has its target, and each row of a target
    whose tag is known for any source.

    Args:
        tags: Further words that begin sources.
    """
    if language_tokens(tokenizer):
        return
    record = tokenizer.init_kwargs
    saved = recorded_directions(tokenizer)
    targets = {target for _, target, _ in saved}
    of_any_source = {target for source, target, tag in saved if tag and source is None}
    new = [row for row in rows if row[1] not in (of_any_source if row[0] else targets)]
    plain_last = sorted(new, key=lambda row: not row[2])
    known = {(source, target): tag for source, target, tag in (*plain_last, *saved)}
    if known:
        record[_RECORD] = [[*languages, tag] for languages, tag in known.items()]
        others = {*tags, *(tag for *_, tag in rows), *record.get(_OTHER_TAGS, [])}
        if others := others - {*known.values(), ""}:
            record[_OTHER_TAGS] = sorted(others)


def keep_targets(tokenizer: Any, targets: Collection[str]) -> None:
    """Drops the recorded directions of other targets, which a new model does not learn."""
    record = tokenizer.init_kwargs
    record[_RECORD] = [row for row in record.get(_RECORD, []) if row[1] in targets]


def tags_of_sources(tokenizer: Any) -> set[str]:
    """Returns the words that may begin a source to say what the target shall be.

    They are recorded with the directions; where there are none of these, any may be such a word.
    """
    if rows := recorded_directions(tokenizer):
        return {*(tag for *_, tag in rows), *tokenizer.init_kwargs.get(_OTHER_TAGS, [])} - {""}
    return possible_tags(tokenizer)


def possible_tags(tokenizer: Any) -> set[str]:
    """Returns the added tokens that a training may put before its sources."""
    if language_tokens(tokenizer):
        return set()
    codes = getattr(tokenizer, "supported_language_codes", [])
    special = {*SPECIAL_TOKENS, *map(str, tokenizer.special_tokens_map.values())}
    special |= {*TERM_TOKENS, MEMORY_TOKEN, *getattr(tokenizer, "placeholders", ())}
    return {*tokenizer.get_added_vocab(), *codes} - special


def languages_of_model(tokenizer: Any) -> tuple[list[str], list[str]]:
    """Returns the languages of sources and those of targets; empty: the model records none."""
    tokens, rows = [*language_tokens(tokenizer)], recorded_directions(tokenizer)
    sources = dict.fromkeys(source for source, _, _ in rows if source)
    targets = dict.fromkeys(target for _, target, _ in rows)
    return tokens or [*sources], tokens or [*targets]


@dataclass(frozen=True)
class Direction:
    """What decides for a source how the model is asked for one language.

    Attributes:
        source: The language of the source, as the model spells it. None: it is unknown.
        target: The same for the target.
        tag: Word that stands before the source; "": none.
        begin: What its targets begin with. Empty: what the settings say.
        choices: Languages of which a tag in the text must name one; empty: none must.
    """

    source: str | None = None
    target: str | None = None
    tag: str = ""
    begin: FirstTokens = ()
    choices: tuple[str, ...] = ()

    @classmethod
    def resolve(
        cls,
        tokenizer: Any,
        settings: Any,
        source: str | None = None,
        target: str | None = None,
        closest: Callable[[str, Iterable[str]], str | None] = lambda code, supported: (
            code if code in supported else None
        ),
    ) -> Self:
        """Decides how a model translates from one language to another.

        Args:
            settings: The settings of `generate()`, which may name a target themselves.
            source: Language of the sources. None: that of the tokenizer, if it has one.
            target: Language of the targets. None: that of the settings, the only one of the model,
                or that of the tokenizer.
            closest: Returns the spelling of a language among those of the model; None: it is not
                there. By default, both are equal letter by letter.

        Raises:
            ValueError: If the model does not know a language, or needs one that is not named.
        """
        tokens, rows = language_tokens(tokenizer), recorded_directions(tokenizer)
        sources, targets = languages_of_model(tokenizer)
        source = _find("source", source, sources, targets, closest)
        target = _find("target", target, targets, sources, closest)
        if tokens:
            names = {index: code for code, index in tokens.items()}
            start, first = settings.decoder_start_token_id, settings.forced_bos_token_id
            target = target or names.get(first) or names.get(start) or tokenizer.tgt_lang
            if target is None:
                raise ValueError(_not_named(tokens))
            # mBART: the language stands in the place of the start.
            has_start = start is not None and start not in names
            place = "forced_bos_token_id" if has_start else "decoder_start_token_id"
            return cls(source or tokenizer.src_lang, target, begin=((place, tokens[target]),))
        if not rows:
            of_source = getattr(tokenizer, "src_lang", getattr(tokenizer, "source_lang", None))
            of_target = getattr(tokenizer, "tgt_lang", getattr(tokenizer, "target_lang", None))
            return cls(source or of_source, target or of_target)
        if target is None and len(targets) > 1:
            is_plain = any(not tag for _, _, tag in rows)
            return cls(source, choices=() if is_plain else tuple(targets))
        fits = [row for row in rows if row[1] == (target or targets[0])]
        fits = [row for row in fits if source in (None, row[0])] or fits
        if len({tag for _, _, tag in fits}) > 1:
            languages = ", ".join(str(row[0]) for row in fits)
            raise ValueError(
                f"Targets in {target} have another tag for each source language: name the source "
                f"language (`src_lang`, --source-language), one of {languages}."
            )
        return cls(source or fits[0][0], fits[0][1], fits[0][2])

    def of_text(self, text: str, tags: Collection[str]) -> tuple[str, Self]:
        """Returns the tag that a text begins with, with its space, and the direction it names.

        Args:
            tags: What may be such a tag; see `tags_of_sources`.
        """
        begin, space, _ = text.partition(" ")
        if begin in tags:
            return begin + space, replace(self, tag=begin, choices=())
        if self.choices:
            raise ValueError(_not_named(self.choices))
        return "", self

    def for_text(self, text: str, tags: Collection[str]) -> Self:
        """Returns the direction for a text, without a tag where the text begins with one itself."""
        tag, direction = self.of_text(text, tags)
        return replace(direction, tag="") if tag else direction

    def read(self, text: str) -> str:
        """Returns a text as the model reads it."""
        return f"{self.tag} {text}" if self.tag else text


def _find(
    side: str,
    language: str | None,
    supported: list[str],
    on_the_other: list[str],
    closest: Callable[[str, Iterable[str]], str | None],
) -> str | None:
    """Returns a language as the model spells it; any one where the model names none."""
    if language is None:
        return None
    match = closest(language, supported)
    if not supported:
        return language
    if match is None:
        is_there = closest(language, on_the_other) is not None
        only = f" ({language} is a {'target' if side == 'source' else 'source'} only)"
        raise ValueError(
            f"The model has no {side} language {language!r}{only if is_there else ''}: it knows "
            f"{_listed(supported)}."
        )
    return match


def _not_named(languages: Iterable[str]) -> str:
    return (
        "The model has several target languages: name one (`tgt_lang`, --target-language), of "
        f"{_listed(languages)}."
    )


def _listed(languages: Iterable[str]) -> str:
    return ", ".join(sorted(set(languages)))
