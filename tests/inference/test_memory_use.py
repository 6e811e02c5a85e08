"""How a request uses former translations."""

import pytest

from vanilla_transformer.inference.memory_use import MemoryUse, decide_memory_uses
from vanilla_transformer.text.memory import Memory, Pair, Suggestion


@pytest.mark.parametrize(
    ("reads", "options", "expected"),
    [
        (False, {}, [True, None, None]),
        (False, {"shows_similar": True}, [True, (None, False, False), (None, False, False)]),
        (True, {}, [True, (None, True, False), (None, True, False)]),
        (
            False,
            {"marks_doubt": True},
            [True, ("Datei öffnen.", False, False), ("Datei öffnen", False, False)],
        ),
        (True, {"marks_doubt": True}, [True, ("Datei öffnen.", False, False), (None, True, True)]),
    ],
)
def test_a_similar_text_is_searched_for_where_it_is_of_use(reads, options, expected):
    texts = ["Open the old file", "Open the old file.", "Open the new file"]
    memory = Memory([Pair(texts[0], "Datei öffnen")])
    decided = [*decide_memory_uses(texts, [memory], [reads] * 3, **options)]
    for known, wanted in zip(decided, expected, strict=True):
        if wanted is True:
            suggestion = Suggestion(texts[0], "Datei öffnen", 1.0, True)
            assert known == MemoryUse(suggestion, answer="Datei öffnen")
        else:
            assert (known and known[1:]) == wanted
