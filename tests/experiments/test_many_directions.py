"""Texts with a word for the target language, and scores of each direction."""

import gzip
import json

import many_directions
import pytest

ROWS = {
    "en": ["a small dog runs home", "a tree"],
    "de": ["ein kleiner Hund rennt heim", "ein Baum"],
    "fr": ["un petit chien rentre", "un arbre"],
}


@pytest.fixture
def data(tmp_path):
    for language, rows in ROWS.items():
        for split in ("train", "val"):
            with gzip.open(tmp_path / f"{split}.{language}.gz", "wt", encoding="utf-8") as file:
                file.writelines(f"{row}\n" for row in rows)
    return tmp_path


def read(path):
    return gzip.open(path, "rt", encoding="utf-8").read().splitlines()


def test_each_direction_has_its_pairs(data, tmp_path):
    folder = tmp_path / "texts"
    many_directions.main(
        f"prepare --data {data} --languages en de fr --output-dir {folder} "
        "--validation-pairs 6".split()
    )
    sources, targets = read(folder / "train.source.gz"), read(folder / "train.target.gz")
    assert len(sources) == len(targets) == 12
    assert ("2de a tree", "ein Baum") in zip(sources, targets, strict=True)
    assert ("2en un arbre", "a tree") in zip(sources, targets, strict=True)
    assert len({source.split()[0] for source in sources}) == 3
    assert len(read(folder / "val.source.gz")) == 6  # one of each direction


def test_directions_are_scored_one_by_one(data, tmp_path, monkeypatch, capsys):
    class Copier:
        def translate(self, texts, num_beams):
            assert num_beams == 2
            assert len({text.split()[0] for text in texts}) == 1
            return ROWS["de"]

    monkeypatch.setattr(many_directions.Translator, "from_pretrained", lambda *_: Copier())
    many_directions.main(
        f"evaluate --model x --data {data} --languages en de --num-beams 2 "
        f"--json {tmp_path}/scores.json".split()
    )
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert list(scores) == ["en-de", "de-en"]
    assert scores["en-de"] > 50 > scores["de-en"]
    assert "| en→de |" in capsys.readouterr().out


@pytest.mark.parametrize("languages", ["en", "en en", "en de en"])
def test_one_language_is_no_direction(languages, data, capsys):
    with pytest.raises(SystemExit):
        many_directions.main(
            f"prepare --data {data} --output-dir x --languages {languages}".split()
        )
    assert "different languages" in capsys.readouterr().err


def test_files_of_different_lengths_are_refused_also_with_a_limit(data, tmp_path):
    with gzip.open(data / "val.de.gz", "wt", encoding="utf-8") as file:
        file.write("ein kleiner Hund rennt heim\n")
    with pytest.raises(ValueError, match=r"val\.(en|de)\.gz"):
        many_directions.read_direction(str(data), "val", "en", "de", limit=1)
