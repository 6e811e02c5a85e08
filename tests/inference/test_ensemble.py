"""Ensembles: the mean of probabilities, against a search without caches."""

import shutil
from dataclasses import replace

import pytest
import torch
from made_up_language import SIZES
from tiny_models import make_model
from transformers import GenerationConfig

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.files.loading import load_tokenizer, load_weights
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.translator import Translator

TEXTS = ["a dog sees a cat .", "a man", "a bird finds a child ."]


@pytest.fixture(scope="module")
def members(trained, tmp_path_factory):
    """The trained model, and two with other weights of its size and vocabulary."""
    paths = [str(trained)]
    tokenizer = load_tokenizer(str(trained))
    for seed in (1, 2):
        folder = tmp_path_factory.mktemp("member")
        config = load_weights(str(trained)).config
        sizes = {"vocab_size": config.vocab_size, "decoder_vocab_size": config.decoder_vocab_size}
        make_model(seed=seed, **{**SIZES, **sizes}).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        paths.append(str(folder))
    return paths


@torch.no_grad()
def best_by_hand(paths, ids, length):
    """Greedy search over the mean probabilities, all tokens computed anew at each step."""
    models = [load_weights(path).eval() for path in paths]
    target = [models[0].config.decoder_start_token_id]
    for _ in range(length):
        inputs = {"input_ids": torch.tensor([ids]), "decoder_input_ids": torch.tensor([target])}
        mean = sum(model(**inputs).logits[0, -1].softmax(-1) for model in models) / len(models)
        target.append(mean.argmax().item())
        if target[-1] == 2:
            break
    return target[1:]


def test_greedy_search_takes_the_most_probable_token_of_the_mean(members):
    translator = Translator.from_pretrained(members, device="cpu")
    found = translator.translate(
        TEXTS, num_beams=1, max_new_tokens=7, return_tokens=True, return_scores=True
    )
    tokenizer = load_tokenizer(members[0])
    for text, output in zip(TEXTS, found, strict=True):
        ids = best_by_hand(members, tokenizer(text)["input_ids"], 7)
        assert list(output.tokens) == tokenizer.convert_ids_to_tokens(ids, side="target")


def test_a_beam_search_ranks_by_the_mean_of_the_probabilities(members):
    translator = Translator.from_pretrained(members[1:], device="cpu")

    def search(**options):
        asked = TranslateOptions.of(max_new_tokens=6, return_scores=True, **options)
        job = translator.plan(TEXTS, asked)
        return translator.run(replace(job, call=replace(job.call, has_optional_retries=False)))

    greedy = [one for (one,) in search(num_beams=1)]
    wide = search(num_beams=6, n_best=6, length_penalty=0.0)
    for one, several in zip(greedy, wide, strict=True):
        scores = [output.score for output in several]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] >= sum(one.token_scores) - 1e-5


def test_equal_members_change_nothing(trained):
    alone = Translator.from_pretrained(str(trained), "transformers", "cpu")
    twice = Translator.from_pretrained([str(trained)] * 2, device="cpu")
    for num_beams in (1, 3):
        expected = alone.translate(TEXTS, num_beams=num_beams, return_scores=True)
        found = twice.translate(TEXTS, num_beams=num_beams, return_scores=True)
        assert [one.text for one in found] == [one.text for one in expected]
        scores = [one.score for one in expected]
        assert [one.score for one in found] == pytest.approx(scores, abs=1e-5)


def test_what_cannot_be_averaged_is_refused(trained, members, tmp_path):
    other = VanillaTransformerTokenizer.train(["x y z"], kind="word")
    make_model(vocab_size=len(other)).save_pretrained(tmp_path)
    other.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="another vocabulary"):
        Translator.from_pretrained([str(trained), str(tmp_path)])
    with pytest.raises(ValueError, match="CTranslate2 cannot compute this: several models"):
        Translator.from_pretrained(members, engine="ctranslate2")
    translator = Translator.from_pretrained(members, device="cpu")
    with pytest.raises(ValueError, match=r"1\.2\): use another"):
        translator.translate(TEXTS[0], repetition_penalty=1.2)
    for name in ("decoder_start_token_id", "eos_token_id"):
        settings = GenerationConfig.from_pretrained(members[1])
        setattr(settings, name, 3)
        settings.save_pretrained(shutil.copytree(members[1], tmp_path / name))
        with pytest.raises(ValueError, match=f"another {name}"):
            Translator.from_pretrained([str(trained), str(tmp_path / name)])


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize(
    "options",
    [
        {"suppress_tokens": [4, 5, 6, 7, 8, 9]},
        {"bad_words_ids": [[4], [5], [6]]},
        {"min_new_tokens": 5},
        {"no_repeat_ngram_size": 1},
    ],
)
def test_what_a_search_forbids_depends_on_no_order_of_the_members(members, options, num_beams):
    options = {**options, "num_beams": num_beams, "max_new_tokens": 7, "return_tokens": True}
    found = [
        Translator.from_pretrained(paths, device="cpu").translate(TEXTS, **options)
        for paths in (members, members[::-1])
    ]
    assert found[0] == found[1]


def test_an_ensemble_draws_from_the_mean(members):
    translator = Translator.from_pretrained(members, device="cpu")
    expected = translator.translate(TEXTS, num_beams=1, max_new_tokens=7)
    options = {"do_sample": True, "num_beams": 1, "temperature": 1e-4, "max_new_tokens": 7}
    assert translator.translate(TEXTS, **options) == expected
