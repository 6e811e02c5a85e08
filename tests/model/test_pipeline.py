"""One call from texts to texts: here, after saving again, and where the package is missing."""

import json
from io import StringIO

import pytest
import torch
from datasets import Dataset
from strangers import run_stranger
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    GenerationConfig,
    MarianConfig,
    PreTrainedTokenizerFast,
    T5Config,
    pipeline,
)
from transformers.pipelines.pt_utils import KeyDataset

from vanilla_transformer import (
    Seq2SeqGenerationPipeline,
    VanillaTransformerConfig,
    VanillaTransformerModel,
    VanillaTransformerTokenizer,
)
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.model.sharing import GENERATION_TASK

TEXTS = ["a dog sees a cat .", "a woman likes a boat .", "a bird", "a bird finds a child ."]
GERMAN = ["Hund sieht Katze .", "Frau mag Boot .", None, "Vogel findet Kind ."]


def text_of(outputs):
    return [output["generated_text"] for output in outputs]


@pytest.fixture(scope="module")
def pipe(trained):
    return pipeline(GENERATION_TASK, model=str(trained), device="cpu")


@pytest.fixture(scope="module")
def one_by_one(pipe):
    return [pipe(text) for text in TEXTS]


# --- inputs and outputs --------------------------------------------------------------------------


def test_a_text_gives_a_list_and_texts_give_lists(pipe, one_by_one):
    assert [text_of(found)[0] for found in one_by_one if found][:2] == GERMAN[:2]
    assert text_of(one_by_one[3]) == [GERMAN[3]]
    assert pipe(TEXTS) == pipe(tuple(TEXTS)) == one_by_one
    assert pipe([]) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda texts: (text for text in texts),
        lambda texts: iter(texts),
        lambda texts: StringIO("".join(f"{text}\n" for text in texts)),
        lambda texts: Dataset.from_dict({"source": texts})["source"],
        lambda texts: KeyDataset(Dataset.from_dict({"source": texts}), "source"),
    ],
    ids=["generator", "iterator", "file", "column", "KeyDataset"],
)
def test_other_iterables_give_an_iterator(pipe, one_by_one, make):
    outputs = pipe(make(TEXTS), batch_size=3)
    assert not isinstance(outputs, list)
    assert list(outputs) == one_by_one


def test_results_stream_while_the_source_goes_on(pipe):
    read = []

    def endless():
        while True:
            read.append(TEXTS[0])
            yield TEXTS[0]

    outputs = iter(pipe(endless(), batch_size=2))
    assert [text_of(next(outputs))[0] for _ in range(3)] == [GERMAN[0]] * 3
    assert len(read) <= 6
    assert list(pipe(text for text in [])) == []


def test_white_space_comes_back_around_outputs(pipe):
    search = {"num_beams": 2, "num_return_sequences": 2}
    texts = ["", f"\ufeff {TEXTS[0]}\u3000\n", " \t"]
    outputs = pipe(texts, batch_size=3, **search)
    assert [len(found) for found in outputs] == [2, 2, 2]
    assert [text_of(outputs[0]), text_of(outputs[2])] == [["", ""], [" \t", " \t"]]
    assert text_of(outputs[1])[0] == f"\ufeff {GERMAN[0]}\u3000\n"
    assert pipe("", return_tensors=True) == [{"generated_token_ids": []}]


def test_unknown_characters_are_told_of(pipe, heard):
    pipe(TEXTS[0])
    assert heard.records == []
    pipe(["a dog\u2603", "a \u2603"])
    assert len(heard.records) == 1


@pytest.mark.parametrize("wrong", [7, b"a dog", {"source": "a dog"}, [{"source": "a dog"}]])
def test_what_is_no_text_is_an_error(pipe, wrong):
    with pytest.raises(ValueError, match="text input must be of type"):
        pipe(wrong)


# --- search --------------------------------------------------------------------------------------


def test_options_of_generate_reach_it_from_both_places(pipe, trained):
    assert len(pipe(TEXTS[0], max_new_tokens=2, return_tensors=True)[0]["generated_token_ids"]) == 3
    short = pipeline(GENERATION_TASK, model=str(trained), max_new_tokens=1, batch_size=2)
    assert [text_of(found) for found in short(TEXTS[:2])] == [["Hund"], ["Frau"]]
    assert text_of(short(TEXTS[0], max_new_tokens=2)) == ["Hund sieht"]
    found = pipe(TEXTS[0], num_beams=4, num_return_sequences=4, skip_special_tokens=False)
    assert len({*text_of(found)}) == 4
    assert all(text.startswith("<s>") for text in text_of(found))
    config = GenerationConfig(num_beams=2, max_length=9, return_dict_in_generate=True)
    assert text_of(pipe(TEXTS[0], generation_config=config)) == [GERMAN[0]]
    assistant = AutoModelForSeq2SeqLM.from_pretrained(trained)
    assisted = pipeline(GENERATION_TASK, model=str(trained), assistant_model=assistant)
    assert text_of(assisted(TEXTS[0], num_beams=1)) == [GERMAN[0]]
    torch.manual_seed(0)
    sampled = pipe(TEXTS[0], do_sample=True, num_beams=1, num_return_sequences=9, temperature=9.0)
    assert len({*text_of(sampled)}) > 4


def test_generation_is_without_dropout_and_leaves_the_mode(pipe, one_by_one):
    dropouts = [m for m in pipe.model.modules() if isinstance(m, torch.nn.Dropout)]
    before = [dropout.p for dropout in dropouts]
    pipe.model.train()
    try:
        for dropout in dropouts:
            dropout.p = 0.9
        assert pipe(TEXTS) == one_by_one
        assert pipe.model.training
    finally:
        pipe.model.eval()
        for dropout, p in zip(dropouts, before, strict=True):
            dropout.p = p


@pytest.fixture
def letters(tiny_model):
    """A pipeline whose target has the letters that transformers' criterion of stop strings asks."""
    tokenizer = VanillaTransformerTokenizer.train(
        ["one two three four"], ["jihgfedcba"], kind="char", shared=False
    )
    model = tiny_model(vocab_size=len(tokenizer), decoder_vocab_size=tokenizer.target_vocab_size)
    options = {"max_new_tokens": 8, "min_new_tokens": 3, "suppress_tokens": [0, 1, 3]}
    return Seq2SeqGenerationPipeline(model=model, tokenizer=tokenizer, **options)


def test_strings_that_stop_are_strings_of_the_target(letters):
    (output,) = letters("two")
    start = output["generated_text"][:3]
    assert len(output["generated_text"]) > 3
    assert set(output["generated_text"]) <= set("abcdefghij")
    assert text_of(letters("two", stop_strings=[start])) == [start]
    translator = Translator.from_model(letters.model, letters.tokenizer)
    options = {"max_new_tokens": 5, "suppress_tokens": [0, 1, 2, 3], "return_scores": True}
    assert not translator.translate("two", **options).is_complete
    stopped = translator.translate("two", stop_strings=[start], **options)
    assert (stopped.text, stopped.is_complete) == (start, True)


def test_texts_are_cut_where_the_tokenizer_has_a_limit(pipe, trained):
    limited = pipeline(GENERATION_TASK, model=str(trained), device="cpu")
    limited.tokenizer.model_max_length = 4
    assert limited(TEXTS[0]) == pipe("a dog sees")
    assert limited(TEXTS[0], truncation=False) == pipe(TEXTS[0])


# --- the task, saving ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"trust_remote_code": True}], ids=["plain", "trusting"])
def test_the_installed_class_is_taken_without_a_task(trained, one_by_one, options):
    found = pipeline(model=str(trained), device="cpu", **options)
    assert type(found) is Seq2SeqGenerationPipeline
    assert found(TEXTS) == one_by_one


def test_only_models_that_generate_name_it(tiny_model, pipe, trained, tmp_path):
    tiny_model(cls=VanillaTransformerModel).save_pretrained(tmp_path / "bare")
    assert "custom_pipelines" not in json.loads((tmp_path / "bare/config.json").read_text())
    lifted = VanillaTransformerModel.from_pretrained(trained)
    lifted.save_pretrained(tmp_path / "lifted")
    assert "custom_pipelines" not in json.loads((tmp_path / "lifted/config.json").read_text())


@pytest.mark.parametrize("config_class", [T5Config, BartConfig, MarianConfig])
def test_models_of_transformers_have_a_pipeline_again(config_class, tmp_path):
    """Version 5 of it has dropped "translation", "summarization" and "text2text-generation"."""
    words = {word: index for index, word in enumerate(("<pad>", "</s>", "<unk>", "a", "dog"))}
    backend = Tokenizer(WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = WhitespaceSplit()
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    names = ["input_ids", "attention_mask"]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, model_input_names=names, **special
    )
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    config = config_class(vocab_size=len(words), d_model=16, bos_token_id=None, **ids)
    torch.manual_seed(0)
    model = AutoModelForSeq2SeqLM.from_config(config).eval()
    for saved in (model, tokenizer):
        saved.save_pretrained(tmp_path)
    pipe = pipeline(GENERATION_TASK, model=str(tmp_path), device="cpu")
    generated = model.generate(**tokenizer(["a dog"], return_tensors="pt"), max_new_tokens=5)
    expected = tokenizer.batch_decode(generated, skip_special_tokens=True)
    assert text_of(pipe("a dog", max_new_tokens=5)) == expected


def test_pipelines_of_ones_own_are_kept(tmp_path):
    mine = {"mine": {"impl": "my_file.MyPipeline", "pt": ["AutoModel"]}}
    config = VanillaTransformerConfig(custom_pipelines=mine)
    config.architectures = ["VanillaTransformerForConditionalGeneration"]
    config.save_pretrained(tmp_path)
    loaded = VanillaTransformerConfig.from_pretrained(tmp_path)
    assert set(loaded.custom_pipelines.keys()) == {"mine", GENERATION_TASK}
    assert loaded.custom_pipelines["mine"] == mine["mine"]
    assert "mine" in loaded.custom_pipelines
    loaded.custom_pipelines["mine"]["pt"] = (Dataset,)
    assert loaded.to_dict() == config.to_dict()


PIPELINES = """
from transformers import AutoModelForSeq2SeqLM, pipeline

directory, again, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
first = pipeline(model=directory, trust_remote_code=True, device="cpu")
second = pipeline("seq2seq-generation", model=directory, trust_remote_code=True, device="cpu")
first.save_pretrained(again)
AutoModelForSeq2SeqLM.from_pretrained(again, trust_remote_code=True).save_pretrained(again)
third = pipeline(model=again, trust_remote_code=True, device="cpu")
assert type(first).__module__.startswith("transformers_modules."), type(first)
try:
    pipeline("seq2seq-generation", model=directory, trust_remote_code=False)
except ValueError as error:
    assert "trust_remote_code" in str(error)
else:
    raise SystemExit("code of the directory ran without being trusted")
print(json.dumps([pipe(texts, batch_size=3) for pipe in (first, second, third)]))
"""


def test_it_works_where_the_package_is_not_installed(trained, one_by_one, tmp_path):
    (checkpoint,) = trained.glob("checkpoint-*")
    found = run_stranger(checkpoint, tmp_path / "again", TEXTS, tmp_path, program=PIPELINES)
    assert found == [one_by_one] * 3
