"""Trainings with terms, and glossaries: the terms that stand behind a source, or that it lacks."""

import json
import random

import pytest
from made_up_language import NOUNS, OTHERS, arguments, main, write_pairs

from vanilla_transformer import Translator
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.files.loading import load_tokenizer
from vanilla_transformer.model.tokenization_vanilla_transformer import TERM_TOKENS


@pytest.fixture(scope="module")
def unclear(tmp_path_factory):
    """A corpus in which only a glossary can tell how nouns are translated."""
    folder, chance = tmp_path_factory.mktemp("unclear"), random.Random(0)
    words = [*NOUNS.items(), *zip(NOUNS, OTHERS, strict=True)]
    for name, count in (("train", 1200), ("val", 16), ("test", 16)):
        rows = []
        for _ in range(count):
            noun, german = chance.choice(words)
            rows.append((noun.title(), german))
        write_pairs(folder, name, rows)
    return folder


@pytest.fixture(scope="module")
def model(unclear, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "terms"
    main(arguments(unclear, folder, "train", terms="annotate", num_train_epochs=30))
    return folder


def test_a_model_writes_the_terms_that_it_reads(model, tmp_path, capsys):
    tokenizer = load_tokenizer(str(model))
    assert all(len(tokenizer(token)["input_ids"]) == 2 for token in TERM_TOKENS)
    assert not set(tokenizer.get_vocab()) & {"<|", "term", "trans"}
    translator = Translator.from_pretrained(model)
    for target in ("Hund", "Köter"):
        (output,) = translator.translate(
            ["Dog"], glossary={"dog": target}, return_word_alignment=True
        )
        assert (output.text, output.pharaoh) == (target, "0-0")
    file = tmp_path / "terms.tsv"
    file.write_text("dogs\tKöter\nboat\tKahn\t1\n", encoding="utf-8")
    words = ["Dog", "Boat", "--glossary", str(file), "--source-language", "en"]
    capsys.readouterr()
    run_subcommand("translate", [str(model), *words, "--json"])
    lines = capsys.readouterr().out.splitlines()
    first, second = (json.loads(line)["outputs"][0] for line in lines)
    assert first["text"] == "Köter"
    assert (first["terms"], first["missing_terms"]) == ([["Dog", "Köter"]], [])
    assert second["terms"] == []


def test_a_search_places_the_terms_that_another_model_lacks(trained):
    translator = Translator.from_pretrained(trained)
    glossary = [["dog", "Katze"], ["see", "mag"]]
    text = "a dog sees a man ."
    (output,) = translator.translate([text], glossary=glossary, src_lang="en", return_scores=True)
    assert {"Katze", "mag"} <= set(output.text.split())
    assert output.terms == (("dog", "Katze"), ("sees", "mag"))
    assert output.missing_terms == ()
    assert translator.translate(text, glossary={"cat": "Hund"}) == translator.translate(text)


def test_prepared_and_resumed_trainings_have_the_same_terms(unclear, tmp_path):
    options = {"terms": "annotate", "save_strategy": "steps", "save_steps": 2}
    main(arguments(unclear, tmp_path / "plain", **options, max_steps=4))
    run_subcommand("prepare", arguments(unclear, tmp_path / "data", terms="annotate"))
    options |= {"prepared": tmp_path / "data"}
    for steps in (2, 4):
        options |= {"max_steps": steps, "resume_from_checkpoint": steps == 4}
        main(arguments(unclear, tmp_path / "again", **options))
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "again")]
    assert weights[0] == weights[1]


def test_links_of_words_and_terms_exclude_each_other(unclear, tmp_path):
    (tmp_path / "links").write_text("0-0\n" * 1200, encoding="utf-8")
    options = {"terms": "annotate", "guided_alignment": tmp_path / "links"}
    with pytest.raises(ValueError, match="terms"):
        main(arguments(unclear, tmp_path / "out", **options))
