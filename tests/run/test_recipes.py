"""The recipes for data on the Hub run with toy data in the Hub's format and at a toy size."""

import json

import pytest
from datasets import Dataset, DatasetDict
from toy import REPOSITORY, SIZES, main

SMALL = {**SIZES, "vocab_size": 120, "max_steps": 4, "warmup_steps": 2, "bf16": False}
SMALL |= {"save_steps": 2, "eval_steps": 2, "max_tokens": 400, "generation_max_length": 12}
CARDS = REPOSITORY / "model_cards"


@pytest.fixture(scope="module")
def data(corpus, tmp_path_factory):
    """Rows {"translation": {"en": ..., "de": ...}}, in the three splits."""
    splits = {}
    for split, name in (("train", "train"), ("validation", "val"), ("test", "test")):
        sides = [(corpus / f"{name}.{side}").read_text().splitlines() for side in ("en", "de")]
        pairs = [{"en": en, "de": de} for en, de in zip(*sides, strict=True)]
        splits[split] = Dataset.from_dict({"translation": pairs})
    folder = tmp_path_factory.mktemp("hub") / "data"
    DatasetDict(splits).save_to_disk(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "languages", "tied"), [("wmt14-en-de", "ende", True), ("iwslt14-de-en", "deen", False)]
)
def test_a_recipe_for_data_of_the_hub(name, languages, tied, data, tmp_path):
    changes = {**SMALL, "output_dir": tmp_path / "out", "dataset_name": data, "report_to": "none"}
    if languages == "deen":
        changes |= {"num_train_epochs": 1, "eval_strategy": "steps", "save_strategy": "steps"}
    argv = [str(part) for key, value in changes.items() for part in (f"--{key}", value)]
    figures = main([str(REPOSITORY / "scripts" / "recipes" / f"{name}.yaml"), *argv])
    assert {"train_loss", "eval_bleu", "test_bleu"} <= figures.keys()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["share_encoder_decoder_embeddings"] is tied
    assert config["label_smoothing"] == 0.1
    card = (tmp_path / "out" / "README.md").read_text()
    source = json.loads((data / "test" / "dataset_info.json").read_text())
    assert source["features"]["translation"]
    example = Dataset.load_from_disk(str(data / "train"))[0]["translation"][languages[:2]]
    assert example in card
    assert "**Not run.**" in (CARDS / f"{name}.md").read_text(encoding="utf-8")
