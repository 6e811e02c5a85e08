"""The made-up language of the alignment experiment, and its table."""

import sys

import alignment
import pytest


@pytest.fixture(scope="module")
def language():
    return alignment.Language(3)


def test_every_target_word_is_linked_with_the_word_that_it_translates(language):
    kind_of = {word: kind for kind, words in language.words.items() for word in words}
    number = {"particle": 0, "compound": 2}
    crossed = 0
    for pair in alignment.make_pairs(language, 50, seed=1):
        source, target = pair.source.split(), pair.target.split()
        assert [t for _, t in sorted(pair.links, key=lambda link: link[1])] == list(
            range(len(target))
        )
        for place, word in enumerate(source):
            linked = [target[t] for s, t in pair.links if s == place]
            assert linked == language.dictionary[word]
            assert len(linked) == number.get(kind_of[word], 1)
        assert kind_of[source[max(pair.links, key=lambda link: link[1])[0]]] == "verb"
        crossed += [t for _, t in pair.links] != sorted(t for _, t in pair.links)
    assert crossed > 30


def test_test_pairs_are_unseen_and_the_same_each_time(language):
    training = alignment.make_pairs(language, 60, seed=1)
    test = alignment.make_pairs(language, 60, seed=2, without=training)
    assert not {pair.source for pair in training} & {pair.source for pair in test}
    assert test == alignment.make_pairs(alignment.Language(3), 60, seed=2, without=training)


def test_a_language_is_the_same_in_every_process():
    """A set of texts has another order in each process."""
    assert alignment.Language(3).words["particle"] == ["karet", "babar"]


def test_the_program_prints_a_row_per_method_and_seed(monkeypatch, capsys):
    sizes = ["--steps", "2", "--train-pairs", "40", "--test-pairs", "3", "--seeds", "1"]
    argv = ["alignment.py", *sizes, "--methods", "none", "own average"]
    monkeypatch.setattr(sys, "argv", argv)
    alignment.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    names = [row.split(" | ")[0].removeprefix("| ") for row in rows]
    assert names == ["guided alignment", "none", "own average"]
    assert all(0 <= float(row.split(" | ")[3]) <= 1 for row in rows[1:])
