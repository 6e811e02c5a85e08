"""Streamers of transformers: they show the text that `generate()` returns, token by token."""

import threading

import pytest
from transformers import TextIteratorStreamer, TextStreamer

from vanilla_transformer import VanillaTransformerTokenizer

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
            tie_word_embeddings=False,
            norm_placement="pre",
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
