"""Units of pairs that translate each other, learnt from the pairs."""

from random import Random

import numpy as np

from vanilla_transformer.text.lexicon import Lexicon

SIZE = 20


def pairs(count=300):
    """Sources of some numbers; the target of n is n + 3, and two neighbours change places."""
    chance = Random(0)
    sources = [[chance.randrange(SIZE) for _ in range(chance.randint(1, 7))] for _ in range(count)]
    return [(row, [(n + 3) % SIZE for n in (*row[1::-1], *row[2:])]) for row in sources]


def test_units_that_translate_each_other_belong_together():
    lexicon = Lexicon(pairs(), SIZE)
    source, target = [0, 1, 2, 3, 4], [4, 3, 5, 6, 7]
    (found,) = lexicon.agreements([(source, target)])
    assert np.argwhere(found > 0.5).tolist() == [[0, 1], [1, 0], [2, 2], [3, 3], [4, 4]]
    assert (found >= 0).all()
    assert (found <= 1 + 1e-9).all()


def test_pairs_do_not_depend_on_the_others_of_a_call():
    lexicon, some = Lexicon(pairs(), SIZE), pairs(8)
    together = lexicon.agreements([*some, ([], []), ([1], []), *some])
    assert [found.shape for found in together] == [
        *[(len(row), len(row)) for row, _ in some],
        *[(0, 0), (1, 0)],
        *[(len(row), len(row)) for row, _ in some],
    ]
    for pair, first, second in zip(some, together[:8], together[10:], strict=True):
        (alone,) = lexicon.agreements([pair])
        assert (alone == first).all()
        assert (alone == second).all()


def test_an_unknown_unit_belongs_to_no_known_one():
    others = [([1, -1, *source], [-100, *target]) for source, target in pairs()]
    lexicon = Lexicon([*pairs(), *others], SIZE)
    for unknown in (-1, -100):
        (found,) = lexicon.agreements([([unknown, 5, 6], [8, 9, unknown])])
        assert found[1, 0] > 0.5
        assert found[2, 1] > 0.5
        assert found[0, :2].max() < 0.01
        assert found[1:, 2].max() < 0.01


def test_nothing_is_known_after_nothing_was_learnt():
    for empty in ([([], [])], [([1], [])], [([-1], [2])]):
        (found,) = Lexicon(empty, SIZE).agreements([([1, 2], [2, 3])])
        assert found.shape == (2, 2)
        assert found.max() < 0.5
