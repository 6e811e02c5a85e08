"""Units of XLIFF and Qt: a text, its translation, and the state of that."""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from vanilla_transformer.documents.marked_text import TextTranslation, without_equal_edges
from vanilla_transformer.documents.places import Place
from vanilla_transformer.documents.xml_elements import Element
from vanilla_transformer.documents.xml_texts import BlockReader
from vanilla_transformer.text.edits import Edit, apply_edits
from vanilla_transformer.text.memory import Pair

_STATE = re.compile(r"""\s(?:state(?:-qualifier)?|type)\s*=\s*("[^"]*"|'[^']*')""")
_MEANING = re.compile(r"""<(?:\w+:)?note\s[^>]*?(?:from|category)=["']meaning["'][^>]*>([^<]*)""")
_VARIANT = re.compile(r"<(numerusform|lengthvariant)(?:[^>]*/>|[^>]*>[^<]*</\1>)")  # of Qt
# State qualifiers of translations that a person has read, and of machine translations.
_READ, _OF_MACHINES = ("", "exact-match", "id-match"), ("leveraged-mt", "mt-suggestion")
_Pairs = list[tuple[Element, Element]]  # of sources, or segments of them, and their translations
_Segments = Mapping[str, Element]  # by their numbers


class UnitReader:
    """Reads the units of a file.

    Attributes:
        pairs: The texts that are translated already.
        left: The locations of units that stay, since their targets lack segments.
    """

    def __init__(self, reader: BlockReader) -> None:
        self._reader = reader
        self._source = reader.source
        self._target = reader.schema.target
        self.pairs, self.left = list[Pair](), list[str]()

    def places_of(self, unit: Element) -> Iterator[Place]:
        """Yields the places of the texts of a unit that are to be translated.

        A unit without a translation, or one that asks for another, gives one place. A finished one
        gives a place for each empty segment, and pairs for the memory.
        """
        source, target, segments = map(unit.child, ("source", self._target, "seg-source"))
        is_approved = unit.attribute("approved") == "yes"
        if source is None or (target is None and is_approved):  # it is empty on purpose
            return
        target = target or self._new_target(unit, segments or source)
        if segments and (target.child("mrk") or not target.has_content):
            source = segments
        if not (is_approved or _is_finished(unit, target)):
            yield from self._places_in(unit, target, [(source, target)])
            return
        sources, targets = _segments_of(source), _segments_of(target)
        pairs = self._segment_pairs(unit, target, sources, targets)
        empty = [] if is_approved else [pair for pair in pairs if not pair[1].has_content]
        if not empty and (not sources or not targets or sources.keys() == targets.keys()):
            pairs = [(source, target)]
        yield from self._places_in(unit, target, sorted(empty, key=lambda pair: pair[1].end))
        self._add_pairs(unit, target, pairs)

    def _segment_pairs(
        self, unit: Element, target: Element, sources: _Segments, targets: _Segments
    ) -> _Pairs:
        """Returns the segments of a source with those of the target.

        Segments that the target lacks are added if all have words and the target has the first one.
        """
        lacking = sources.keys() - targets.keys()
        if targets and lacking and unit.attribute("approved") != "yes":
            has_first = targets.keys() <= sources.keys() and [*targets][:1] == [*sources][:1]
            if has_first and all(any(self._reader.places_of(sources[key])) for key in lacking):
                return self._with_lacking(target, sources, targets)
            line = self._source.count("\n", 0, unit.begin) + 1
            self.left.append(f"line {line} (segments that the target lacks)")
        return [(sources[key], segment) for key, segment in targets.items() if key in sources]

    def _new_target(self, unit: Element, source: Element) -> Element:
        """Returns the target that a unit lacks, behind the source and with the space before it."""
        at = source.end
        before = self._source[unit.inside : source.begin]
        tag = f"{before[len(before.rstrip()) :]}<{source.prefix}{self._target}>"
        return Element(self._target, source.prefix, tag, begin=at, inside=at, close=at, end=at)

    def _with_lacking(self, target: Element, sources: _Segments, targets: _Segments) -> _Pairs:
        """Returns the segments of a source with those of the target, or new ones in their order."""
        pairs = _Pairs()
        at = target.inside
        last_end = 0
        for key, source in sources.items():
            tag = self._source[last_end or source.begin : source.inside]  # with the space before it
            new = Element("mrk", source.prefix, tag, begin=at, inside=at, close=at, end=at)
            segment = targets.get(key, new)
            pairs.append((source, segment))
            at = segment.end
            last_end = source.end
        return pairs

    def _places_in(self, unit: Element, target: Element, pairs: _Pairs) -> Iterator[Place]:
        """Yields the places of the sources of pairs; their outputs go into the targets.

        The first place begins where the unit does, so that it can change the unit's state.
        """
        begin = unit.begin
        fields = {"context": self._context_of(unit), "rewrites": True}
        for source, segment in pairs:
            frame = partial(self._frame, unit, target, segment, begin)
            places = self._reader.places_of(source, (begin, segment.end), frame=frame, **fields)
            for place in places:
                yield place
                begin = segment.end

    def _frame(
        self, unit: Element, target: Element, segment: Element, begin: int, output: TextTranslation
    ) -> Sequence[str]:
        """Returns the parts of a unit around an output, which each variant of the target repeats.

        The parts reach from `begin` to the end of `segment`, the target or a part of it. A message
        of several plural forms stays unfinished: one output is not right for all.
        """
        old = self._source[segment.inside : segment.close]
        end = f"</{segment.prefix}{segment.name}>"
        is_doubtful = output.is_doubtful or old.count("<numerusform") > 1
        state = _state_of(unit.name, replace(output, is_doubtful=is_doubtful))
        stated = unit if unit.name == "segment" else target  # XLIFF 2 tells the state of the unit
        # From the outside in; two or all three of them may be one element.
        elements = {e.begin: e for e in (stated, target, segment) if e.begin >= begin}
        edits = list[Edit]()
        for element in elements.values():
            attributes = state if element is stated else ""
            tag = re.sub(r"\s*/?>$", f"{attributes}>", _STATE.sub("", element.tag))
            edits.append(Edit(element.begin, element.inside, tag))
        head = apply_edits(self._source, edits, begin, segment.inside)
        variants, count = _VARIANT.subn(r"<\1>\0</\1>", old)  # XML holds no NUL
        return [*f"{head}{variants}{end}".split("\0")] if count else [head, end]

    def _context_of(self, unit: Element) -> str:
        """Returns the context of a unit: a comment of Qt, or a note of Angular on its meaning."""
        if comment := unit.child("comment"):
            return self._reader.source_of(comment)
        begin = unit.begin
        if unit.name == "segment":  # notes of XLIFF 2 are before the segments of a unit
            begin = self._source.rfind(f"<{unit.prefix}unit", 0, begin)
        meaning = _MEANING.search(self._source, begin, unit.end)
        return html.unescape(meaning[1]) if meaning else ""

    def _add_pairs(self, unit: Element, target: Element, pairs: _Pairs) -> None:
        """Adds the translated texts of a unit, except machine translations that nobody has read."""
        origin = target.attribute("state-qualifier")
        is_final = _state_in(unit, target) in ("final", "signed-off")
        is_read = is_final or origin in _READ or unit.attribute("approved") == "yes"
        if not is_read and origin in _OF_MACHINES:
            return
        for pair in pairs:
            texts = [place.marked for side in pair for place in self._reader.places_of(side)]
            if len(texts) == 2:
                sides = without_equal_edges(*texts)
                self.pairs.append(Pair(*sides, self._context_of(unit), not is_read))


def _segments_of(element: Element) -> _Segments:
    """Returns the segments of a source or target, by their numbers, in their order."""
    segments = (mrk for mrk in element.children if mrk.name == "mrk")
    return {number: mrk for mrk in segments if (number := mrk.attribute("mid"))}


def _state_in(unit: Element, target: Element) -> str:
    """Returns the state of a translation; XLIFF 2 tells it of the unit, Qt calls it a type."""
    return target.attribute("state") or unit.attribute("state") or target.attribute("type")


def _is_finished(unit: Element, target: Element) -> bool:
    """Returns whether a unit is obsolete, or has a translation and asks for no other one."""
    state = _state_in(unit, target)
    is_asked = state in ("new", "initial", "unfinished") or state.startswith("needs-")
    return state in ("vanished", "obsolete") or (target.has_content and not is_asked)


def _state_of(unit: str, output: TextTranslation) -> str:
    """Returns the attributes of a unit of XLIFF 2 or 1.2, or of Qt, with such a translation."""
    if unit == "message":
        return ' type="unfinished"' if output.is_doubtful else ""
    if unit == "segment":
        return f' state="{"initial" if output.is_doubtful else "translated"}"'
    state = "needs-review-translation" if output.is_doubtful else "translated"
    match = "fuzzy-match" if output.is_doubtful else "exact-match"
    return f' state="{state}" state-qualifier="{match if output.is_known else "mt-suggestion"}"'
