"""Options and streamers of `generate()`, with one and with two vocabularies."""

import threading

import pytest
import torch
from transformers import TextIteratorStreamer, TextStreamer

from vanilla_transformer import VanillaTransformerTokenizer

LIVELY = {"tie_word_embeddings": False, "norm_placement": "pre"}  # does not repeat one token
SIZES = [{}, {"decoder_vocab_size": 60}, {"decoder_vocab_size": 30}]


def source(batch, rows=3):
    return {k: batch[k][:rows] for k in ("input_ids", "attention_mask")}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("beams", [1, 3])
def test_transition_scores_are_those_of_the_tokens(tiny_model, tiny_batch, beams, sizes):
    model, inputs = tiny_model(seed=1, **LIVELY, **sizes), source(tiny_batch())
    found = model.generate(
        **inputs,
        max_new_tokens=5,
        num_beams=beams,
        eos_token_id=None,
        pad_token_id=1,
        output_scores=True,
        return_dict_in_generate=True,
    )
    scores = model.compute_transition_scores(
        found.sequences, found.scores, found.get("beam_indices"), normalize_logits=beams == 1
    )
    logits = model(**inputs, decoder_input_ids=found.sequences[:, :-1]).logits
    log_probabilities = logits.log_softmax(-1)
    expected = log_probabilities.gather(2, found.sequences[:, 1:, None]).squeeze(2)
    torch.testing.assert_close(scores, expected)


@pytest.mark.parametrize(
    "option", [{"encoder_no_repeat_ngram_size": 1}, {"encoder_repetition_penalty": 1.5}], ids=str
)
@pytest.mark.parametrize("size", [40, 60, 30])
def test_ids_of_the_source_are_not_compared_with_those_of_another_vocabulary(
    tiny_model, tiny_batch, option, size
):
    separate = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": size}
    model, inputs = tiny_model(seed=1, **LIVELY, **separate), source(tiny_batch())
    with pytest.raises(ValueError, match=f"{next(iter(option))}.*logits_processor"):
        model.generate(**inputs, max_new_tokens=4, **option)
    assert tiny_model(seed=1, **LIVELY).generate(**inputs, max_new_tokens=4, **option) is not None


OUTPUTS_STAY = [
    {"prompt_lookup_num_tokens": 3},
    {"assistant_early_exit": 1},
    {"assistant_model": {"seed": 2}},
]


@pytest.mark.parametrize("option", OUTPUTS_STAY, ids=str)
def test_guessed_tokens_change_nothing(tiny_model, tiny_batch, option):
    model, inputs = tiny_model(seed=1, **LIVELY), source(tiny_batch(), rows=1)
    if isinstance(changes := option.get("assistant_model"), dict):
        option = {"assistant_model": tiny_model(**LIVELY, **changes)}
    found = model.generate(**inputs, max_new_tokens=8, **option)
    assert torch.equal(found, model.generate(**inputs, max_new_tokens=8))


# --- streamers ----------------------------------------------------------------------------------

SOURCES = ["a dog sees a cat .", "a man likes a horse ."] * 5
TARGETS = ["der Hund sieht eine Katze — ü .", "ein Mann mag ein Pferd é 日本 🙂 ."] * 5


class Collected(TextStreamer):
    """Keeps the pieces that a streamer would print."""

    def on_finalized_text(self, text, stream_end=False):
        self.pieces = [*getattr(self, "pieces", []), text]


@pytest.mark.parametrize("shared", [True, False], ids=["one vocabulary", "two vocabularies"])
@pytest.mark.parametrize("kind", ["word", "unigram", "byte_bpe"])
def test_the_streamed_text_is_that_of_the_output(tiny_model, kind, shared):
    tokenizer = VanillaTransformerTokenizer.train(
        SOURCES, TARGETS, kind=kind, vocab_size=400, shared=shared
    )
    sizes = {"vocab_size": len(tokenizer), "decoder_vocab_size": tokenizer.target_vocab_size}
    inputs, texts = tokenizer(SOURCES[:1], return_tensors="pt"), set()
    for seed in range(3):
        model = tiny_model(
            seed=seed,
            **sizes,
            share_encoder_decoder_embeddings=shared,
            **LIVELY,
        )
        options = {**inputs, "max_new_tokens": 12}
        expected = tokenizer.decode(model.generate(**options)[0], skip_special_tokens=True)
        texts.add(expected)
        for own in (tokenizer, tokenizer.target_tokenizer()):
            streamer = Collected(own, skip_special_tokens=True)
            model.generate(**options, streamer=streamer)
            assert "".join(streamer.pieces) == expected
        streamer = TextIteratorStreamer(tokenizer, skip_special_tokens=True, timeout=60)
        thread = threading.Thread(target=model.generate, kwargs={**options, "streamer": streamer})
        thread.start()
        assert "".join(streamer) == expected
        thread.join()
    assert len(texts) > 1


@pytest.mark.parametrize(
    "positions", [{}, *({"max_position_embeddings": n} for n in (64, 255, 256, 300))], ids=str
)
def test_new_tokens_beside_the_default_length_need_no_warning(
    tiny_model, tiny_batch, heard, positions
):
    kind = "learned" if positions else "sinusoidal"
    model = tiny_model(position_embedding_type=kind, **positions)
    model.generate(**source(tiny_batch()), max_new_tokens=5)
    assert "max_length" not in heard.text
    model.generation_config.max_length = 20
    model.generate(**source(tiny_batch()), max_new_tokens=5)
    assert "max_length" in heard.text
