"""Runs of models of many languages: each target begins with its own, and tags mean languages."""

import json
import shutil
from types import SimpleNamespace

import pytest
from made_up_language import NOUNS, VERBS, arguments, main
from transformers import AutoTokenizer

from vanilla_transformer import Translator, VanillaTransformerTokenizer
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.model.directions import record_directions, recorded_directions
from vanilla_transformer.run import texts


def entries(corpus, languages, tags=(None, None)):
    """Both directions of the toy language pair."""
    named = []
    for sides, codes, tag in zip((("en", "de"), ("de", "en")), languages, tags, strict=True):
        files = {
            split: [str(corpus / f"{name}.{side}") for side in sides]
            for split, name in (("train", "train"), ("validation", "val"))
        }
        named.append({"name": "-".join(sides), **files, "languages": codes})
        named[-1] |= {"tag": tag} if tag else {}
    return ["--corpora", *map(json.dumps, named)]


def test_a_tag_is_recorded_as_the_language_that_it_means(corpus, tmp_path, capsys):
    of_test = {"source_language": "en", "target_language": "de"}
    words = arguments(corpus, tmp_path / "model", "test", num_train_epochs=6, **of_test)
    corpora = entries(corpus, (["en", "de"], ["de", "en"]), ("<2de>", "<2en>"))
    figures = main([*words, *corpora])
    assert {"eval_bleu_en-de", "eval_bleu_de-en"} <= figures.keys()
    model, line = str(tmp_path / "model"), "a dog sees a cat ."
    capsys.readouterr()
    run_subcommand("translate", [model, line, "--target-language", "ger"])
    run_subcommand("translate", [model, f"<2de> {line}"])
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    with pytest.raises(ValueError, match="de, en"):
        run_subcommand("translate", [model, line, "--target-language", "fr"])
    data = ["--test-source", str(corpus / "test.en"), "--test-target", str(corpus / "test.de")]
    languages = ["--source-language", "en", "--target-language", "de"]
    run_subcommand("evaluate", [model, *data, *languages, "--output", str(tmp_path / "report")])
    report = json.loads((tmp_path / "report").read_text(encoding="utf-8"))
    translator = Translator.from_pretrained(model)
    assert report["predictions"] == translator.translate(report["sources"], tgt_lang="de")
    # Who goes on with it names the languages alone.
    again = ["--model_name_or_path", model, "--output_dir", str(tmp_path / "again")]
    main([*again, "--max_steps", "2", *entries(corpus, (["en", "de"], ["de", "en"]))])
    assert Translator.from_pretrained(tmp_path / "again").translate(line, tgt_lang="de")


@pytest.mark.parametrize("tags", [("", ""), ("<2de> ", "<2en> ")], ids=["plain", "tags"])
def test_columns_name_directions_that_are_recorded_and_scored(corpus, tmp_path, tags):
    names = ("source_language", "target_language", "source", "target")
    for split in ("train", "val"):
        english, german = ((corpus / f"{split}.{side}").open() for side in ("en", "de"))
        pairs = list(zip(english, german, strict=True))
        rows = [("en", "deu_Latn", tags[0] + en, de) for en, de in pairs]
        rows += [("deu_Latn", "en", tags[1] + de, en) for en, de in pairs]
        lines = (json.dumps(dict(zip(names, row, strict=True))) for row in rows)
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    files = {"train_file": tmp_path / "train.jsonl", "validation_file": tmp_path / "val.jsonl"}
    words = arguments(corpus, tmp_path / "model", "test", **files, max_steps=2)[4:]
    if any(tags):
        tokenizer = VanillaTransformerTokenizer.train(
            [*NOUNS, *VERBS, *NOUNS.values(), *VERBS.values(), "."], kind="char"
        )
        tokenizer.add_tokens([tag.strip() for tag in tags], special_tokens=True)
        tokenizer.save_pretrained(tmp_path / "tokenizer")
        place = words.index("--tokenizer_kind")
        words[place : place + 2] = ["--tokenizer_name_or_path", str(tmp_path / "tokenizer")]
    figures = main(words)
    assert {"eval_bleu_en-deu_Latn", "eval_bleu_deu_Latn-en"} <= figures.keys()
    recorded = recorded_directions(AutoTokenizer.from_pretrained(tmp_path / "model"))
    expected = [("en", "de", tags[0].strip()), ("de", "en", tags[1].strip())]
    assert sorted(recorded) == sorted(expected)


def test_a_saved_model_learns_a_further_language_by_a_tag_alone(trained, corpus, tmp_path):
    model = shutil.copytree(trained, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(model)
    record_directions(tokenizer, [("en", "de", "")])
    tokenizer.save_pretrained(model)
    options = {"model_name_or_path": model, "source_language": "en", "max_steps": 1}
    words = arguments(corpus, tmp_path / "out", "train", **options)
    with pytest.raises(ValueError, match="no target language 'it': it knows de"):
        main([*words, "--target_language", "it"])
    assert not (tmp_path / "out" / "README.md").exists()
    main([*words, "--target_language", "de-AT"])  # a spelling of the one that it has
    out = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert recorded_directions(out) == [("en", "de", "")]


def test_a_tag_names_the_language_that_a_saved_model_has_or_a_further_one():
    codes = [">>deu<<", ">>ita<<"]
    marian = SimpleNamespace(init_kwargs={}, get_added_vocab=dict, supported_language_codes=codes)
    spelt = texts.spelt_by_model(("en", "it", ">>ita<<"), marian, "model")
    assert spelt == ("en", "ita", ">>ita<<")
    assert texts.spelt_by_model(("en", "eo", "<2eo>"), marian, "model") == ("en", "eo", "<2eo>")


def test_a_run_with_the_tokenizer_of_another_language_is_resumed(trained, corpus, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(trained)
    record_directions(tokenizer, [("en", "de", "")])
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    options = {"source_language": "en", "target_language": "it", "max_steps": 2, "save_steps": 1}
    words = arguments(corpus, tmp_path / "out", "train", **options)
    place = words.index("--tokenizer_kind")
    words[place : place + 2] = ["--tokenizer_name_or_path", str(tmp_path / "tokenizer")]
    main(words)
    shutil.rmtree(tmp_path / "out" / "checkpoint-2")
    main([*words, "--resume_from_checkpoint", "True"])
    assert recorded_directions(AutoTokenizer.from_pretrained(tmp_path / "out")) == [
        ("en", "it", "")
    ]
