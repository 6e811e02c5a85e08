"""Words outside the dictionary, pronounced by teachers, become training data."""

import json
from types import SimpleNamespace

import distil_pronunciations
import pytest

from vanilla_transformer.data.text_files import read_lines


class Teacher:
    """Spells words; it has no pronunciation for "zzxy"."""

    calls = 0

    def translate(self, words, num_beams, return_scores, progress):
        Teacher.calls += 1
        for word in words:
            text = "" if word == "zzxy" else " ".join(word.upper())
            yield SimpleNamespace(text=text, score=-float(len(word)))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the program with a list of words; returns the training words that it adds."""
    trained = []
    monkeypatch.setattr(Teacher, "calls", 0)
    monkeypatch.setattr(distil_pronunciations.Translator, "from_pretrained", lambda path: Teacher())
    monkeypatch.setattr(
        distil_pronunciations,
        "train_model",
        lambda task, recipe, folder, overrides, overwrite, command: trained.append(
            (task.load()["train"], recipe, overrides, command)
        ),
    )
    words = tmp_path / "words.txt"
    words.write_text("the\nQwertish\nqwertish\nzzxy\na-b\nœuvre\nblorb\n", encoding="utf-8")

    def call(arguments=""):
        distil_pronunciations.main(
            f"--teachers one two --words {words} --output-dir {tmp_path}/model {arguments}".split()
        )
        return trained[-1]

    return call


def test_new_words_are_labelled_once_and_added(run, tmp_path):
    data, recipe, overrides, command = run("--dropout 0.2")
    assert data[-2:]["source"] == ["qwertish", "blorb"]  # "the" is known, "zzxy" has no label
    assert data[-1:]["target"] == ["B L O R B"]
    assert (recipe, overrides) == ("cmudict-full", ["--dropout", "0.2"])
    assert command[:3] == ["python", "scripts/experiments/distil_pronunciations.py", "--teachers"]
    assert command[-2:] == ["--dropout", "0.2"]
    again, *_ = run()
    assert again[-2:]["source"] == ["qwertish", "blorb"]
    assert Teacher.calls == 1
    first = next(iter(read_lines(str(tmp_path / "model-labels.jsonl"))))
    assert json.loads(first)["teachers"] == ["one", "two"]


def test_labels_with_low_scores_are_left_out(run):
    data, *_ = run("--least-score -6")
    assert data[-1:]["source"] == ["blorb"]
    assert "qwertish" not in data["source"]


def test_other_options_need_other_labels(run):
    run()
    with pytest.raises(ValueError, match="other options"):
        run("--num-beams 2")


def test_other_words_need_other_labels(run, tmp_path):
    run()
    (tmp_path / "words.txt").write_text("qwertish\nzzxy\nblarb\n")
    with pytest.raises(ValueError, match="other options"):
        run()


def test_teachers_that_were_trained_again_need_other_labels(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_text("weights")
        (tmp_path / name / "target_tokenizer.json").write_text("tokens")
    run()
    (tmp_path / "two" / "all_results.json").write_text("{}")  # no part of the model
    run()
    for file in ("model.safetensors", "target_tokenizer.json"):
        path = tmp_path / "two" / file
        before = path.read_text()
        path.write_text("others")
        with pytest.raises(ValueError, match=r"other options, words or teachers"):
            run()
        path.write_text(before)
    run()
    assert Teacher.calls == 1


def test_labels_that_do_not_record_the_files_of_their_teachers_are_refused(run, tmp_path):
    run()
    path = tmp_path / "model-labels.jsonl"
    settings, *rows = path.read_text().splitlines()
    first = json.loads(settings)
    del first["digests"]
    path.write_text("\n".join([json.dumps(first), *rows]) + "\n")
    with pytest.raises(ValueError, match="before it recorded the teachers' files"):
        run()


def test_a_training_goes_on_with_the_words_that_it_began_with(run, tmp_path, capsys):
    run("--least-score -6")
    (tmp_path / "model" / "checkpoint-1").mkdir()
    run("--least-score -6")
    message = r"a training on 1 words of the teachers, with --least-score -6\.0; now there are 2"
    with pytest.raises(ValueError, match=message):
        run()
    (tmp_path / "model" / "checkpoint-1").rmdir()
    run()  # it begins anew
    (tmp_path / "model" / "checkpoint-1").mkdir()
    with pytest.raises(ValueError, match="on 2 words"):
        run("--least-score -6")
    (tmp_path / "model-used-labels.json").unlink()
    capsys.readouterr()
    run("--least-score -6")
    assert "does not record its words" in capsys.readouterr().out


def test_without_words_the_list_is_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(distil_pronunciations, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        distil_pronunciations.parse_options(["--teachers", "x", "--output-dir", "y"])
    assert "--words FILE" in capsys.readouterr().err
