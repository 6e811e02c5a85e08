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

CAPTIONS = "".join(f"a dog {number}\n" for number in range(3010))


@pytest.fixture
def run_study(tmp_path, shared_words, monkeypatch, capsys):
    """Runs a demonstration; its commands are checked, and then make a copy of a tiny model."""
    for split, language in itertools.product(("train", "val", adapting.TEST), ("en", "de", "fr")):
        (tmp_path / f"{split}.{language}.gz").write_bytes(gzip.compress(CAPTIONS.encode()))
    pairs = "".join(f"{line}\t{line}!\tgame\n" for line in CAPTIONS.splitlines())
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.en-de.tsv.gz").write_bytes(gzip.compress(pairs.encode()))
    model, out, names = tmp_path / "model", tmp_path / "out", []
    make_model(vocab_size=len(shared_words)).save_pretrained(model)
    shared_words.save_pretrained(model)

    class Echo:
        def translate(self, texts, num_beams):
            return texts

    def make(command, check, env, **streams):
        name, *words = command[3:]
        import_module(f"vanilla_transformer.commands.{name}").parse(words)
        inside = [Path(word) for word in words if Path(word).parent.parent == out]
        (output,) = [path for path in inside if not path.exists()]
        names.append(f"{name} {output.name}")
        if output.suffix == ".tsv":
            output.write_text("a dog\tein Hund\n")
        else:
            shutil.copytree(model, output / "training" if name == "adapt" else output)

    def run(*words):
        paths = ("--data", tmp_path, "--own", tmp_path, "--model", model, "--output-dir", out)
        adapting.main([*map(str, (*words, *paths)), "--seeds", "1"])
        return list(names), capsys.readouterr().out

    monkeypatch.setattr(adapting.subprocess, "run", make)
    monkeypatch.setattr(adapting.Translator, "from_pretrained", lambda *_, **__: Echo())
    return run


@pytest.mark.parametrize(
    ("words", "commands", "row"),
    [
        (("localization", "--pairs", 10_000), 4, "adapted to 10,000 pairs"),
        (("back-translation",), 4, "3,000 pairs"),
        (("distillation",), 5, "one decoder layer, the outputs of the teacher"),
    ],
)
def test_a_demonstration_runs_its_commands_once_and_prints_scores(run_study, words, commands, row):
    names, printed = run_study(*words)
    assert len(set(names)) == commands
    assert re.search(rf"^\| {re.escape(row)} \| \d+\.\d \| \d+\.\d \|", printed, re.MULTILINE)
    assert run_study(*words)[0] == names  # finished models are kept
