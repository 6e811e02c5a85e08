"""Trainings that show the translations of similar texts, and models that read a memory."""

import json
import random
import re

import pytest
from made_up_language import NOUNS, OTHERS, arguments, main, write_pairs

from vanilla_transformer import Translator
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.files.loading import load_tokenizer
from vanilla_transformer.model.tokenization_vanilla_transformer import MEMORY_TOKEN
from vanilla_transformer.text.memory import Memory, Pair

HEAD = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus in which only a similar pair can tell how a noun is translated."""
    folder, chance = tmp_path_factory.mktemp("similar"), random.Random(0)
    words = [*NOUNS.items(), *zip(NOUNS, OTHERS, strict=True)]
    for name, count in (("train", 800), ("val", 8), ("test", 8)):
        rows = []
        for _ in range(count):
            noun, german = chance.choice(words)
            about = " ".join(chance.choices("abcdefghij", k=4))
            rows += [(f"{noun.title()} {about} {end}", f"{german} {end}") for end in "xy"]
        write_pairs(folder, name, rows)
    return folder


@pytest.fixture(scope="module")
def model(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "memory"
    main(arguments(corpus, folder, "train", memory="annotate", num_train_epochs=20))
    return folder


def test_a_model_writes_what_a_similar_text_has(model):
    translator = Translator.from_pretrained(model)
    for target in ("Hund", "Köter"):
        memory = Memory([Pair("Dog a b c d x", f"{target} x"), Pair("Cat e f g h x", "Katze x")])
        (output,) = translator.translate(["Dog a b c d y"], memory=memory, return_scores=True)
        assert output.text == f"{target} y"
        assert (output.from_memory.target, output.from_memory.is_exact) == (f"{target} x", False)
        assert translator.translate("Dog a b c d y", memory=memory) == f"{target} y"
    assert MEMORY_TOKEN not in (model / "README.md").read_text("utf-8")


def test_the_translation_of_a_text_with_other_words_is_no_output(model):
    translator = Translator.from_pretrained(model)
    text = "Dog a b c d y"
    alone = translator.translate(text)
    for target in ("Hund", "Köter"):  # as if y said nothing
        memory = Memory([Pair("Dog a b c d x", f"{target} y")])
        assert translator.translate(text, memory=memory) == alone


def test_a_file_is_finished_with_its_own_translations(model, tmp_path, capsys):
    for target in ("Hund", "Köter"):
        messages = f'msgid "Dog a b c d x"\nmsgstr "{target} x"\n\n'
        messages += 'msgid "Dog a b c e y"\nmsgstr ""\n\nmsgid "DOG A B C D X"\nmsgstr ""\n\n'
        messages += 'msgid "Cat a b c d x"\nmsgstr ""\n'
        file = tmp_path / f"{target}.po"
        file.write_text(HEAD + messages, "utf-8")
        run_subcommand("translate", [str(model), "--document", str(file)])
        done = file.with_suffix(".translated.po").read_text("utf-8")
        assert f'\n\nmsgid "Dog a b c e y"\nmsgstr "{target} y"' in done
        assert f'msgid "DOG A B C D X"\nmsgstr "{target.upper()} X"' in done
        # The model wrote the first one. No model wrote the others, which are proposals.
        assert '#, fuzzy\nmsgid "DOG A B C D X"' in done
        assert re.search(r'#, fuzzy\nmsgid "Cat a b c d x"\nmsgstr "\w+ x"', done)
        assert done.count("fuzzy") == 2
        told = "2 of 3 texts come from memory, 2 of them from similar texts, marked as doubtful."
        assert told in capsys.readouterr().err


def test_scores_have_a_memory_without_the_pairs_that_are_scored(model, tmp_path, capsys):
    pairs = [
        ("Dog a b c d y", "Köter y"),
        ("Cat e f g h y", "Mieze y"),
        ("Boat a a b b y", "Kahn y"),
    ]
    memory = [(source[:-1] + "x", target[:-1] + "x") for source, target in pairs]
    files = [tmp_path / name for name in ("test.tsv", "memory.tsv")]
    for file, rows in zip(files, (pairs, memory + pairs), strict=True):
        file.write_text("".join(f"{s}\t{t}\n" for s, t in rows), "utf-8")
    words = [str(model), "--test-file", str(files[0]), "--metrics", "cer", "--json", "--output"]
    for number, memories in enumerate(([], ["--memory", str(files[1])])):
        report = tmp_path / f"{number}.json"
        run_subcommand("evaluate", [*words, str(report), *memories])
        outputs = json.loads(report.read_text("utf-8"))["predictions"]
        assert (outputs == [target for _, target in pairs]) is bool(memories)
    # Only what it has read helps: the pairs themselves do not count.
    files[1].write_text("".join(f"{s}\t{t}\n" for s, t in pairs), "utf-8")
    run_subcommand("evaluate", [*words, str(tmp_path / "2.json"), "--memory", str(files[1])])
    scores = [json.loads((tmp_path / f"{n}.json").read_text("utf-8"))["scores"] for n in (0, 2)]
    assert scores[0] == scores[1]


def test_a_new_model_reads_a_memory_where_its_pairs_are_similar(corpus, tmp_path):
    options = {"choose_defaults": True, "max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    options |= {"d_model": 32, "tokenizer_kind": "word"}
    main(arguments(corpus, tmp_path / "plain", **options))
    assert MEMORY_TOKEN in load_tokenizer(str(tmp_path / "plain")).get_vocab()
    options |= {"resume_from_checkpoint": True, "save_total_limit": 2}
    (tmp_path / "plain" / "model.safetensors").rename(tmp_path / "weights")
    checkpoint = tmp_path / "plain" / "checkpoint-4"
    for path in checkpoint.iterdir():
        path.unlink()
    checkpoint.rmdir()
    main(arguments(corpus, tmp_path / "plain", **options))
    resumed = (tmp_path / "plain" / "model.safetensors").read_bytes()
    assert resumed == (tmp_path / "weights").read_bytes()
    for name, value in (("memory", "none"), ("separate_vocabularies", True)):
        main(arguments(corpus, tmp_path / name, **options, **{name: value}))
        assert MEMORY_TOKEN not in load_tokenizer(str(tmp_path / name)).get_vocab()
