"""The links between the tokens of a source and of its output."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from vanilla_transformer.text.edits import Edit, OutputSpan, SourceSpan, meets, moved, spans_after
from vanilla_transformer.text.word_alignment import Links, links_of_words
from vanilla_transformer.text.words import words_of_spans


@dataclass(frozen=True)
class TokenLinks:
    """The spans of the tokens of a source and its output, and the links between these tokens.

    Attributes:
        in_source: The span of each token of the source.
        in_output: The span of each token of the output.
        aligned: For each token of the output the index of a token of the source.
    """

    in_source: Sequence[SourceSpan]
    in_output: Sequence[OutputSpan]
    aligned: Sequence[int]

    @classmethod
    def of_pairs(cls, in_source: Sequence[SourceSpan], pairs: list[tuple[OutputSpan, int]]) -> Self:
        """Makes links from the span of each output token and the index of its source token."""
        return cls(in_source, [span for span, _ in pairs], [index for _, index in pairs])

    def linked_with(self, part: SourceSpan) -> list[OutputSpan]:
        """Returns the spans of the output's tokens that are linked with a part of the source."""
        return sorted(span for span, index in self.pairs() if meets(self.in_source[index], [part]))

    def pairs(self) -> Iterator[tuple[OutputSpan, int]]:
        """Yields the span of each token of the output, and the index of its source token."""
        pairs = zip(self.in_output, self.aligned, strict=False)
        return (pair for pair in pairs if pair[0][0] < pair[0][1])  # special tokens have no text

    def words(self, source: str, output: str) -> Links:
        """Returns the links of words in order, each as the indices of two words."""
        source_words = words_of_spans(source, self.in_source)
        output_words = words_of_spans(output, self.in_output)
        links = ((index, token) for token, index in enumerate(self.aligned))
        return links_of_words(links, source_words, output_words)

    def then(self, further: "TokenLinks") -> "TokenLinks":
        """Returns the links of the source to a translation of the output, by way of the output."""
        own = list(self.pairs())
        pairs = [
            (span, index)
            for span, middle in further.pairs()
            for linked, index in own
            if meets(linked, [further.in_source[middle]])
        ]
        return TokenLinks.of_pairs(self.in_source, pairs)

    def edited(self, edits: Sequence[Edit]) -> "TokenLinks":
        """Returns the links to an edited output; an edit with `in_source` is one token of it."""
        pairs = [
            (moved(span, edits), index)
            for span, index in zip(self.in_output, self.aligned, strict=True)
            if not any(e.in_source and e.begin <= span[0] < span[1] <= e.end for e in edits)
        ]
        in_source = list(self.in_source)
        for edit, (begin, _) in zip(edits, spans_after(edits), strict=True):
            if edit.in_source is not None:
                begin += len(edit.text) - len(edit.text.lstrip())  # needed spaces are no part of it
                indices = [n for n, span in enumerate(in_source) if meets(span, [edit.in_source])]
                if not indices:  # the model has not read this part
                    indices = [len(in_source)]
                    in_source.append(edit.in_source)
                pairs += [((begin, begin + len(edit.text.strip())), index) for index in indices]
        return TokenLinks.of_pairs(in_source, sorted(pairs))
