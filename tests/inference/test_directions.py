"""Languages by name: what transformers computes for each, and no call changes a tokenizer."""

import asyncio
import json
from types import SimpleNamespace

import pytest
import torch
from converted_models import save_bart_like, save_of_many_languages, train_pieces, unigram
from datasets import Dataset
from servers import plan_of
from split_texts import NO_MODEL, split_by
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    GenerationConfig,
    MBart50Tokenizer,
    MBartTokenizer,
    pipeline,
)

from vanilla_transformer import Translator, VanillaTransformerTokenizer
from vanilla_transformer.batches.encoding import RowDirections, encode
from vanilla_transformer.batches.subwords import SampledSubwords
from vanilla_transformer.inference import segment_translator
from vanilla_transformer.inference.options import TranslateOptions
from vanilla_transformer.interop.changed_vocabulary import grow_vocabulary
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.model.directions import record_directions, recorded_directions
from vanilla_transformer.serving.models import load_models
from vanilla_transformer.serving.monitoring import Metrics
from vanilla_transformer.serving.settings import Computation, Settings, parse_model
from vanilla_transformer.text.memory import Memory, Pair
from vanilla_transformer.training.trainer import TokenBudgetSeq2SeqTrainer
from vanilla_transformer.training.training_arguments import TokenBudgetTrainingArguments

CODES = {  # English, German, French
    "nllb": ("eng_Latn", "deu_Latn", "fra_Latn"),
    "m2m100": ("en", "de", "fr"),
    "mbart": ("en_XX", "de_DE", "fr_XX"),
    "mbart50": ("en_XX", "de_DE", "fr_XX"),
}
TEXTS = ["the cat sat", "a dog ran", "the mat", "a small cat"]
DIRECTIONS = [(0, 1), (1, 2), (2, 0), (0, 2)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model of transformers for each kind, without a target language, and it converted."""
    pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("languages")
    pieces = train_pieces(folder)
    some = list(dict.fromkeys(["▁", *pieces[1]["source"]]))
    for kind in ("nllb", "m2m100"):
        save_of_many_languages(kind, folder / kind, pieces)
    vocabulary = unigram(["<s>", "<pad>", "</s>", "<unk>"], some)
    tokenizer = MBartTokenizer(vocabulary, src_lang="en_XX")
    save_bart_like("mbart", folder / "mbart", tokenizer, decoder_start_token_id=None)
    tokenizer = MBart50Tokenizer(
        unigram(["<s>", "<pad>", "</s>", "<unk>"], [*some, *tokenizer.lang_code_to_id, "<mask>"]),
        src_lang="en_XX",
    )
    save_bart_like("mbart", folder / "mbart50", tokenizer, decoder_start_token_id=2)
    for kind in CODES:
        for name, field in (
            ("tokenizer_config", "tgt_lang"),
            ("generation_config", "forced_bos_token_id"),
        ):
            file = folder / kind / f"{name}.json"
            fields = json.loads(file.read_text(encoding="utf-8"))
            fields.pop(field, None)
            file.write_text(json.dumps(fields), encoding="utf-8")
        convert("mbart" if kind == "mbart50" else kind, str(folder / kind), folder / f"own-{kind}")
    return folder


def expected_ids(folder, kind, text, source, target):
    """The ids that transformers' own model generates with its tokenizer set to two languages."""
    tokenizer = AutoTokenizer.from_pretrained(folder / kind, src_lang=source)
    index = tokenizer.convert_tokens_to_ids(f"__{target}__" if kind == "m2m100" else target)
    begin = "decoder_start_token_id" if kind == "mbart" else "forced_bos_token_id"
    inputs, model = tokenizer(text, return_tensors="pt"), load(folder / kind)
    return model.generate(**inputs, max_length=9, num_beams=1, **{begin: index})[0].tolist()


def load(folder):
    return AutoModelForSeq2SeqLM.from_pretrained(folder).eval()


def state_of(tokenizer, folder):
    tokenizer.save_pretrained(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("engine", ["transformers", "auto"])
def test_texts_of_several_directions_in_one_call(models, tmp_path, kind, engine, monkeypatch):
    # Toys repeat themselves.
    monkeypatch.setattr(segment_translator, "has_lost_its_way", lambda output: False)
    translator = Translator.from_pretrained(models / f"own-{kind}", engine, "cpu")
    tokenizer = translator.tokenizer
    before = state_of(tokenizer, tmp_path / "before")
    codes = [tuple(CODES[kind][number] for number in pair) for pair in DIRECTIONS]
    expected = [
        expected_ids(models, kind, text, *pair) for text, pair in zip(TEXTS, codes, strict=True)
    ]
    texts = tokenizer.batch_decode(expected, skip_special_tokens=True)
    sources, targets = map(list, zip(*codes, strict=True))
    options = {"max_length": 9, "num_beams": 1, "return_tokens": True, "return_scores": True}
    options["keep"] = False  # the toys do not know all letters
    outputs = translator.translate(TEXTS, src_lang=sources, tgt_lang=targets, **options)
    assert [output.text for output in outputs] == texts
    for output, ids in zip(outputs, expected, strict=True):
        assert list(output.tokens) == tokenizer.convert_ids_to_tokens(ids[1:])
        assert (output.token_scores[0] == 0) == (kind != "mbart")  # what is forced is certain
    # Other spellings, and the languages of all texts.
    (other,) = translator.translate(TEXTS[:1], src_lang="EN", tgt_lang="ger", **options)
    assert other == outputs[0]
    if kind != "mbart":
        named = translator.translate(TEXTS[:1], forced_bos_token_id=codes[0][1], **options)
        assert named == [outputs[0]]
    generate = pipeline(model=str(models / f"own-{kind}"), trust_remote_code=True)
    (piped,) = generate(TEXTS[1], src_lang=sources[1], tgt_lang=targets[1], max_length=9)
    assert piped["generated_text"] == texts[1]
    assert state_of(tokenizer, tmp_path / "after") == before


def test_what_ctranslate2_cannot_do_is_done_by_transformers_in_each_language(models):
    options = {"src_lang": "en", "tgt_lang": "de", "max_length": 9, "num_beams": 1, "keep": False}
    exact, fast = (
        Translator.from_pretrained(models / "own-nllb", engine, "cpu")
        for engine in ("transformers", "auto")
    )
    outputs = exact.translate(TEXTS, repetition_penalty=9.0, **options)
    assert fast.translate(TEXTS, repetition_penalty=9.0, **options) == outputs
    assert fast.translate(TEXTS, **options) != outputs


@pytest.mark.parametrize("kind", CODES)
def test_given_targets_begin_with_their_language(models, kind):
    translator = Translator.from_pretrained(models / f"own-{kind}", "transformers", "cpu")
    english, german, french = CODES[kind]
    theirs = AutoTokenizer.from_pretrained(models / kind, src_lang=english, tgt_lang=german)
    batch = theirs(TEXTS[0], text_target=TEXTS[1], return_tensors="pt")
    labels, model = batch.pop("labels"), load(models / kind)
    if kind == "mbart":  # the language is the last label, and the start
        model.config.decoder_start_token_id = theirs.convert_tokens_to_ids(german)
    start = model.config.decoder_start_token_id
    inputs = torch.cat([torch.tensor([[start]]), labels[:, :-1]], 1)
    with torch.no_grad():
        logits = model(**batch, decoder_input_ids=inputs).logits[0]
    named = torch.full_like(logits[0], -torch.inf)  # rows without a token are never generated
    named[list(theirs.get_vocab().values())] = 0
    scores = (logits + named).log_softmax(-1)
    expected = scores[range(labels.shape[1]), labels[0]].tolist()
    if kind != "mbart":
        expected[0] = 0.0
    languages = {"src_lang": english, "tgt_lang": [german, french]}
    scores = translator.score(TEXTS[:1] * 2, TEXTS[1:2] * 2, **languages)
    assert scores[0].token_scores == pytest.approx(expected, abs=1e-4)
    assert scores[0] != scores[1]
    alignments = translator.align(TEXTS[:1] * 2, TEXTS[1:2] * 2, **languages)
    assert {s for s, _ in alignments[0].words} <= {0, 1, 2}
    assert {t for _, t in alignments[0].words} <= {0, 1, 2}


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("num_proc", [None, 2])
def test_training_pairs_of_several_directions_begin_with_their_languages(models, kind, num_proc):
    tokenizer = AutoTokenizer.from_pretrained(models / f"own-{kind}")
    codes = [tuple(CODES[kind][number] for number in pair) for pair in DIRECTIONS]
    columns = dict(
        zip(("source_language", "target_language"), zip(*codes, strict=True), strict=True)
    )
    rows = Dataset.from_dict({"source": TEXTS, "target": TEXTS[::-1], **columns})
    encoded = encode(rows, tokenizer, 9, 7, num_proc=num_proc)
    for row, pair, encoded_row in zip(rows, codes, encoded, strict=True):
        theirs = AutoTokenizer.from_pretrained(models / kind, src_lang=pair[0], tgt_lang=pair[1])
        sizes = {"max_length": 9, "max_target_length": 7, "truncation": True}
        expected = theirs(row["source"], text_target=row["target"], **sizes)
        assert encoded_row["input_ids"] == expected["input_ids"]
        assert encoded_row["labels"] == expected["labels"]
    with pytest.raises(ValueError, match=codes[0][1]):
        encode(rows.remove_columns([*columns]), tokenizer)
    if kind == "nllb":  # without merges, so that nothing is sampled
        whole = encode(rows, tokenizer)
        directions = RowDirections(tokenizer)
        sampled = SampledSubwords(rows, whole, tokenizer, bpe_dropout=0.5, directions=directions)
        for number, row in enumerate(whole):
            found = sampled[number]
            assert (found["input_ids"], found["labels"]) == (row["input_ids"], row["labels"])


@pytest.mark.parametrize("kind", ["nllb", "m2m100", "mbart50"])
def test_a_training_generates_each_row_in_its_language(models, tmp_path, kind):
    tokenizer = AutoTokenizer.from_pretrained(models / f"own-{kind}")
    codes = [tuple(CODES[kind][number] for number in pair) for pair in DIRECTIONS]
    columns = zip(("source_language", "target_language"), zip(*codes, strict=True), strict=True)
    rows = Dataset.from_dict({"source": TEXTS, "target": TEXTS[::-1], **dict(columns)})
    encoded = encode(rows, tokenizer)
    options = {"per_device_eval_batch_size": 4, "predict_with_generate": True, "use_cpu": True}
    trainer = TokenBudgetSeq2SeqTrainer(
        load(models / f"own-{kind}"),
        TokenBudgetTrainingArguments(str(tmp_path), generation_max_length=9, **options),
        DataCollatorForSeq2Seq(tokenizer),
        processing_class=tokenizer,
    )
    predicted = trainer.predict(encoded)
    assert predicted.predictions[:, 1].tolist() == [row["labels"][0] for row in encoded]


@pytest.mark.parametrize("kind", CODES)
def test_a_language_that_is_missing_or_unknown_is_an_error_that_lists_the_languages(models, kind):
    translator = Translator.from_pretrained(models / f"own-{kind}", "transformers", "cpu")
    german = CODES[kind][1]
    for languages in ({}, {"tgt_lang": "tlh"}, {"tgt_lang": german, "src_lang": "tlh"}):
        with pytest.raises(ValueError, match=german):
            translator.translate(TEXTS, **languages)
    generate = pipeline(model=str(models / f"own-{kind}"), trust_remote_code=True)
    with pytest.raises(ValueError, match=german):
        generate(TEXTS)
    with pytest.raises(ValueError, match="2 languages for 4 texts"):
        translator.translate(TEXTS, tgt_lang=[german, german])
    memory = Memory([Pair(TEXTS[0], "die Katze")])
    with pytest.raises(ValueError, match="memory"):  # or French texts would be German
        translator.translate(TEXTS[:2], tgt_lang=[german, CODES[kind][2]], memory=memory)


@pytest.mark.parametrize("kind", CODES)
def test_a_language_that_is_added_works_after_reloading(models, tmp_path, kind):
    new = "__sme__" if kind == "m2m100" else "sme_Latn"
    grow_vocabulary(str(models / f"own-{kind}"), tmp_path / "grown", tokens=[new])
    translator = Translator.from_pretrained(tmp_path / "grown", "transformers", "cpu")
    index = translator.tokenizer.convert_tokens_to_ids(new)
    options = {"return_tokens": True, "max_length": 9}
    output = translator.translate(TEXTS[0], src_lang="se", tgt_lang=CODES[kind][1], **options)
    english = translator.translate(TEXTS[0], src_lang="en", tgt_lang=CODES[kind][1], **options)
    languages = {"src_lang": "sme", "tgt_lang": CODES[kind][1]}
    (segment,) = split_by(translator, TEXTS[0], **languages).segments
    assert index in segment.ids
    assert output != english or index  # random weights may agree
    output = translator.translate(TEXTS[0], tgt_lang="sme_Latn", **options)
    assert kind == "mbart" or output.tokens[0] == new


def test_a_server_translates_each_direction_of_one_model(models):
    codes = [("eng_Latn", "deu_Latn"), ("deu_Latn", "eng_Latn")]
    path = models / "own-nllb"
    sources = [parse_model(f"{source}:{target}={path}") for source, target in codes]
    served = load_models(Settings(sources, computation=Computation(device="cpu")), Metrics())
    search = {"max_new_tokens": 8, "num_beams": 1}

    async def ask(source, target):
        direction = served.direction(source, target)
        options = TranslateOptions(tokens=True, **search)
        answer = await direction.compute(plan_of(TEXTS), options, [])
        return [row[0] for row in answer.rows]

    translator = Translator.from_pretrained(path, device="cpu")
    for source, target in codes:
        outputs = asyncio.run(ask(source, target))
        languages = {"src_lang": source, "tgt_lang": target, "return_tokens": True}
        assert outputs == translator.translate(TEXTS, **search, **languages)
        assert {output.tokens[0] for output in outputs} == {target}
    served.close()
    with pytest.raises(ValueError, match="deu_Latn"):  # it has no direction
        load_models(Settings([parse_model(f"{path}")]), Metrics())


TAGGED = [("en", "de", "<2de>"), ("en", "fr", "<2fr>")]


def tagged_translator(rows, folder, limit=9, others=(), tags=()):
    tokenizer = VanillaTransformerTokenizer.train(["a b c d e f . "], kind="word")
    tokenizer.add_tokens(["<2de>", "<2fr>", *others], special_tokens=True)
    record_directions(tokenizer, rows, tags)
    tokenizer.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return Translator(NO_MODEL, tokenizer, GenerationConfig(eos_token_id=2), limit)


def read_of(translator, text, **languages):
    """What the model reads of a text: a line for each of its segments."""
    split = split_by(translator, text, **languages)
    return [translator.tokenizer.decode(segment.ids[:-1]) for segment in split.segments]


def test_the_language_of_a_target_is_its_tag_and_each_piece_of_a_long_line_has_it(tmp_path):
    translator = tagged_translator(TAGGED, tmp_path, limit=5)
    long = "a b c . d e f ."
    for language in ("de", "deu_Latn", "de-DE"):
        assert read_of(translator, "a b", tgt_lang=language) == ["<2de> a b"]
        pieces = read_of(translator, long, tgt_lang=language)
        assert pieces == ["<2de> a b c", "<2de> . d e", "<2de> f ."]
    assert read_of(translator, f"<2fr> {long}") == [piece.replace("de", "fr") for piece in pieces]
    split = split_by(translator, f"<2fr> {long}")
    assert " ".join(segment.text for segment in split.segments) == f"<2fr> {long}"
    # The tag in a text counts, as before.
    assert read_of(translator, "<2fr> a b", tgt_lang="de") == ["<2fr> a b"]
    for text, language in (("a b", None), ("a b", "it")):
        with pytest.raises(ValueError, match="de, fr"):
            read_of(translator, text, tgt_lang=language)


@pytest.mark.parametrize(
    ("rows", "languages", "tag"),
    [
        ([("en", "de", "<2de>")], {}, "<2de> "),
        ([("en", "de", ""), ("en", "fr", "<2fr>")], {}, ""),
        ([("en", "de", ""), ("en", "fr", "<2fr>")], {"tgt_lang": "fr"}, "<2fr> "),
        ([("en", "de", "<2de>"), ("it", "de", "<2fr>")], {"src_lang": "it"}, "<2fr> "),
        ([("en", "de", "<2de>"), ("it", "de", "<2de>")], {"tgt_lang": "de"}, "<2de> "),
        ([], {"tgt_lang": "zh"}, ""),
    ],
)
def test_a_record_tells_the_tag_of_a_direction(tmp_path, rows, languages, tag):
    assert read_of(tagged_translator(rows, tmp_path), "a b", **languages) == [f"{tag}a b"]


def test_further_pairs_need_no_source_language_where_a_model_has_one(tmp_path):
    translator = tagged_translator(TAGGED, tmp_path)
    record_directions(translator.tokenizer, [(None, "de", ""), (None, "it", "")])
    assert read_of(translator, "a b", tgt_lang="de") == ["<2de> a b"]
    assert read_of(translator, "a b", tgt_lang="it") == ["a b"]


def test_further_pairs_keep_the_tags_of_a_model_that_reads_any_language(tmp_path):
    translator = tagged_translator([(None, "de", "<2de>")], tmp_path)
    codes = [">>deu<<", ">>ita<<"]
    marian = SimpleNamespace(init_kwargs={}, get_added_vocab=dict, supported_language_codes=codes)
    for tokenizer in (translator.tokenizer, marian):
        before = recorded_directions(tokenizer)
        record_directions(tokenizer, [("en", before[0][1], "")])
        assert recorded_directions(tokenizer) == before


@pytest.mark.parametrize("word", ["<url>", "<user>", "@name"])
def test_other_tokens_that_begin_a_text_are_no_tags(tmp_path, word):
    translator = tagged_translator(TAGGED, tmp_path, limit=6, others=["<url>", "<user>", "@name"])
    assert read_of(translator, f"{word} a b", tgt_lang="de") == [f"<2de> {word} a b"]
    pieces = read_of(translator, f"{word} a b c . d e f", tgt_lang="fr")
    assert pieces == [f"<2fr> {word} a b c", "<2fr> . d e f"]
    assert read_of(translator, f"<2fr> {word} a", tgt_lang="de") == [f"<2fr> {word} a"]
    with pytest.raises(ValueError, match="de, fr"):
        read_of(translator, f"{word} a b")


def test_a_tag_that_marks_a_kind_of_text_takes_the_place_of_that_of_a_language(tmp_path):
    rows = [*TAGGED, ("en", "de", ""), ("en", "de", "<old>")]
    translator = tagged_translator(rows, tmp_path, others=["<old>", "<bt>"], tags=["<bt>"])
    for tag in ("<old>", "<bt>"):
        assert read_of(translator, f"{tag} a b", tgt_lang="fr") == [f"{tag} a b"]


def test_tags_of_two_source_languages_need_the_source(tmp_path):
    translator = tagged_translator([("en", "de", "<2de>"), ("it", "de", "<2fr>")], tmp_path)
    with pytest.raises(ValueError, match="en, it"):
        read_of(translator, "a b", tgt_lang="de")
