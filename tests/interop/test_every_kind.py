"""Every subcommand on every kind of converted model: it works, or ends in one plain sentence."""

import asyncio
import html
import re

import pytest
import torch
from converted_models import KINDS, convert_all
from servers import plan_of

from vanilla_transformer.commands import program
from vanilla_transformer.documents.formats import read_document
from vanilla_transformer.documents.translation import translate_document
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.serving.models import load_models
from vanilla_transformer.serving.monitoring import Metrics
from vanilla_transformer.serving.settings import Settings, parse_model
from vanilla_transformer.text.kept import kept_spans
from vanilla_transformer.tokenizer_sides import vocabulary_of

NO_TOKENIZER = ("table", "torch", "system-a")
"""Kinds without a tokenizer."""
NAMES = (*KINDS, "fairseq", "opennmt-py", "eole", *NO_TOKENIZER, "encoder")

FILES = ("--source", "SOURCE", "--target", "TARGET")
TRANSLATE = ("translate", "MODEL", "the cat sat")
DETAILED = (*TRANSLATE, "a dog", "--json", "--n-best", "2", "--num-beams", "3")
TEXT_CALLS = {
    "translate": (*TRANSLATE, "a dog"),
    "translate, json": (*DETAILED, "--alignment", "tokens", "--engine", "transformers"),
    "translate, samples": (*TRANSLATE, "--engine", "transformers", "--do-sample"),
    "translate, ctranslate2": (*TRANSLATE, "--engine", "ctranslate2", "--num-beams", "2"),
    "translate, words": (*TRANSLATE, "--alignment", "words"),
    "translate, ensemble": (*TRANSLATE, "--ensemble-with", "MODEL"),
    "translate, minimum risk": (*TRANSLATE, "--minimum-risk", "chrf", "--candidates", "2"),
    "score": ("score", "MODEL", *FILES),
    "score, transformers": ("score", "MODEL", *FILES, "--json", "--engine", "transformers"),
    "align": ("align", "MODEL", *FILES, "--json"),
    "evaluate": ("evaluate", "MODEL", "--test-source", "SOURCE", "--test-target", "TARGET"),
    "to ctranslate2": ("export", "--to", "ctranslate2", "MODEL", "OUT"),
    "shapes of texts": ("inspect", "shapes", "MODEL", "--text", "the cat", "a"),
    "shapes of pairs": ("inspect", "shapes", "MODEL", "--text", "a", "--target", "the cat"),
    "attention": ("inspect", "attention", "MODEL", "--text", "the cat"),
    "attention to a target": (
        *("inspect", "attention", "MODEL", "--text", "the cat", "--target", "a dog"),
        *("--draw", "alignment", "--output", "OUT.svg"),
    ),
    "heads": ("inspect", "heads", "MODEL", *FILES, "--pairs", "2"),
}
OTHER_CALLS = {
    "to hf": ("export", "--to", "hf", "MODEL", "OUT"),
    "average": ("average", "MODEL", "MODEL", "--output", "OUT"),
    "shapes": ("inspect", "shapes", "MODEL"),
    "cost": ("inspect", "cost", "MODEL", "--source-length", "8", "--target-length", "8"),
}
CALLS = {**TEXT_CALLS, **OTHER_CALLS}
FULL = ("marian, apart", "mbart, no start", "fsmt", "eole")
"""The kinds that get every call: they differ in their sides, starts and tokenizers."""
CORE = ("translate, json", "translate, ctranslate2", "score", "evaluate", "to ctranslate2")
CORE += ("to hf", "attention to a target")
PAIRS = [(kind, call) for kind in NAMES for call in (CALLS if kind in FULL else CORE)]
ON_CTRANSLATE2 = {"translate, ctranslate2"}
REFUSED = [  # kinds, calls, what the sentence says
    (NO_TOKENIZER, TEXT_CALLS, "no tokenizer.json"),
    ({"encoder"}, ON_CTRANSLATE2, "`is_encoder_decoder` is False"),
    (
        {"encoder"},
        {*CALLS, "to onnx"} - {"average"},
        "with an encoder and a decoder",
    ),
    ({"blenderbot"}, ON_CTRANSLATE2, "`encoder_no_repeat_ngram_size` is 3"),
    ({"fsmt"}, ON_CTRANSLATE2, "`early_stopping` is False"),
    (
        {"mbart, no start"},
        {"to ctranslate2", "to onnx"},
        "`decoder_start_token_id` is None, but an export holds that token",
    ),
    (
        {"mbart, no start"},
        {name for name, words in CALLS.items() if words[0] == "inspect" and "--text" in words},
        "`decoder_start_token_id` are needed to make the decoder's input",
    ),
    ({"opennmt-py", "eole"}, {"to hf"}, "`layer_norm_eps` is 1e-06"),
    ({"table", "torch"}, {"to hf"}, "`position_embedding_type` is 'learned'"),
]


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("kinds") / "converted"
    folder.mkdir()
    assert sorted(convert_all(folder)) == sorted(NAMES)
    for name, lines in (("SOURCE", "the cat sat on\na dog\n\n"), ("TARGET", "the t\nein\n\n")):
        (folder.parent / name).write_text(lines, encoding="utf-8")
    return folder


def expected_refusal(kind, call):
    found = (message for kinds, calls, message in REFUSED if kind in kinds and call in calls)
    return next(found, None)


@pytest.mark.parametrize(("kind", "call"), PAIRS)
def test_a_subcommand_works_or_says_why_not(converted, tmp_path, capsys, kind, call):
    places = {"MODEL": converted / kind, "OUT": tmp_path / "out", "OUT.svg": tmp_path / "out.svg"}
    places |= {name: converted.parent / name for name in ("SOURCE", "TARGET")}
    refusal = expected_refusal(kind, call)
    status = program.main([str(places.get(word, word)) for word in CALLS[call]])
    printed = capsys.readouterr()
    if refusal is None:
        assert (status, "error" in printed.err) == (0, False), printed.err
        written = {word for word in CALLS[call] if word.startswith("OUT")}
        assert printed.out or written
        assert all(places[word].exists() for word in written)
        return
    assert status == 1
    assert refusal in printed.err
    *_, first = (line for line in printed.err.splitlines() if ": error: " in line)
    assert "--verbose" not in first
    assert not list(tmp_path.iterdir())


WITH_TEXTS = tuple(kind for kind in NAMES if kind not in (*NO_TOKENIZER, "encoder"))
SOME = ("marian, apart", "fsmt", "nllb", "mbart", "t5")
KEEPING = [
    "the cat %s sat on {name}",
    "a dog sees https://a.org/b?c=d now 🙂",
    "the %1$s\nthe mat %2$s ran /etc/x.y\n",
    "文件%s无法 the 日本 cat",
    "%s",
]
HTML = (
    '<p class="a">the <i>cat <b>%s</b></i> sat on {name}</p>\n'
    '<ul><li><u>a dog</u>, the cat<li>the <a href="b">mat &amp; {0}<img src="c"></a></ul>\n'
)
SUBTITLES = """1
00:00:01,000 --> 00:00:02,000
the <i>cat <b>%s</b></i> sat on {name}

2
00:00:03,000 --> 00:00:04,000
<u>a dog</u>, the cat
"""
TAGS = re.compile(r"</?[a-z][^<>]*>|^\d.*\n", re.MULTILINE)
WAYS = {
    "greedy": {"num_beams": 1},
    "beams": {"num_beams": 3, "n_best": 2, "return_scores": True},
    "minimum risk": {"minimum_risk": "chrf", "candidates": 3},
    "samples": {"do_sample": True, "minimum_risk": "chrf", "candidates": 2},
}


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        *((kind, engine) for kind in WITH_TEXTS for engine in ("auto", "transformers")),
        *((kind, "ensemble") for kind in SOME),
    ],
)
def test_what_no_model_may_change_comes_back_once(converted, kind, engine):
    path = [converted / kind] * 2 if engine == "ensemble" else converted / kind
    engine = "transformers" if engine == "ensemble" else engine
    translator = Translator.from_pretrained(path, engine, "cpu")
    for name, options in WAYS.items():
        if name == "samples" and isinstance(path, list):
            continue
        for text, row in zip(KEEPING, translator.translate(KEEPING, **options), strict=True):
            for output in row if isinstance(row, list) else [row]:
                for span in {text[begin:end] for begin, end in kept_spans(text)}:
                    written = output if isinstance(output, str) else output.text
                    assert written.count(span) == text.count(span), (name, text, written)
    for name, content in (("a.srt", SUBTITLES), ("a.html", HTML)):
        document = read_document(name, content.encode())
        written = translate_document(translator, document).content.decode()
        assert sorted(TAGS.findall(written)) == sorted(TAGS.findall(content))
        open_tags = []
        for closing, tag in re.findall("<(/?)([abiu])\\b", written):
            assert not closing or open_tags.pop() == tag
            open_tags += [] if closing else [tag]
        texts = [text.marked.plain for text in document.texts]
        outputs = translator.translate(texts, return_links=True, in_sentences=True)
        plain = [
            output.text if output.is_complete else text
            for text, output in zip(texts, outputs, strict=True)
        ]
        assert html.unescape(TAGS.sub("", written)).replace("\n", "") == "".join(plain)


@pytest.mark.parametrize("kind", WITH_TEXTS)
def test_terms_of_a_glossary_are_in_the_outputs_or_told(converted, kind):
    translator = Translator.from_pretrained(converted / kind, "auto", "cpu")
    term = {"opennmt-py": "das v8", "eole": "das v8", "fsmt": "cab f"}.get(kind, "the")
    glossary, texts = {"cat": term}, ["the cat %s sat", "a dog", "now a cat and {name}"]
    for num_beams in (1, 3):
        options = {"num_beams": num_beams, "max_new_tokens": 30, "return_links": True}
        first, plain, last = translator.translate(texts, glossary=glossary, **options)
        assert plain == translator.translate(texts[1], **options)
        for output, span in ((first, "%s"), (last, "{name}")):
            assert output.terms == (("cat", term),)
            assert output.text.count(span) == 1
            if kind == "nllb":  # its vocabulary lacks the term
                assert output.missing_terms == (term,)
            else:
                assert output.missing_terms == ()
                assert re.search(rf"\b{term}\b", output.text)


FAST = ("marian", "marian, apart", "pegasus", "bart", "mbart", "mbart, no start", "m2m100", "nllb")
FAST += ("t5", "fairseq", "opennmt-py", "eole")


@pytest.mark.parametrize("kind", FAST)
def test_families_have_the_fast_engine_with_equal_texts(converted, kind):
    texts, options = ["the cat sat on", "a dog", "7"], {"return_alignment": True, "num_beams": 3}
    fast, slow = (
        Translator.from_pretrained(converted / kind, engine, "cpu")
        for engine in ("ctranslate2", "transformers")
    )
    for search in ({"num_beams": 1}, options):
        assert fast.translate(texts, **search) == slow.translate(texts, **search)


@pytest.mark.slow
@pytest.mark.parametrize("kind", NAMES)
def test_every_kind_is_exported_to_onnx(converted, tmp_path, capsys, kind):
    pytest.importorskip("onnxscript")
    words = ["export", "--to", "onnx", str(converted / kind), str(tmp_path / "out")]
    status, printed = program.main(words), capsys.readouterr()
    if refusal := expected_refusal(kind, "to onnx"):
        assert refusal in printed.err
    else:
        assert status == 0, printed.err
        assert "largest difference" in printed.out


@pytest.mark.parametrize("kind", FULL)
def test_the_server_answers_with_every_kind_or_says_why_not(converted, kind):
    settings = Settings([parse_model(f"en-de={converted / kind}")])
    if (refusal := expected_refusal(kind, "translate")) is not None:
        with pytest.raises((ValueError, FileNotFoundError), match=refusal):
            load_models(settings, Metrics())
        return
    models = load_models(settings, Metrics())
    try:
        model = models.named(None)
        details = {"scores": True, "tokens": True, "alignment": True}
        options = TranslateOptions(n_best=2, num_beams=2, **details)
        answer = asyncio.run(model.compute(plan_of(["the cat sat"]), options, []))
        ((first, second),) = answer.rows
    finally:
        models.close()
    assert first.tokens != second.tokens
    assert len(first.token_scores) == len(first.tokens)
    assert {source for source, _ in first.alignment} <= set(range(len(first.source_tokens)))


@pytest.mark.parametrize("kind", ["fsmt", "marian, apart", "fairseq"])
def test_targets_are_encoded_by_their_own_vocabulary(converted, kind):
    """The ids of both sides mean other tokens; a score is that of the tokens of the target."""
    translator = Translator.from_pretrained(str(converted / kind), "transformers", "cpu")
    text = "the t" if kind != "fairseq" else "the t w1"
    (score,), tokenizer = translator.score(["a"], [text]), translator.tokenizer
    ids = vocabulary_of(tokenizer, "target")
    sources = vocabulary_of(tokenizer, "source")
    labels = [ids[token] for token in score.tokens]
    assert labels != [sources.get(token) for token in score.tokens] or kind == "fairseq"
    batch = tokenizer(["a"], return_tensors="pt")
    start = translator.settings.decoder_start_token_id
    fed = torch.tensor([[start, *labels[:-1]]])
    logits = translator.engine.model(**batch, decoder_input_ids=fed).logits[0].log_softmax(-1)
    expected = logits[range(len(labels)), labels].tolist()
    assert list(score.token_scores) == pytest.approx(expected, abs=1e-4)
    (alignment,) = translator.align(["the t"], [text])
    assert {target for _, target in alignment.words} == set(range(len(text.split())))
