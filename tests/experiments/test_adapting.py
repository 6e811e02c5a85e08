"""The commands of the demonstrations of adapting are valid, and their tables hold the scores."""

import gzip
import itertools
import re
import shutil
from importlib import import_module
from pathlib import Path

import adapting
import pytest
from conftest import make_model

CAPTIONS = [f"a dog {number}" for number in range(3010)]


@pytest.fixture
def folder(tmp_path, shared_words):
    """Captions, pairs of another domain, and a tiny model."""
    for split, language in itertools.product(("train", "val", adapting.TEST), ("en", "de", "fr")):
        with gzip.open(tmp_path / f"{split}.{language}.gz", "wt") as file:
            file.write("\n".join(CAPTIONS))
    for split in ("train", "valid", "test"):
        with gzip.open(tmp_path / f"{split}.en-de.tsv.gz", "wt") as file:
            file.write("".join(f"{line}\t{line}!\tgame\n" for line in CAPTIONS))
    make_model(vocab_size=len(shared_words)).save_pretrained(tmp_path / "model")
    shared_words.save_pretrained(tmp_path / "model")
    return tmp_path


@pytest.fixture
def run_study(folder, monkeypatch, capsys):
    """Runs a demonstration whose commands are checked, and then make a copy of the tiny model."""

    class Echo:
        def translate(self, texts, num_beams):
            return texts

    def make(command, check, env, **streams):
        name, *words = command[3:]
        subcommand = import_module(f"vanilla_transformer.commands.{name}")
        subcommand.check(subcommand.parse(words))
        inside = [Path(word) for word in words if Path(word).parent.parent == folder / "out"]
        (output,) = [path for path in inside if not path.exists()]
        names.append(f"{name} {output.name}")
        if output.suffix == ".tsv":
            output.write_text("a dog\tein Hund\n")
        else:
            shutil.copytree(folder / "model", output / "training" if name == "adapt" else output)

    def run(*words):
        names.clear()
        paths = ("--data", folder, "--own", folder, "--model", folder / "model")
        adapting.main([*map(str, (*words, *paths, "--output-dir", folder / "out")), "--seeds", "1"])
        return names, capsys.readouterr().out

    names, scores = [], itertools.count(1)
    monkeypatch.setattr(adapting.subprocess, "run", make)
    monkeypatch.setattr(adapting.Translator, "from_pretrained", lambda *_, **__: Echo())
    monkeypatch.setattr(adapting, "score_texts", lambda metric, *_: {metric: float(next(scores))})
    return run


@pytest.mark.parametrize(
    ("demonstration", "commands", "row"),
    [
        (
            ("localization", "--pairs", 10_000),
            [
                *("adapt mixed-10000-1", "adapt texts-10000-1", "adapt alone-10000-1"),
                "train nothing-10000-1",
            ],
            "adapted to 10,000 pairs",
        ),
        (
            ("back-translation",),
            ["train alone-1", "train backward-1", "translate back-1.tsv", "train both-1"],
            "3,000 pairs",
        ),
        (
            ("distillation",),
            [
                *("translate outputs.tsv", "train captions-1", "train outputs-1"),
                *("train tokens-1", "train tokens-longer-1"),
            ],
            "one decoder layer, the outputs of the teacher",
        ),
        (("third-language",), ["vocabulary grown", "train three-1"], "with French"),
    ],
)
def test_a_demonstration_runs_its_commands_once_and_prints_scores(
    run_study, demonstration, commands, row
):
    names, printed = run_study(*demonstration)
    assert names == commands
    assert re.search(rf"^\| {re.escape(row)} \| \d+\.0 \| \d+\.0 \|", printed, re.MULTILINE)
    again = run_study(*demonstration)
    assert again[0] == []  # finished models and scores are kept
    assert again[1].splitlines()[-1] == printed.splitlines()[-1] or "times" in printed


def test_a_vocabulary_of_many_languages_cuts_the_captions_into_words_that_it_knows(
    run_study, folder
):
    study = adapting.Study(
        adapting.argparse.Namespace(
            output_dir=str(folder / "out"), demonstration="trimming", data=str(folder)
        )
    )
    adapting.make_many_languages(study, folder / "nllb", tokens=200)
    tokenizer = adapting.NllbTokenizer.from_pretrained(folder / "nllb")
    assert tokenizer.unk_token_id not in tokenizer(CAPTIONS[7])["input_ids"]
    assert len(tokenizer) >= 400  # with the languages
