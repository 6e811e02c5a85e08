"""`inspect` with pictures and counts: real files, the same numbers as in Python, early refusals."""

import pytest
import torch

from vanilla_transformer.commands.program import main
from vanilla_transformer.files.loading import load_model
from vanilla_transformer.inspection import cost, head_scores

STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.fixture
def texts(corpus):
    return ["--source", str(corpus / "val.en"), "--target", str(corpus / "val.de")]


def test_a_cost_is_printed(trained, capsys):
    sizes = ["--source-length", "9", "--target_length", "4", "--batch", "2"]
    assert not main(["inspect", "cost", str(trained), *sizes])
    found = cost(load_model(str(trained))[0], 9, 4, 2)
    assert capsys.readouterr().out == f"{found}\n"


@pytest.mark.parametrize(
    ("view", "options"),
    [
        ("attention", ["--text", "a dog .", "--draw", "layers", "--kind", "encoder"]),
        ("attention", ["--text", "a dog .", "--draw", "alignment", "--head", "1"]),
    ],
)
def test_a_view_of_a_model_is_drawn(trained, tmp_path, view, options):
    for suffix, start in STARTS.items():
        path = tmp_path / f"picture.{suffix.upper()}"
        assert not main(["inspect", view, str(trained), *options, "--output", str(path)])
        assert path.read_bytes().startswith(start)
    assert len(list(tmp_path.iterdir())) == len(STARTS)


def test_the_table_of_attention_names_its_columns(trained, capsys):
    assert not main(["inspect", "attention", str(trained), "--text", "a dog ."])
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["target", "source", "weight"]
    assert rows
    assert all(0 <= float(row.split()[2]) <= 1 for row in rows)


def test_the_change_of_the_loss_is_that_of_the_model(trained, texts, corpus, tmp_path, capsys):
    path = tmp_path / "heads.png"
    options = [*texts, "--pairs", "3", "--output", str(path)]
    assert not main(["inspect", "heads", str(trained), *options])
    assert path.read_bytes().startswith(STARTS["png"])
    model, tokenizer = load_model(str(trained))
    pairs = [(corpus / f"val.{side}").read_text().splitlines()[:3] for side in ("en", "de")]

    def loss(scored):
        total, count = 0.0, 0
        for source, target in zip(*pairs, strict=True):
            batch = tokenizer([source], text_target=[target], return_tensors="pt")
            logits = scored(**batch).logits[0]
            total += torch.nn.functional.cross_entropy(logits, batch["labels"][0], reduction="sum")
            count += batch["labels"].numel()
        return float(total / count)

    header, *rows = capsys.readouterr().out.splitlines()
    assert header.startswith("attention ")
    printed = [line.split() for line in rows]
    expected = head_scores(model, loss)
    assert [line[0] for line in printed] == list(expected)  # one layer each
    for line, changes in zip(printed, expected.values(), strict=True):
        assert list(map(float, line[3:])) == pytest.approx(changes[0].tolist(), abs=2e-4)


def test_a_picture_that_cannot_be_drawn_leaves_the_older_one(trained, tmp_path):
    path = tmp_path / "there.png"
    path.write_bytes(b"older")
    words = ["attention", str(trained), "--text", "a", "--output", str(path), "--overwrite"]
    assert main(["inspect", *words, "--layer", "9"]) == 1
    assert path.read_bytes() == b"older"
    assert not main(["inspect", *words])
    assert path.read_bytes().startswith(STARTS["png"])
