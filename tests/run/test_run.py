"""Whole runs in processes of their own: and what they leave."""

import json
import re
import subprocess

from huggingface_hub import ModelCard
from made_up_language import arguments, main
from transformers import GenerationConfig

from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.run.model_card import wrapped_command

CODE = {"configuration", "modeling", "tokenization"}


def results(folder):
    return json.loads((folder / "all_results.json").read_text(encoding="utf-8"))


def test_a_run_leaves_everything_that_belongs_to_a_model(trained):
    names = {path.name for path in trained.iterdir()}
    assert {"model.safetensors", "config.json", "generation_config.json", "tokenizer.json"} <= names
    assert {f"{part}_vanilla_transformer.py" for part in CODE} <= names
    assert not {name for name in names if name.endswith((".pt", ".pkl", "pytorch_model.bin"))}
    assert results(trained)["test_bleu"] > 90
    search = GenerationConfig.from_pretrained(trained)
    assert (search.num_beams, search.max_length) == (2, 16)


def test_the_card_holds_the_command_and_the_scores(trained):
    card = (trained / "README.md").read_text(encoding="utf-8")
    assert "\nvanilla-transformer train " in card
    assert f"--output_dir {trained}" in card
    assert f"{results(trained)['test_bleu']:.2f}" in card
    assert "model-index" in card
    assert r"nrefs:1\|bs:1000\|seed:12345\|case:mixed" in card  # escaped in the table


def test_a_long_command_on_a_card_has_several_lines_that_a_shell_reads_as_one():
    options = [text for number in range(9) for text in (f"--option_{number}", "two words", "$x")]
    words = ["vanilla-transformer", "train", "recipe.yaml", *options]
    wrapped = wrapped_command(words)
    assert max(map(len, wrapped.splitlines())) <= 95
    assert all(line.startswith("    --option_") for line in wrapped.splitlines()[1:])
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {wrapped}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == words


def test_a_card_shows_what_was_given_and_states_no_more(corpus, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("# ```\n# <script>\nseed: 1\n")
    label = "Pairs\n```\n<img src=x onerror=alert(1)> & more"
    for number, given in enumerate(({"dataset_label": label}, {})):
        splits = ("train", "validation") if number else ("train",)
        argv = arguments(corpus, tmp_path / f"{number}", *splits, max_steps=1, **given)
        main([str(recipe), *argv])
    first, second = (ModelCard.load(tmp_path / f"{number}" / "README.md") for number in (0, 1))
    assert "Data: Pairs ``` &lt;img src=x onerror=alert(1)&gt; &amp; more." in first.text
    assert first.text.count("<img") == 1  # in the command
    for language in ("bash", "yaml"):
        block = first.text.partition(f"\n````{language}\n")[2].partition("\n````\n")[0]
        assert "```\n" in block
    assert "Data: train.en, train.de." in second.text
    assert {result.dataset_name for result in second.data.eval_results} == {"val.en, val.de"}
    assert second.data.license is None


def test_a_training_learns_the_quality_of_its_outputs(corpus, tmp_path):
    sides = {"source": "en", "target": "de"}
    options = {f"validation_{side}": corpus / f"train.{suffix}" for side, suffix in sides.items()}
    main(arguments(corpus, tmp_path / "run", "train", max_steps=40, **options))
    translator = Translator.from_pretrained(tmp_path / "run", device="cpu")
    (output,) = translator.translate(["a dog sees a cat ."], return_scores=True)
    assert 0 < output.quality <= 100
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert re.search(r"rank correlation with chrF is -?[01]\.\d\d,.* \d+% of the\s+worst", card)


def test_validation_texts_that_a_vocabulary_does_not_know_do_not_end_a_training(corpus, tmp_path):
    data = {}
    for side, suffix in {"source": "en", "target": "de"}.items():
        lines = (corpus / f"train.{suffix}").read_text(encoding="utf-8")
        data[f"validation_{side}"] = tmp_path / f"validation.{suffix}"
        data[f"validation_{side}"].write_text(f"😀\n{lines}🎉 🎉\n", encoding="utf-8")
    options = {**data, "max_steps": 5, "tokenizer_kind": "bpe"}
    main(arguments(corpus, tmp_path / "run", "train", "test", **options))
    assert {"test_loss", "eval_chrf"} <= results(tmp_path / "run").keys()
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert re.search(r"calibrated on 400 outputs \(2 ", card)
