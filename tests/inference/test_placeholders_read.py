"""A model that has learnt tokens for placeholders reads these, and the parts come back."""

from dataclasses import replace

import pytest
from split_texts import split_by
from transformers import GenerationConfig

from vanilla_transformer import Translator, VanillaTransformerTokenizer
from vanilla_transformer.inference.engine import Hypothesis
from vanilla_transformer.inference.engine_choice import Engines
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.segments import Fixed, Segment

TEXTS = ["open the file now ( ) . , ; a b c d e", "- / : % $ { } _ s n 0 1"]


class Copying:
    """An engine that writes the tokens of a source, those of placeholders from behind."""

    name, batch_tokens = "copying", 1024

    def __init__(self, tokenizer, change=lambda places: places):
        self.tokenizer, self.change, self.sources = tokenizer, change, []
        self.special = {*tokenizer.convert_tokens_to_ids(list(tokenizer.placeholders))}

    def problems(self, search):
        return []

    def generate(self, sources, search, batch_tokens, align=False, on_batch=None):
        self.sources += [self.tokenizer.convert_ids_to_tokens(list(ids)) for ids in sources]
        outputs = []
        for ids in sources:
            back = [place for place, index in enumerate(ids) if index in self.special]
            places = [
                back.pop() if index in self.special else place
                for place, index in enumerate(ids[:-1])
            ]
            places = tuple(self.change(places))
            body = tuple(ids[place] for place in places)
            outputs.append([Hypothesis(body, ids[-1], places)] * search.n_best)
        return outputs


@pytest.fixture(params=["bpe", "char", "byte_bpe", "word"])
def tokenizer(request):
    tokenizer = VanillaTransformerTokenizer.train(TEXTS, kind=request.param, vocab_size=300)
    tokenizer.add_placeholders()
    return tokenizer


def translator_of(tokenizer, limit=100, **options):
    settings = GenerationConfig(
        decoder_start_token_id=0, eos_token_id=2, pad_token_id=1, max_length=200
    )
    return Translator(Engines(Copying(tokenizer, **options)), tokenizer, settings, limit)


def read_by(translator):
    return [[t for t in tokens if t.startswith("<ph")] for tokens in translator.engine.sources]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("open %(name)s now {0} .", ["%(name)s", "{0}"]),
        ("{0} {0}", ["{0}", "{0}"]),
        ("open <ph3> now", ["<ph3>"]),
        ("https://a.org/b?c=d open --force", ["https://a.org/b?c=d", "--force"]),
        (" ".join(["{x}"] * 9), ["{x}"] * 9),
    ],
)
def test_each_part_is_one_token_and_comes_back(tokenizer, text, parts):
    translator = translator_of(tokenizer)
    output = translator.translate(text, return_links=True, return_tokens=True)
    assert read_by(translator) == [[f"<ph{n}>" for n in range(1, min(len(parts), 8) + 1)]]
    assert [part for part in output.text.split() if part in parts] == parts[::-1]
    links = output.links
    for part, index in zip(links.in_output, links.aligned, strict=True):
        linked = text[slice(*links.in_source[index])]
        assert linked == output.text[slice(*part)] or len(parts) > 8


@pytest.mark.parametrize(
    ("text", "numbered"),
    [
        ("%s %s", "%2$s %1$s"),
        ("open %s %d %s now", "open %3$s %2$d %1$s now"),
        ("%1$s %2$s", "%2$s %1$s"),
    ],
)
def test_equal_placeholders_that_change_places_are_numbered(tokenizer, text, numbered):
    translator = translator_of(tokenizer)
    job = translator.plan([text], TranslateOptions())
    message = job.texts[0]._replace(flags=frozenset({"c-format"}))
    assert translator.run(replace(job, texts=[message]))[0][0].text == numbered
    assert translator.translate(text) == (text if "$" not in text else numbered)


@pytest.mark.parametrize("tokenizer", ["bpe"], indirect=True)
@pytest.mark.parametrize(
    ("text", "written", "numbered"),
    [
        ("open %s now %s the {x}", "the now <ph2> open <ph1>", "the {x} now %2$s open %1$s"),
        ("open %d , %d --all", ", <ph2> open <ph1>", ", %2$d --all open %1$d"),
        ("%s now %s b %s {x}", "now <ph3> <ph2>", "%1$s now %3$s {x} %2$s"),
        ("open 10% , %s now %s", "now <ph2> , 10 <ph1> open", "now %2$s , 10% %1$s open"),
        ("open\u00a0%s now %s", "now <ph2> open <ph1>", "now %2$s open\u00a0%1$s"),
        ("%s %s", "now now now <ph2> %s", "now now now %2$s %1$s"),
    ],
)
def test_what_comes_back_leaves_each_placeholder_its_value(tokenizer, text, written, numbered):
    translator = translator_of(tokenizer)
    ids = tokenizer(written)["input_ids"]
    translator.engine.generate = lambda sources, *_: [
        [
            Hypothesis(
                (*ids[:-1],), ids[-1], [source.index(i) if i in source else 0 for i in ids[:-1]]
            )
        ]
        for source in sources
    ]
    job = translator.plan([text], TranslateOptions())
    flagged = job.texts[0]._replace(flags=frozenset({"c-format"}))
    assert translator.run(replace(job, texts=[flagged]))[0][0].text == numbered
    assert translator.translate(text, return_tokens=True).untranslated


@pytest.mark.parametrize(
    "text", ["%s", "{name}", "https://a.org/b", "\U0001f60a", " %d\n", "<ph3>"]
)
def test_one_part_alone_needs_no_model(tokenizer, text):
    translator = translator_of(tokenizer)
    output = translator.translate(text, return_scores=True)
    assert (output.text, output.quality) == (text, None)
    assert not translator.engine.sources


def test_a_text_without_such_parts_is_read_as_ever(tokenizer):
    translator = translator_of(tokenizer)
    (segment,) = split_by(translator, "open the file now .").segments
    assert list(segment.ids) == tokenizer("open the file now .")["input_ids"]
    translator.translate("open %s now", keep=False)
    assert read_by(translator) == [[]]


@pytest.mark.parametrize("tokenizer", ["bpe"], indirect=True)
@pytest.mark.parametrize("change", [lambda ids: ids[:1], lambda ids: ids * 2, lambda ids: []])
def test_what_the_model_loses_or_doubles_is_put_right(tokenizer, change):
    output = translator_of(tokenizer, change=change).translate("{0} open %s", num_beams=2, n_best=2)
    for text in output:
        assert [text.count(part) for part in ("{0}", "%s", "<ph")] == [1, 1, 0]


@pytest.mark.parametrize("tokenizer", ["bpe"], indirect=True)
@pytest.mark.parametrize("source", ["open the file", "open {0}"])
def test_what_a_model_invents_is_taken_out_also_where_the_source_has_no_part(tokenizer, source):
    translator = translator_of(tokenizer)
    ids = tokenizer("%s open %1 now $ 1 %n")["input_ids"]
    translator.engine.generate = lambda sources, search, *_: [
        [Hypothesis(tuple(ids[:-1]), ids[-1], (0,) * len(ids[:-1]))] for _ in sources
    ]
    written = "open %1 now $ 1"
    output = translator.translate(source)
    assert output.replace("{0}", "").split() == written.split()
    assert translator.translate(source, keep=False) == "%s open %1 now $ 1 %n"


@pytest.mark.parametrize("tokenizer", ["bpe", "char"], indirect=True)
def test_unknown_characters_are_read_as_tokens(tokenizer):
    translator = translator_of(tokenizer)
    output = translator.translate("open Жя now", return_tokens=True)
    assert read_by(translator) == [["<ph1>"]]
    assert output.text.count("Жя") == 1
    assert output.unknown_share == 0


def test_what_patterns_match_is_read_as_tokens(tokenizer):
    translator = translator_of(tokenizer)
    options = {"keep_patterns": [r"the file|d e"]}
    assert translator.translate("open the file now d e", **options) == "open d e now the file"
    assert read_by(translator) == [["<ph1>", "<ph2>"]]
    assert translator.translate("open the file", keep=False) == "open the file"
    assert read_by(translator)[1:] == [[]]
    with pytest.raises(ValueError, match="`keep_patterns` has no effect without `keep`"):
        translator.translate("open the file", keep=False, **options)
    translator.translate("open the file now", keep_patterns="the file")  # a text is one pattern
    assert read_by(translator)[2:] == [["<ph1>"]]


@pytest.mark.parametrize("text", ["open 😊 now", "open ⚠️ now 😊", "Жя file now"])
def test_other_models_do_not_read_unknown_characters(text):
    tokenizer = VanillaTransformerTokenizer.train([*TEXTS, "\ufe0f"], kind="bpe", vocab_size=300)
    translator = translator_of(tokenizer)
    assert translator.translate(text) == text
    translator.translate(text, keep=False)
    assert ["<unk>" in tokens for tokens in translator.engine.sources] == [False, True]


LETTERS = ["w\u0301", "\u1100\u1161\u11a8", "\u0b95\u0bc6\u0bbe", "e\u0323\u0302"]


@pytest.mark.parametrize("tokenizer", ["bpe", "char"], indirect=True)
@pytest.mark.parametrize("letter", LETTERS)
def test_a_letter_of_several_characters_comes_back_whole(tokenizer, letter):
    text = f"open {letter} now"
    assert translator_of(tokenizer).translate(text) == text
    other = VanillaTransformerTokenizer.train(TEXTS, kind="bpe", vocab_size=300)
    assert translator_of(other).translate(text).count(letter) == 1


@pytest.mark.parametrize("tokenizer", ["bpe"], indirect=True)
def test_a_long_line_is_cut_beside_its_parts(tokenizer):
    translator = translator_of(tokenizer, limit=12)
    text = " ".join(["open {{ a.b }}", "the https://a.org/a;b, c", "file {0} now"] * 4)
    split = split_by(translator, text)
    assert len(split.segments) > 3
    assert all(len(segment) <= 12 for segment in split.segments)
    pieces = [piece for piece in split.texts[0] if isinstance(piece, Fixed | Segment)]
    kept = [piece.text[slice(*span)] for piece in pieces for span in piece.kept]
    assert kept == ["{{ a.b }}", "https://a.org/a;b", "{0}"] * 4
    plain = split_by(translator, text, keep=False)
    assert all(len(segment) <= 12 for segment in plain.segments)


def test_tokens_that_are_reserved_are_no_tags(tokenizer):
    tokenizer.add_tokens(["<2de>"], special_tokens=True)
    translator = translator_of(tokenizer)
    translator.translate(["<2de> open %s", "<ph2> open"])
    assert read_by(translator) == [["<ph1>"], ["<ph1>"]]
    assert [tokens[0] for tokens in translator.engine.sources] == ["<2de>", "<ph1>"]
