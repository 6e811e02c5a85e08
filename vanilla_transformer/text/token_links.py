"""The links between the tokens of a source and of its output."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vanilla_transformer.text.edits import Edit, Span, meets, moved, stripped


@dataclass(frozen=True)
class TokenLinks:
    """The spans of the tokens of a source and its output, and the links between these tokens.

    Attributes:
        sources: The span of each source token.
        targets: The span of each target token in the output.
        aligned: Index of a source token for each target token.
    """

    sources: Sequence[Span]
    targets: Sequence[Span]
    aligned: Sequence[int]

    def of_source(self, span: Span) -> list[Span]:
        """Returns the parts of the output that are linked with a part of the source."""
        return sorted(part for part, index in self.pairs() if meets(self.sources[index], [span]))

    def pairs(self) -> Iterator[tuple[Span, int]]:
        """Yields the parts of the output, each with the index of its source token."""
        pairs = zip(self.targets, self.aligned, strict=False)
        return (pair for pair in pairs if pair[0][0] < pair[0][1])  # special tokens have no text

    def then(self, further: "TokenLinks") -> "TokenLinks":
        """Returns the links of the source with a translation of the output, by links of both."""
        own = list(self.pairs())
        pairs = [
            (part, index)
            for part, middle in further.pairs()
            for linked, index in own
            if meets(linked, [further.sources[middle]])
        ]
        return TokenLinks(self.sources, [part for part, _ in pairs], [index for _, index in pairs])

    def edited(self, edits: Sequence[Edit]) -> "TokenLinks":
        """Returns the links into an edited output; an edit with a source is one token in it."""
        new_parts = [edit for edit in edits if edit.source]
        pairs = [
            (moved(part, edits), index)
            for part, index in zip(self.targets, self.aligned, strict=True)
            if not any(e.begin <= part[0] < part[1] <= e.end for e in new_parts)
        ]
        sources, grown = list(self.sources), 0
        for edit in edits:
            if edit.source:
                new = stripped(edit.text, (0, len(edit.text)))  # needed spaces are no part of it
                part = new[0] + edit.begin + grown, new[1] + edit.begin + grown
                of_source = [n for n, span in enumerate(sources) if meets(span, [edit.source])]
                if not of_source:  # the model has not read this part
                    of_source = [len(sources)]
                    sources.append(edit.source)
                pairs += [(part, index) for index in of_source]
            grown += len(edit.text) - (edit.end - edit.begin)
        pairs.sort()
        return TokenLinks(sources, [part for part, _ in pairs], [index for _, index in pairs])
