"""Given pairs are read as `translate` reads its sources, and as it writes its outputs."""

import pytest
from tiny_models import make_model
from transformers import set_seed

from vanilla_transformer import Translator, VanillaTransformerTokenizer

TEXTS = ["open the file now .", "save it to the folder", "a b c d e f"]


def translator_of(kind="word", placeholders=True):
    tokenizer = VanillaTransformerTokenizer.train(TEXTS, kind=kind, vocab_size=300)
    if placeholders:
        tokenizer.add_placeholders()
    model = make_model(noise=0.3, d_model=32, encoder_layers=1, vocab_size=len(tokenizer))
    model.generation_config.max_new_tokens = 8
    return Translator.from_model(model, tokenizer)


@pytest.mark.parametrize("kind", ["word", "bpe", "char", "byte_bpe"])
@pytest.mark.parametrize(
    ("pair", "as_read"),
    [
        (("open %s now", "save %s"), ("open <ph1> now", "save <ph1>")),
        (("a {0} b %d", "%d c {0}"), ("a <ph1> b <ph2>", "<ph2> c <ph1>")),
        (("see https://a.org/b?c=d now", "c"), ("see <ph1> now", "c")),
        (("open %s", "save %s %s"), ("open <ph1>", "save <ph1> %s")),
    ],
)
def test_parts_that_are_kept_are_tokens(kind, pair, as_read):
    translator = translator_of(kind)
    (score,), (expected,) = (
        translator.score([source], [target]) for source, target in (pair, as_read)
    )
    assert score.tokens == expected.tokens
    assert score.token_scores == pytest.approx(expected.token_scores, abs=1e-5)
    assert [t for t in score.tokens if "<ph" in t] == [t for t in as_read[1].split() if "<ph" in t]


def test_a_score_is_that_which_translate_gives_its_output():
    translator = translator_of()
    set_seed(0)
    lines = [text.removesuffix(" .") for text in TEXTS]  # of one sentence
    sources = [f"{text} {part}" for text in lines for part in ("%s", "{0}", "--all", "/etc/x")]
    unused = [f"<ph{number}>" for number in range(2, 9)]
    unwritten = translator.tokenizer.convert_tokens_to_ids(["<s>", "<pad>", "<unk>", *unused])
    rows = translator.translate(
        sources,
        do_sample=True,
        temperature=4.0,
        num_beams=1,
        n_best=20,
        suppress_tokens=unwritten,
        return_scores=True,
        return_tokens=True,
    )
    pairs = [
        (source, output)
        for source, row in zip(sources, rows, strict=True)
        for output in row
        if output.tokens.count("<ph1>") == 1
    ]
    scores = translator.score([source for source, _ in pairs], [o.text for _, o in pairs])
    assert len(pairs) > 5
    for (_, output), score in zip(pairs, scores, strict=True):
        count = len(output.tokens)  # one that is cut off has no end
        assert score.tokens[:count] == output.tokens
        assert score.token_scores[:count] == pytest.approx(output.token_scores, abs=1e-4)


@pytest.mark.parametrize("part", ["%s", "https://a.org/b", "{name}", "Жя"])
def test_a_part_is_linked_with_itself(part):
    (alignment,) = translator_of().align([f"open {part} now"], [f"a b {part} ."])
    assert [source for source, target in alignment.words if target == 2] == [1]
    assert alignment.target_tokens == ("a", "b", "<ph1>", ".", "</s>")
    assert [target for _, target in alignment.tokens] == [0, 1, 2, 3]


@pytest.mark.parametrize("part", ["😊", "Жя", "日本"])
def test_other_models_read_and_write_no_unknown_parts(part):
    translator = translator_of("bpe", placeholders=False)
    (score,), (plain,) = (
        translator.score([f"open {with_part}now"], [f"a b{with_part and f' {part}'}"])
        for with_part in (f"{part} ", "")
    )
    assert score.tokens == plain.tokens
    assert score.token_scores == pytest.approx(plain.token_scores, abs=1e-5)
    (alignment,) = translator.align([f"open {part} now"], [f"a b {part}"])
    assert (1, 2) in alignment.words
