"""Beam search whose outputs contain given terms.

The beams are shared out among banks, which hold hypotheses that lack equally many tokens of the
terms (Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation"), by
turns and from the bank that lacks the fewest (Hu et al. 2019). All else is the beam search of
transformers: how hypotheses end, and which of the ended ones is the best.
"""

from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any, NamedTuple
from unicodedata import normalize

import torch
from transformers import GenerationConfig

from vanilla_transformer.model.inputs import end_tokens_of
from vanilla_transformer.search import Search
from vanilla_transformer.text.languages import words_have_spaces
from vanilla_transformer.text.words import words_and_signs
from vanilla_transformer.tokenizer_sides import vocabulary_of

TermIds = tuple[tuple[int, ...], tuple[int, ...]]
"""The ids of a term within a sentence, and at its beginning if these differ."""

_BEAMS_OF_BANK, _MOST_BEAMS = 2, 16  # of a bank, and of a whole search
_PENALTY = -1e5
"""Added to the scores of hypotheses that end, or must end, without all terms."""


class WordJoins(NamedTuple):
    """The pairs of tokens that have no word border between them.

    Attributes:
        can_be_continued: Whether a word may go on after a token, (vocab,).
        continues: Whether a token continues the word before it, (vocab,).
    """

    can_be_continued: torch.Tensor
    continues: torch.Tensor

    @classmethod
    def find(cls, tokenizer: Any, vocab: int) -> "WordJoins":
        """Finds the pairs of target ids below `vocab`, by the texts that pairs decode to."""
        joins = cls(torch.zeros(vocab, dtype=torch.bool), torch.zeros(vocab, dtype=torch.bool))
        ids = [index for index in vocabulary_of(tokenizer, "target").values() if index < vocab]
        words = filter(str.isalpha, tokenizer.batch_decode([[index] for index in ids]))
        # Unless all tokens are words, twice the longest one is several tokens of one word.
        long_word = 2 * max(words, key=len, default="")
        parts = tokenizer(text_target=long_word, add_special_tokens=False)["input_ids"]
        if len(parts) < 2:  # all tokens are words
            return joins
        left, right = parts[-2:]
        before, after = map(len, tokenizer.batch_decode([[left], [right]]))
        with_right = tokenizer.batch_decode([[index, right] for index in ids])
        with_left = tokenizer.batch_decode([[left, index] for index in ids])
        for index, continued, continuing in zip(ids, with_right, with_left, strict=True):
            joins.can_be_continued[index] = _divides_word(continued, len(continued) - after)
            joins.continues[index] = _divides_word(continuing, before)
        for mask in joins:  # tokens that are not written part no words
            mask[[*{*tokenizer.all_special_ids} - {tokenizer.eos_token_id}]] = True
        return joins

    def joined(self, left: Any, right: Any) -> torch.Tensor:
        """Returns whether two tokens have no word border between them."""
        return self.can_be_continued[left] & self.continues[right]


def _divides_word(text: str, position: int) -> bool:
    """Returns whether a position of a text is within a word."""
    return any(begin < position < end for begin, end in words_and_signs(text))


def ids_of_term(tokenizer: Any, term: str, language: str | None) -> TermIds | None:
    """Returns the ids of a target term, or None if the vocabulary lacks a part of it."""

    def encode(text: str) -> tuple[int, ...]:
        text = normalize("NFC", text)
        return tuple(tokenizer(text_target=text, add_special_tokens=False)["input_ids"])

    comma = ", " if words_have_spaces(language) else "\uff0c"
    before, first = encode(comma.strip()), encode(term)
    within = encode(comma + term)
    within = within[len(before) :] if within[: len(before)] == before else first
    known = [ids for ids in (within, first) if ids and tokenizer.unk_token_id not in ids]
    if not known:
        return None
    return known[0], known[-1] if known[-1] != known[0] else ()


def search_with_terms(search: Search, terms: Sequence[TermIds]) -> Search:
    """Returns a search without sampling that has enough beams for all banks."""
    settings = deepcopy(search.settings)
    if search.num_beams == 1:
        settings.early_stopping = settings.renormalize_logits = True
        settings.length_penalty = search.length_penalty
    beams = _BEAMS_OF_BANK * (1 + sum(max(map(len, term)) for term in terms))
    settings.num_beams = max(search.num_beams, search.n_best, min(beams, _MOST_BEAMS))
    settings.do_sample = False
    return replace(search, settings=settings, num_beams=settings.num_beams, do_sample=False)


def with_terms(
    model: Any, terms: Sequence[Sequence[TermIds]], joins: WordJoins, settings: GenerationConfig
) -> Any:
    """Returns a copy of a model that shares its weights, and whose outputs contain the terms.

    It replaces two methods of transformers' beam search, which choose continuations and beams.

    Args:
        terms: The terms of each source. A term that is too long for an output is left out.
        joins: The pairs of tokens without a border, as a term begins and ends with a word.
        settings: The settings that `generate()` will be given.
    """
    beams, searching = _TermBeams(terms, joins, settings), copy(model)
    searching._get_top_k_continuations = beams.choose_continuations
    searching._get_running_beams_for_next_iteration = beams.choose_beams
    return searching


class _WantedTerms(NamedTuple):
    """The terms of a batch.

    Attributes:
        needed: The number of times that an output must have each term, also within other terms,
            (batch, terms).
        within: The number of times that each term is within each other term, (batch, terms, terms).
        ids: The ids of each term, padded with -1, (batch, terms, 2, longest + 1): first those
            within a sentence, then those at its beginning.
        sizes: The number of these ids, (batch, terms, 2).
    """

    needed: torch.Tensor
    within: torch.Tensor
    ids: torch.Tensor
    sizes: torch.Tensor

    @classmethod
    def of(cls, terms: Sequence[Sequence[TermIds]], joins: WordJoins) -> "_WantedTerms":
        """Counts the terms of each source."""
        most = max(1, *map(len, terms))
        longest = max((len(ids) for row in terms for term in row for ids in term), default=1)
        wanted = torch.zeros(len(terms), most, dtype=torch.long)
        within = torch.zeros(len(terms), most, most, dtype=torch.long)
        ids = torch.full((len(terms), most, 2, longest + 1), -1)
        for row, row_terms in enumerate(terms):
            unique = list(dict.fromkeys(row_terms))
            for index, term in enumerate(unique):
                wanted[row, index] = row_terms.count(term)
                for other, other_ids in enumerate(unique):
                    within[row, index, other] = _count(term[0], other_ids[0], joins)
                for side, side_ids in enumerate(term):
                    ids[row, index, side, : len(side_ids)] = torch.tensor(side_ids)
        # A term is within itself once: each counts alone, and in every term that holds it.
        needed = (within @ wanted[..., None])[..., 0]
        in_others = (within - torch.eye(most, dtype=torch.long)).clamp(min=0)
        return cls(needed, in_others, ids, (ids >= 0).sum(-1))

    def missing(self, counts: torch.Tensor, progress: torch.Tensor) -> torch.Tensor:
        """Counts the tokens that outputs lack, (batch, outputs).

        Args:
            counts: The number of times that an output has each term, (batch, outputs, terms).
            progress: The number of tokens of each term at its end, (batch, outputs, terms, 2).
        """
        lacking = (self.needed[:, None] - counts).clamp(min=0)
        # A term within other terms comes with them.
        alone = lacking - (lacking[:, :, None] * self.within[:, None]).sum(-1)
        missing = (alone.clamp(min=0) * self.sizes.amax(-1)[:, None]).sum(-1)
        return missing - (progress.amax(-1) * lacking.sign()).amax(-1)


class _TermBeams:
    """Chooses the hypotheses that go on, by their scores and the terms that they have.

    Attributes:
        has_started: Whether the first call has made the tensors.
        begin: The position at which outputs begin.
        wanted: The terms that fit into an output.
        ends: The tokens that end an output, (ends,).
        counts: The number of times that each hypothesis has each term, (batch, beams, terms).
    """

    def __init__(
        self, terms: Sequence[Sequence[TermIds]], joins: WordJoins, settings: GenerationConfig
    ) -> None:
        self.terms, self.joins, self.settings = terms, joins, settings
        self.has_started = False

    def _start(self, sequences: torch.Tensor, prompt_len: int) -> None:
        """Prepares a search whose sequences have the shape (batch, beams, max_length)."""
        self.has_started = True
        device = sequences.device
        beams, self.max_length = sequences.shape[1:]
        self.begin = prompt_len + (self.settings.forced_bos_token_id is not None)
        room = self.max_length - self.begin - 1  # for tokens before the end
        wanted = _WantedTerms.of([_fitting(row, room) for row in self.terms], self.joins)
        self.wanted = _WantedTerms(*(part.to(device) for part in wanted))
        self.joins = WordJoins(*(mask.to(device) for mask in self.joins))
        self.ends = torch.tensor(end_tokens_of(self.settings), device=device)
        self.counts = torch.zeros_like(self.wanted.needed)[:, None].repeat(1, beams, 1)

    def choose_continuations(
        self,
        running_sequences: torch.Tensor,
        decoder_prompt_len: int,
        accumulated_log_probs: torch.Tensor,
        running_beam_indices: torch.Tensor,
        cur_len: int,
        beams_to_keep: int,
        num_beams: int,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Chooses continuations, in the order in which they may go on.

        Args:
            running_sequences: (batch, beams, max_length), and of `cur_len` tokens so far.
            accumulated_log_probs: Of each hypothesis with each token, (batch, beams · vocab).

        Returns:
            The scores, (batch, beams_to_keep), and the sequences and the indices of beams of the
            continuations, (batch, beams_to_keep, max_length) each.
        """
        if not self.has_started:
            self._start(running_sequences, decoder_prompt_len)
        scores = accumulated_log_probs
        vocab = scores.shape[1] // num_beams
        outputs = running_sequences[:, :, self.begin : cur_len]
        last = running_sequences[:, :, cur_len - 1]
        progress, is_whole = self._term_progress(outputs)
        ends_with_term = is_whole.any(-1)  # a longer word takes the term back
        prolongs = self._prolongs_term(last, ends_with_term)
        candidates = self._candidates(scores, prolongs, progress, outputs.shape[2], beams_to_keep)
        values, candidates = _sorted_without_repeats(scores, candidates)
        parents, tokens = candidates // vocab, candidates % vocab
        counts, missing = self._counts_after(outputs, last, ends_with_term, parents, tokens)
        is_too_late = missing > self.max_length - cur_len - 2  # without room for the end
        values += _PENALTY * ((missing > 0) & (is_too_late | torch.isin(tokens, self.ends)))

        turns = _turns(missing, values)[:, :beams_to_keep]
        self.counts = counts.take_along_dim(turns[..., None], 1)
        parents, tokens = parents.gather(1, turns), tokens.gather(1, turns)
        rows = parents + torch.arange(len(scores), device=scores.device)[:, None] * num_beams
        return (
            values.gather(1, turns),
            _with_column(running_sequences, parents, cur_len, tokens),
            _with_column(running_beam_indices, parents, cur_len - decoder_prompt_len, rows),
        )

    def _prolongs_term(self, last: torch.Tensor, ends_with_term: torch.Tensor) -> torch.Tensor:
        """Returns whether a token makes a longer word of the term at the end of each beam."""
        joins_last = self.joins.joined(last[..., None], slice(None))
        return ends_with_term.any(-1, keepdim=True) & joins_last

    def _counts_after(
        self,
        outputs: torch.Tensor,
        last: torch.Tensor,
        ends_with_term: torch.Tensor,
        parents: torch.Tensor,
        tokens: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Counts the terms of continuations, and the tokens that these still lack.

        Args:
            outputs: Of each beam so far, (batch, beams, length).
            last: The last token of each beam, (batch, beams).
            ends_with_term: Whether a beam ends with a term, (batch, beams, terms).
            parents, tokens: The beam and the token of each continuation, (batch, candidates).
        """
        outputs = outputs.take_along_dim(parents[..., None], 1)
        progress, is_whole = self._term_progress(torch.cat([outputs, tokens[..., None]], -1))
        is_prolonged = self.joins.joined(last.gather(1, parents), tokens)[..., None]
        taken_back = ends_with_term.take_along_dim(parents[..., None], 1) & is_prolonged
        counts = self.counts.take_along_dim(parents[..., None], 1) - taken_back.int()
        counts += is_whole.any(-1)
        return counts, self.wanted.missing(counts, progress)

    def _candidates(
        self,
        scores: torch.Tensor,
        prolongs: torch.Tensor,
        progress: torch.Tensor,
        length: int,
        beams_to_keep: int,
    ) -> torch.Tensor:
        """Returns candidates among the continuations, (batch, candidates).

        Candidates are the best ones, the best of each beam that does not prolong a term, and those
        that go on with a term. A continuation is `beam · vocab + token`.

        Args:
            scores: Of each continuation, (batch, beams · vocab).
            prolongs: Whether a token makes another word of a term, (batch, beams, vocab).
            progress: The number of tokens of each term at the ends, (batch, beams, terms, 2).
            length: The number of tokens of an output so far.
        """
        num_beams, vocab = prolongs.shape[1:]
        firsts = torch.arange(num_beams, device=scores.device) * vocab
        best = scores.topk(beams_to_keep).indices
        per_beam = scores.unflatten(1, (num_beams, vocab)).masked_fill(prolongs, -torch.inf)
        lacking = (self.wanted.needed[:, None] > self.counts)[..., None]
        ids = self.wanted.ids[:, None].expand(-1, num_beams, -1, -1, -1)
        following = ids.gather(-1, progress[..., None])[..., 0]  # (batch, beams, terms, 2)
        # A term at the beginning of an output goes on from all of the output so far.
        following[..., 1].masked_fill_(progress[..., 1] != length, -1)
        following = torch.where(
            lacking & (following >= 0), following + firsts[:, None, None], best[:, :1, None, None]
        )
        return torch.cat([best, per_beam.argmax(-1) + firsts, following.flatten(1)], 1)

    def choose_beams(
        self,
        topk_log_probs: torch.Tensor,
        topk_running_sequences: torch.Tensor,
        topk_running_beam_indices: torch.Tensor,
        next_token_hits_stopping_criteria: torch.Tensor,
        num_beams: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Takes the first continuations that have not ended, and sorts them by their scores."""
        ended = next_token_hits_stopping_criteria
        scores = topk_log_probs + ended * -1e9  # as in transformers
        order = ended.int().argsort(stable=True)[:, :num_beams]
        order = order.gather(1, scores.gather(1, order).argsort(descending=True, stable=True))
        self.counts = self.counts.take_along_dim(order[..., None], 1)
        return (
            topk_running_sequences.take_along_dim(order[..., None], 1),
            scores.gather(1, order),
            topk_running_beam_indices.take_along_dim(order[..., None], 1),
        )

    def _term_progress(self, outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Counts the tokens of each term at the ends of outputs, and finds whole terms.

        Returns:
            The counts, 0 for whole terms, and whether terms are whole: (batch, outputs, terms, 2).
        """
        length = outputs.shape[2]
        progress = torch.zeros_like(self.wanted.sizes)[:, None].repeat(1, outputs.shape[1], 1, 1)
        for size in range(1, min(length, self.wanted.ids.shape[-1] - 1) + 1):
            end = outputs[:, :, None, None, -size:]
            fits = (end == self.wanted.ids[:, None, :, :, :size]).all(-1)
            if size < length:
                fits[..., 1] = False
                before = outputs[:, :, -size - 1, None, None]
                fits &= ~self.joins.joined(before, self.wanted.ids[:, None, :, :, 0])
            progress = torch.where(fits, size, progress)
        is_whole = (progress > 0) & (progress == self.wanted.sizes[:, None])
        return progress.masked_fill(is_whole, 0), is_whole


def _fitting(terms: Sequence[TermIds], room: int) -> list[TermIds]:
    """Returns the first terms that fit into the room of an output, in tokens."""
    fitting = list[TermIds]()
    for term in terms:
        if (size := max(map(len, term))) <= room:
            fitting.append(term)
            room -= size
    return fitting


def _sorted_without_repeats(
    scores: torch.Tensor, candidates: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the scores of candidates, and the candidates, best first, (batch, candidates) each.

    A candidate that comes again has the score -inf.
    """
    is_again = (candidates[:, :, None] == candidates[:, None]).tril(-1).any(-1)
    values = scores.gather(1, candidates).masked_fill(is_again, -torch.inf)
    values, order = values.sort(descending=True, stable=True)
    return values, candidates.gather(1, order)


def _with_column(
    beams: torch.Tensor, parents: torch.Tensor, column: int, values: torch.Tensor
) -> torch.Tensor:
    """Returns the rows of the parents among beams, with other values in one column."""
    rows = beams.take_along_dim(parents[..., None], 1)
    rows[:, :, column] = values
    return rows


def _turns(missing: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Returns the order of continuations by turns of their banks, (batch, candidates).

    Args:
        missing: The number of tokens that each lacks: its bank.
        values: Their scores, in falling order.
    """
    rank = (missing[:, :, None] == missing[:, None]).tril(-1).sum(-1)  # in its bank
    turn = rank * (missing.max() + 1) + missing
    turn += (values < _PENALTY / 2) * (turn.max() + 1)  # those with the penalty come last
    return turn.argsort(stable=True)


def _count(part: tuple[int, ...], whole: tuple[int, ...], joins: WordJoins) -> int:
    """Returns the number of times that a term is within another one, as whole words."""
    return sum(
        whole[begin : begin + len(part)] == part
        and not any(
            joins.joined(whole[border - 1], whole[border])
            for border in (begin, begin + len(part))
            if 0 < border < len(whole)
        )
        for begin in range(len(whole) - len(part) + 1)
    )
