"""Sampled subwords: distributions, equality of the decoded text, and resumption of runs."""

from collections import Counter
from functools import partial
from itertools import pairwise
from random import Random

import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_training import assert_resumes_exactly, model, record_batches, trainer

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.batches.encoding import encode
from vanilla_transformer.batches.subwords import BpeDropout, SampledSubwords, SubwordSampler
from vanilla_transformer.training.callbacks import SubwordEpochs

STEMS = ("low", "new", "wid")
WORDS = [stem + ending for stem in STEMS for ending in ("er", "est")]
SOURCES = [f"{a} {b} the {a}" for a in WORDS for b in WORDS]
TARGETS = [text.upper() for text in SOURCES]


def make(kind, **options):
    size = {"byte_bpe": 300}.get(kind, 60)
    made = VanillaTransformerTokenizer.train(
        SOURCES, TARGETS, kind=kind, vocab_size=size, **options
    )
    made.add_tokens(["<2de>"])
    return made


TOKENIZERS = {kind: make(kind) for kind in ("bpe", "byte_bpe")}
text = st.text(st.sampled_from("lowersnwidtfLOWE  é3.<>"), max_size=30)


@given(text=st.one_of(text, st.just("<2de> newest </s> widest  ☃")))
@settings(max_examples=80, deadline=None)
def test_without_chance_it_is_the_tokenizer(text):
    for tokenizer in TOKENIZERS.values():
        sampler = SubwordSampler(tokenizer, "source", 0.0)
        assert sampler(text, Random(0))[0] == tokenizer(text)["input_ids"]


@given(text=text, seed=st.integers(0, 9), kind=st.sampled_from(list(TOKENIZERS)))
@settings(max_examples=100, deadline=None)
def test_what_is_sampled_spells_the_text(text, seed, kind):
    tokenizer = TOKENIZERS[kind]
    sampler = SubwordSampler(tokenizer, "source", 0.5)
    text = f"<2de> {text}"
    ids, _ = sampler(text, Random(seed))
    plain = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == tokenizer.decode(plain)
    assert ids == sampler(text, Random(seed))[0]
    assert (ids[0], ids[-1]) == (plain[0], plain[-1])


def shares(draw, count=4000):
    counts = Counter(tuple(draw(Random(i))) for i in range(count))
    return {key: value / count for key, value in counts.items()}


def assert_close(found, expected):
    assert found.keys() <= expected.keys()
    for key in expected:
        assert abs(found.get(key, 0) - expected[key]) < 0.03, key


def exact_bpe_dropout(tokens, ranks, dropout):
    """Returns the probability of each outcome of the paper's algorithm 1."""
    found = sorted((ranks[pair], i) for i, pair in enumerate(pairwise(tokens)) if pair in ranks)
    outcomes = Counter({tokens: dropout ** len(found)})
    for left_out, (_, i) in enumerate(found):
        merged = (*tokens[:i], tokens[i] + tokens[i + 1], *tokens[i + 2 :])
        for outcome, chance in exact_bpe_dropout(merged, ranks, dropout).items():
            outcomes[outcome] += dropout**left_out * (1 - dropout) * chance
    return outcomes


def test_bpe_dropout_has_the_distribution_of_the_paper():
    merges = [("l", "o"), ("lo", "w"), ("e", "r"), ("low", "er"), ("o", "w"), ("w", "e")]
    ours = BpeDropout(merges, 0.4)
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    expected = exact_bpe_dropout(tuple("lower"), ranks, 0.4)
    assert sum(expected.values()) == pytest.approx(1.0)
    assert len(expected) > 5
    assert_close(shares(lambda rng: ours("lower", rng)), expected)
    assert BpeDropout(merges, 1.0)("lower", Random(0)) == list("lower")


def test_bpe_dropout_draws_as_often_as_a_word_is_long():
    class Counting(Random):
        calls = 0

        def random(self):
            self.calls += 1
            return super().random()

    def draws(length):
        rng = Counting(0)
        word = "ab" * (length // 2)
        assert "".join(BpeDropout([("a", "b"), ("ab", "ab")], 0.1)(word, rng)) == word
        return rng.calls

    assert draws(8000) < 10 * draws(1000)


def pairs(kind="bpe", **options):
    tokenizer = make(kind) if isinstance(kind, str) else kind
    texts = Dataset.from_dict({"source": SOURCES, "target": TARGETS})
    encoded = encode(texts, tokenizer)
    return SampledSubwords(texts, encoded, tokenizer, **(options or {"bpe_dropout": 0.3})), encoded


def test_epochs_differ_and_come_back():
    rows, encoded = pairs()
    epochs = []
    for epoch in (0, 1, 0):
        rows.set_epoch(epoch)
        epochs.append([rows[i] for i in range(20)])
    assert epochs[0] == epochs[2] != epochs[1]
    assert [row["input_ids"] for row in epochs[0]] != encoded["input_ids"][:20]
    assert [row["labels"] for row in epochs[0]] != encoded["labels"][:20]
    assert all(len(row["attention_mask"]) == len(row["input_ids"]) for row in epochs[0])


def test_limits_and_two_vocabularies():
    rows, _ = pairs(bpe_dropout=1.0, max_source_length=7, max_target_length=5)
    assert [len(rows[0][name]) for name in ("input_ids", "labels")] == [7, 5]
    assert rows[0]["input_ids"][-1] == rows[0]["labels"][-1] == 2
    two = make("bpe", shared=False, target_vocab_size=50)
    rows, encoded = pairs(two, bpe_dropout=0.5)
    for name, side in (("input_ids", "source"), ("labels", "target")):
        sampled = [rows[i][name] for i in range(20)]
        assert sampled != encoded[name][:20]
        assert two.batch_decode(sampled, side=side) == two.batch_decode(
            encoded[name][:20], side=side
        )


def test_what_cannot_be_sampled_is_refused():
    with pytest.raises(ValueError, match="no vocabulary is of the kind bpe or byte_bpe"):
        pairs("unigram")


def make_trainer(folder, **options):
    rows, _ = pairs()
    return record_batches(
        trainer(
            folder,
            net=model(vocab_size=len(rows.samplers["source"].tokenizer)),
            data=rows,
            callbacks=[SubwordEpochs(rows)],
            **{"max_tokens": 300, "num_train_epochs": 3, "logging_steps": 1, **options},
        )
    )


def source_ids(run):
    return [batch["input_ids"].tolist() for batch in run.seen]


@pytest.mark.parametrize(
    "options",
    [{"dataloader_num_workers": 1}, {"max_tokens": None, "per_device_train_batch_size": 9}],
    ids=["workers", "stock batches"],
)
def test_a_run_sees_new_subwords_in_each_epoch_and_resumes_exactly(tmp_path, options):
    make = partial(make_trainer, **options)
    per_epoch = len(make(tmp_path).get_train_dataloader())
    runs = assert_resumes_exactly(make, tmp_path, per_epoch + per_epoch // 2)
    whole, stopped, resumed = map(source_ids, runs)
    rows_of = [
        sorted(tuple(t for t in row if t != 1) for batch in epoch for row in batch)
        for epoch in (whole[:per_epoch], whole[per_epoch:][:per_epoch])
    ]
    assert len(rows_of[0]) == len(rows_of[1]) == len(SOURCES)
    assert rows_of[0] != rows_of[1]
    assert stopped + resumed == whole


def test_workers_that_stay_see_the_epochs(tmp_path):
    staying = {"dataloader_num_workers": 1, "dataloader_persistent_workers": True}
    seen = []
    for options in ({}, staying):
        run = make_trainer(tmp_path, num_train_epochs=2, **options)
        run.train()
        seen.append(source_ids(run))
    assert seen[0] == seen[1]
