"""A run with guided alignment, from files to outputs with links."""

import pytest
from made_up_language import NOUNS, VERBS, arguments, main
from test_run_refusals import contents

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.text.word_alignment import parse_links

LINKS = "1-0 2-1 4-2 5-3"  # a dog sees a cat . / Hund sieht Katze .


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    path = tmp_path_factory.mktemp("links") / "train.align"
    path.write_text(f"{LINKS}\n" * 400)
    return path


@pytest.fixture(scope="module", params=["file", "auto"])
def guided(request, corpus, links, tmp_path_factory):
    folder = tmp_path_factory.mktemp("guided")
    argv = arguments(
        corpus,
        folder,
        "train",
        decoder_layers=2,
        guided_alignment=links if request.param == "file" else "auto",
        guided_alignment_weight=0.3,
        num_train_epochs=8,
    )
    main(argv)
    return folder


@pytest.mark.parametrize("engine", ["transformers", "ctranslate2"])
def test_the_trained_head_aligns_the_outputs_of_both_engines(guided, engine):
    translator = Translator.from_pretrained(str(guided), engine, "cpu")
    nouns, verbs = list(NOUNS), list(VERBS)
    sources = [f"a {nouns[i]} {verbs[i % 3]} a {nouns[i - 1]} ." for i in range(8)]
    for search in ({}, {"num_beams": 3}):
        found = translator.translate(sources, return_word_alignment=True, **search)
        wanted = {*parse_links(LINKS)}
        assert sum(len(wanted.symmetric_difference(one.word_alignment)) for one in found) <= 2
    assert found[0].pharaoh == LINKS


def test_the_head_is_named_in_the_config_and_the_command_on_the_card(guided):
    assert VanillaTransformerConfig.from_pretrained(guided).alignment_heads == [[0, 0]]
    assert "--guided_alignment" in (guided / "README.md").read_text()


def test_a_file_that_does_not_fit_changes_nothing(corpus, tmp_path):
    path = tmp_path / "train.align"
    (tmp_path / "run").mkdir()
    argv = arguments(corpus, tmp_path / "run", "train", guided_alignment=path)
    with pytest.raises(FileNotFoundError, match="align"):
        main(argv)
    path.write_text(f"{LINKS}\n" * 399 + "6-0\n")
    with pytest.raises(ValueError, match="line 400: the link 6-0 names word 6 of the source"):
        main(argv)
    assert contents(tmp_path / "run") == {}


@pytest.mark.parametrize("source", ["file", "auto"])
def test_links_and_sampled_subwords_go_together(source, corpus, links, tmp_path):
    options = {"decoder_layers": 2, "max_steps": 2, "tokenizer_kind": "bpe", "bpe_dropout": 0.2}
    given = links if source == "file" else "auto"
    main(arguments(corpus, tmp_path, "train", guided_alignment=given, **options))
    assert VanillaTransformerConfig.from_pretrained(tmp_path).alignment_heads == [[0, 0]]
