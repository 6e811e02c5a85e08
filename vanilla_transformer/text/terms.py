"""Glossaries: terms with given translations, their matches in texts, and their annotations.

A model that is trained with them reads the target term after the source term, as in
`open the<|term|> file<|trans|> Datei<|end|>.` (Dinu et al. 2019, "Training Neural Machine
Translation to Apply Terminology Constraints"), and inflects it (Bergmanis and Pinnis 2021).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import NamedTuple
from unicodedata import normalize

import regex

from vanilla_transformer.model.tokenization_vanilla_transformer import TERM_TOKENS
from vanilla_transformer.text.capitals import to_title
from vanilla_transformer.text.edits import Edit, OutputSpan, Span, meets, without_overlaps
from vanilla_transformer.text.languages import (
    SPACELESS_CLASS,
    is_spaced_script_at,
    words_have_spaces,
)
from vanilla_transformer.text.token_links import TokenLinks
from vanilla_transformer.text.words import lemma, letter_runs, words_and_signs

_JOINED = rf"[[\p{{L}}\p{{M}}--{SPACELESS_CLASS}]\p{{Katakana}}\u30fc]"  # letters of one word
_HIRAGANA = regex.compile(r"\p{Hiragana}+")
Normalized = tuple[str, ...]  # the words and signs of a term, in a form for comparisons


class _Form(NamedTuple):
    """A form in which the words of a language are compared, perhaps as lemmas or without case."""

    language: str | None = None
    has_case: bool = False
    is_lemma: bool = False

    def of(self, text: str, words: Iterable[Span]) -> Normalized:
        """Returns the words of a text in this form."""
        return tuple(self._of_word(normalize("NFC", text[slice(*span)])) for span in words)

    def _of_word(self, word: str) -> str:
        if not self.is_lemma:
            return word if self.has_case else word.lower()
        base = lemma(word.lower(), self.language).lower()
        if self.has_case and word.isupper():
            return base.upper()
        return base.title() if self.has_case and word[0].isupper() else base


@dataclass(frozen=True)
class Term:
    """A term and its translation.

    Attributes:
        case: Whether capital and small letters of the source differ.
        exact: Whether only this form of the source counts, and no inflected one.
        location: Its origin, such as "line 3", for errors; "": its number in the glossary.
    """

    source: str
    target: str
    case: bool = False
    exact: bool = False
    location: str = field(default="", compare=False)

    def words(self, language: str | None = None, is_lemma: bool = False) -> Normalized:
        """Returns the words and signs of the source, in the form for comparisons."""
        form = _Form(language, self.case, is_lemma)
        return form.of(self.source, words_and_signs(self.source))

    @cached_property
    def of_target(self) -> "Term":
        """The target as a term of its own; a name such as "iPhone" has this form alone."""
        words = [self.target[slice(*span)] for span in words_and_signs(self.target)]
        is_name = any(word[1:] != word[1:].lower() for word in words)
        return Term(self.target, self.target, case=is_name, exact=is_name)


@dataclass(frozen=True)
class Match:
    """A term in a text."""

    span: Span
    term: Term


class Glossary:
    """Terms by their source. Equal terms with different targets are an error."""

    def __init__(self, terms: Iterable[Term]) -> None:
        self.terms = tuple(terms)
        self._terms_by_form: dict[_Form, Mapping[Normalized, Term]] = {}
        known: dict[tuple[Normalized, bool, bool], Term] = {}
        for term in self.terms:
            if not (term.source.strip() and term.target.strip()):
                raise ValueError(f"{self._name(term)}: a term needs a source and a target.")
            same = known.setdefault((term.words(), term.case, term.exact), term)
            if same.target != term.target:
                raise ValueError(
                    f"{self._name(same)} and {self._name(term)} translate {term.source!r} as "
                    f"{same.target!r} and as {term.target!r}: leave one out."
                )

    def _name(self, term: Term) -> str:
        return term.location or f"Term {self.terms.index(term) + 1}"

    def find(self, text: str, language: str | None, protected: Sequence[Span] = ()) -> list[Match]:
        """Finds the terms of a text, in order; of terms that overlap, the longest, then the first.

        Args:
            language: The tag of the text's language; None: inflected forms are not known.
            protected: Parts of the text in which no term counts.
        """
        if not self.terms:
            return []
        matches: list[Match] = []
        spans = words_and_signs(text)
        in_lemmas = (False, True) if language else (False,)
        for is_lemma, has_case in product(in_lemmas, (True, False)):
            form = _Form(language, has_case, is_lemma)
            terms = self._terms_in(form)
            words = form.of(text, spans) if terms else ()
            matches += [
                Match((spans[first][0], spans[first + size - 1][1]), terms[term])
                for size in {len(term) for term in terms}
                for first in range(len(words) - size + 1)
                if (term := words[first : first + size]) in terms
            ]
        # `sorted` is stable: exact forms come before inflected ones.
        in_order = sorted(matches, key=lambda match: match.span)
        return without_overlaps(in_order, lambda match: match.span, protected)

    def _terms_in(self, form: _Form) -> Mapping[Normalized, Term]:
        """Returns the terms that are looked for in a form, by their words."""
        if form not in self._terms_by_form:
            self._terms_by_form[form] = {
                term.words(form.language, form.is_lemma): term
                for term in reversed(self.terms)  # of equal terms, the first one counts
                if term.case == form.has_case and not (form.is_lemma and term.exact)
            }
        return self._terms_by_form[form]


def targets_in(
    output: str, terms: Iterable[Term], language: str | None, protected: Sequence[OutputSpan] = ()
) -> list[Match]:
    """Finds the targets of terms in an output, also inflected ones; see `Glossary.find`."""
    distinct = {term.of_target.words(): term.of_target for term in terms}
    return Glossary(distinct.values()).find(output, language, protected)


def missing_targets(
    terms: Sequence[Term], output: str, language: str | None = None
) -> tuple[str, ...]:
    """Returns the targets that an output has less often than the source has their terms.

    A target within another target counts for both. Inflected forms count as in `targets_in`.
    """
    targets = [term.target for term in terms]
    finders = {term.target: Glossary([term.of_target]) for term in terms}

    def count(target: str, texts: Sequence[str]) -> int:
        return sum(len(finders[target].find(text, language)) for text in texts)

    return tuple(target for target in finders if count(target, [output]) < count(target, targets))


def edits_to_place_terms(
    output: str,
    links: TokenLinks,
    matches: Sequence[Match],
    usual: Mapping[str, str],
    protected: Sequence[OutputSpan] = (),
    language: str | None = None,
) -> list[Edit]:
    """Returns the edits that replace the translations of terms by the targets of a glossary.

    In languages with spaces, the usual translation is replaced unless the output has it more often
    than the source has the term. In other languages, it is replaced where it is linked with the
    term or stands alone. If it is nowhere, the last word that is linked with the term is replaced.

    Args:
        matches: The terms of the source whose targets the output lacks.
        usual: The usual translation of each term.
        protected: Parts of the output that no edit changes.
        language: The tag of the language of the output.
    """
    edits: list[Edit] = []
    counts = Counter(match.term for match in matches)
    for match in matches:
        linked = links.linked_with(match.span)
        word = regex.escape(usual[match.term.source]) or "(?!)"  # which matches nothing
        alone = _spans(rf"(?V1i)(?<!{_JOINED}){word}(?!{_JOINED})", output)
        alone = [span for span in alone if not meets(span, protected)]
        if words_have_spaces(language):
            spans = alone if len(alone) <= counts[match.term] else []
        else:
            spans = [span for span in _spans(word, output) if span in alone or meets(span, linked)]
            spans = spans or _words_in(output, linked)[-1:]
        for begin, end in spans:
            if not meets((begin, end), [*protected, *(edit.span for edit in edits)]):
                target = match.term.target
                if target.islower() and output[begin].isupper() and not output[:begin].strip():
                    target = to_title(target, language)
                edits.append(Edit(begin, end, target, match.span))
    return sorted(edits, key=lambda edit: edit.begin)


def _spans(pattern: str, text: str) -> list[Span]:
    return [found.span() for found in regex.finditer(pattern, text)]


def _words_in(text: str, spans: Sequence[Span]) -> list[Span]:
    """Returns the words that parts of a text touch, in order.

    Of joined characters, only those within a part count. Hiragana count only if all words are such.
    """
    words = [
        (max(begin, first), min(end, last)) if kind == "joined" else (begin, end)
        for begin, end, kind in letter_runs(text)
        for first, last in spans
        if meets((begin, end), [(first, last)])
    ]
    return [span for span in words if not _HIRAGANA.fullmatch(text, *span)] or words


def edits_to_annotate(text: str, terms: Iterable[tuple[Span, str]]) -> list[Edit]:
    """Returns the edits that put targets after the terms of a text, which are in order.

    White space before a term becomes one space within the tokens: vocabularies have words with it.
    """
    begin_token, between, end_token = TERM_TOKENS
    edits: list[Edit] = []
    for (begin, end), target in terms:
        first = len(text[:begin].rstrip())
        space = "" if 0 < first == begin else " "
        term = space + " ".join(text[begin:end].split())
        gap = " " if is_spaced_script_at(target, 0) else ""
        edits.append(Edit(first, end, f"{begin_token}{term}{between}{gap}{target}{end_token}"))
    return edits
