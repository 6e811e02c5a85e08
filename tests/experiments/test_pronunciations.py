"""The words of a list that a student may learn from models."""

from itertools import product

import pronunciations
from pronunciations import new_words, split_of


def test_new_words_are_no_forms_of_held_out_words(tmp_path):
    names = [f"zanter{first}{second}o" for first, second in product("abcdefgh", repeat=2)]
    held_out = next(name for name in names if split_of(name) == "test")
    seen = next(name for name in names if split_of(name) == "train")
    dictionary = tmp_path / "cmudict.dict"
    dictionary.write_text(f"{held_out} Z AE1 N T ER0\n{seen} P L AA1 M ER0\n", encoding="utf-8")
    forms = [f"{word}{ending}" for word in (held_out, seen) for ending in ("", "s", "'s")]
    words = new_words([*forms, "Goodwin", "goodwin", "na\u00efve", "x", "3d"], dictionary)
    assert words == [f"{seen}s", f"{seen}'s", "goodwin"]


def test_its_command_writes_them(tmp_path):
    given = tmp_path / "words.txt"
    given.write_text("the\nQwertyish\n", encoding="utf-8")
    pronunciations.main([str(tmp_path / "split"), "--words", str(given)])
    assert (tmp_path / "split/new.source").read_text(encoding="utf-8") == "qwertyish\n"
