"""Marian models come in and go back: weights, generation, tokenizer, and what is refused."""

import itertools
import json
import pickle
import random

import pytest
import torch
from hf_models import (
    SIZES,
    assert_inspectable,
    assert_same_function,
    assert_same_weights,
    make_source,
)
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
)

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.commands.convert import MODEL_KINDS
from vanilla_transformer.commands.options import UsageError
from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.ctranslate2 import vocabularies_of
from vanilla_transformer.interop.marian import from_marian, to_marian
from vanilla_transformer.interop.models import KINDS, convert_model

SHARING = {
    "shared": {},
    "two vocabularies": {
        "decoder_vocab_size": 60,
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
    },
    "two vocabularies, tied output": {
        "decoder_vocab_size": 60,
        "share_encoder_decoder_embeddings": False,
    },
}
TEXTS = ["the small cat sat on the mat", "a dog ran away 7 times", "ein kleiner Hund läuft"]


def marian(sharing="shared", **changes):
    special = {"pad_token_id": 49, "decoder_start_token_id": 49, "eos_token_id": 0}
    fields = {**SIZES, **special, "forced_eos_token_id": 0, **SHARING[sharing], **changes}
    source = make_source(MarianMTModel, MarianConfig(**fields))
    source.generation_config.bad_words_ids = [[49], [5, 6]]
    return source


@pytest.mark.parametrize(
    ("sharing", "activation", "scale"),
    [
        (sharing, activation, index % 2 == 0)
        for index, (sharing, activation) in enumerate(
            itertools.product(SHARING, ("swish", "gelu", "relu"))
        )
    ],
)
def test_every_kind_of_marian_computes_the_same_and_goes_back(sharing, activation, scale):
    source = marian(sharing, activation_function=activation, scale_embedding=scale)
    ours = from_marian(source)
    assert_same_function(source, ours)
    assert_same_weights(source, to_marian(ours))
    assert_same_function(to_marian(ours), ours, beams=(2,))


@pytest.mark.parametrize(("sharing", "count"), zip(SHARING, (1, 3, 2), strict=True))
def test_tied_matrices_are_one_parameter(sharing, count):
    source = marian(sharing)
    ours = from_marian(source)
    for model in (source, ours, to_marian(ours)):
        stacks = (model.model.encoder, model.model.decoder)
        matrices = (model.lm_head.weight, *(stack.embed_tokens.weight for stack in stacks))
        assert len({id(matrix) for matrix in matrices}) == count


def test_a_bias_of_zeros_becomes_no_bias():
    source = marian()
    source.final_logits_bias.zero_()
    ours = from_marian(source)
    assert ours.lm_head.bias is None
    assert_same_function(source, ours)
    assert_same_weights(source, to_marian(ours))


def test_untied_embeddings_of_one_vocabulary_stay_apart():
    source = marian(tie_word_embeddings=False)
    ours = from_marian(source)
    assert not ours.config.share_encoder_decoder_embeddings
    assert_same_function(source, ours)
    assert_same_function(to_marian(ours), ours)


def test_half_precision_weights_are_kept_as_they_are():
    source = marian().to(torch.bfloat16)
    ours = from_marian(source)
    assert ours.dtype == torch.bfloat16
    assert_same_weights(source, to_marian(ours))


def test_the_settings_of_generation_come_along(tmp_path):
    source = marian()
    wanted = {"num_beams": 4, "length_penalty": 0.6, "max_length": 11, "bad_words_ids": [[49]]}
    source.generation_config = GenerationConfig(
        **wanted, decoder_start_token_id=49, eos_token_id=0, pad_token_id=49, forced_eos_token_id=0
    )
    from_marian(source).save_pretrained(tmp_path)
    ours = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    for name, value in wanted.items():
        assert getattr(ours.generation_config, name) == value
    ids = torch.randint(3, 45, (2, 7))
    assert torch.equal(ours.generate(ids), source.generate(ids))


def test_all_that_cannot_be_expressed_is_listed():
    source = marian()
    source.config.normalize_embedding = True
    source.config.normalize_before = True
    source.config.quantization_config = {"bits": 4}
    with pytest.raises(ValueError, match="MarianMTModel: 3 problem") as error:
        from_marian(source)
    for part in ("`normalize_embedding` is True", "`normalize_before`", "quantised"):
        assert part in str(error.value)


def test_a_table_of_sinusoids_that_was_changed_is_refused():
    source = marian()
    source.model.encoder.embed_positions.weight[3] += 0.1
    with pytest.raises(ValueError, match=r"encoder\.embed_positions\.weight` is not the table"):
        from_marian(source)


def test_export_names_all_fields_in_the_way():
    config = VanillaTransformerConfig(
        **SIZES, norm_placement="pre", gated_ffn=True, position_embedding_type="rope"
    )
    with pytest.raises(ValueError, match="written as MarianMTModel: 5 problem") as error:
        to_marian(VanillaTransformerForConditionalGeneration(config))
    for name in ("norm_placement", "gated_ffn", "position_embedding_type", "final_layer_norm"):
        assert f"`{name}`" in str(error.value)


def test_fused_attention_is_split_for_marian():
    config = VanillaTransformerConfig(
        **SIZES, fused_qkv=True, position_embedding_type="sinusoidal_half", lm_head_bias=True
    )
    ours = make_source(VanillaTransformerForConditionalGeneration, config)
    assert_same_function(to_marian(ours), ours)


# --- directories ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained_pieces(tmp_path_factory):
    """Two SentencePiece models and the vocabulary of both, in Marian's layout."""
    sentencepiece = pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("pieces")
    rng, letters = random.Random(0), "abcdefghijklmnopqrstuvwxyzäöüß"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 7))) for _ in range(300)]
    lines = [*TEXTS * 5, *(" ".join(rng.choices(words, k=9)) for _ in range(300))]
    (folder / "text").write_text("\n".join(lines), encoding="utf-8")
    vocabularies = {}
    for side, size in (("source", 90), ("target", 70)):
        prefix = folder / side
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text"), model_prefix=str(prefix), vocab_size=size, minloglevel=2
        )
        prefix.with_suffix(".model").rename(prefix.with_suffix(".spm"))
        model = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.spm")
        pieces = [model.id_to_piece(index) for index in range(size)]
        kept = [piece for piece in pieces if piece not in ("</s>", "<unk>", "<s>")]
        vocabularies[side] = kept
    return folder, vocabularies


def save_with_tokenizer(trained_pieces, folder, separate):
    """A Marian directory as the Hub has it; returns the source."""
    files, pieces = trained_pieces
    both = list(dict.fromkeys([*pieces["source"], *pieces["target"]]))
    sides = (pieces["source"], pieces["target"]) if separate else (both, both)
    size = max(map(len, sides)) + 3
    tables = []
    for side in sides:
        filled = [*side, *(f"unused{n}" for n in range(size - 3 - len(side)))]
        tokens = ["</s>", "<unk>", *filled, "<pad>"]
        tables.append({token: index for index, token in enumerate(tokens)})
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps(tables[0]), encoding="utf-8")
    settings = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate}
    if separate:
        (folder / "target_vocab.json").write_text(json.dumps(tables[1]), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes((files / f"{side}.spm").read_bytes())
    pad = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "vocab_size": size}
    apart = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
    source = marian(**pad, decoder_vocab_size=size, **(apart if separate else {}))
    source.generation_config.bad_words_ids = [[size - 1]]
    source.save_pretrained(folder)
    return source


@pytest.mark.parametrize("separate", [False, True])
def test_a_directory_with_its_tokenizer_translates_the_same(trained_pieces, tmp_path, separate):
    source = save_with_tokenizer(trained_pieces, tmp_path / "source", separate)
    done = convert_model("marian", tmp_path / "source", tmp_path / "out")
    assert done.tokenizer_class == "MarianTokenizer"
    expected, found = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("source", "out"))
    assert isinstance(found, MarianTokenizer)
    texts = [*TEXTS, ">>de<< a mat", "ünknown 字 …", ""]
    for side in ("text", "text_target"):
        ids = [each(**{side: texts})["input_ids"] for each in (expected, found)]
        assert ids[0] == ids[1]
        assert expected.batch_decode(ids[0]) == found.batch_decode(ids[1])
    ours = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    batch = found(texts[:3], return_tensors="pt", padding=True)
    vocabularies = vocabularies_of(ours.config, found)
    for ids, side, vocabulary in zip(
        (found(TEXTS[0])["input_ids"], found(text_target=TEXTS[0])["input_ids"]),
        ("source", "target"),
        vocabularies,
        strict=True,
    ):
        pieces = "".join(vocabulary[index] for index in ids[:-1])
        assert pieces.replace("▁", " ").strip() == TEXTS[0], side
    outputs = [each.generate(**batch, num_beams=2, max_length=12) for each in (source, ours)]
    assert torch.equal(*outputs)
    translations = [
        tokenizer.batch_decode(output, skip_special_tokens=True)
        for tokenizer, output in zip((expected, found), outputs, strict=True)
    ]
    assert translations[0] == translations[1]
    assert_inspectable(tmp_path / "out", TEXTS[0])


def test_a_missing_package_is_named_with_its_extra(trained_pieces, tmp_path, monkeypatch):
    save_with_tokenizer(trained_pieces, tmp_path / "source", separate=False)

    def fail(source, **options):
        raise ValueError("another package is required")

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", fail)
    with pytest.raises(ValueError, match="another package"):
        convert_model("marian", tmp_path / "source", tmp_path / "out")
    monkeypatch.setattr("vanilla_transformer.interop.tokenizers.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"'sentencepiece'.*transformer\[convert\]"):
        convert_model("marian", tmp_path / "source", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_program_prints_the_comparison_and_writes_it_into_the_card(tmp_path, capsys):
    marian().save_pretrained(tmp_path / "source")
    paths = (str(tmp_path / "source"), str(tmp_path / "out"))
    run_subcommand("convert", ["--from", "marian", *paths])
    printed = capsys.readouterr().out
    sentence = next(line for line in printed.splitlines() if "Compared with" in line)
    assert "MarianMTModel" in sentence
    assert sentence.endswith("tokens equal.")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert sentence in card
    assert str(tmp_path) not in card
    assert "The source has no tokenizer" in printed
    with pytest.raises(ValueError, match="is not empty: add --overwrite"):
        run_subcommand("convert", ["--from", "marian", *paths])


def test_an_old_checkpoint_of_torch_is_read(tmp_path):
    """As most OPUS-MT models are stored: with every name, and no file of generation settings."""
    source = marian()
    source.save_pretrained(tmp_path / "source")
    for name in ("model.safetensors", "generation_config.json"):
        (tmp_path / "source" / name).unlink()
    path = tmp_path / "source" / "config.json"
    old = {"max_length": 11, "num_beams": 3, "bad_words_ids": [[49]], "normalize_before": False}
    path.write_text(json.dumps(json.loads(path.read_text()) | old))
    torch.save(source.state_dict(), tmp_path / "source" / "pytorch_model.bin")
    settings = convert_model(
        "marian", tmp_path / "source", tmp_path / "out"
    ).model.generation_config
    assert (settings.max_length, settings.num_beams, settings.bad_words_ids) == (11, 3, [[49]])
    ours = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    ids = torch.randint(3, 45, (2, 7))
    theirs = MarianMTModel.from_pretrained(tmp_path / "source")
    assert torch.equal(ours.generate(ids), theirs.generate(ids))
    assert_same_weights(theirs, to_marian(ours))


class Payload:
    def __reduce__(self):
        return (print, ("the payload ran",))


def test_a_checkpoint_with_code_is_refused_and_not_run(tmp_path, capsys):
    marian().save_pretrained(tmp_path / "source")
    (tmp_path / "source" / "model.safetensors").unlink()
    with open(tmp_path / "source" / "pytorch_model.bin", "wb") as file:
        torch.save({"final_logits_bias": Payload()}, file, pickle_module=pickle)
    with pytest.raises(ValueError, match="code in a checkpoint is never run"):
        convert_model("marian", tmp_path / "source", tmp_path / "out")
    assert "the payload ran" not in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_weights_that_are_missing_or_left_over_are_listed(tmp_path):
    from safetensors.torch import load_file, save_file

    marian().save_pretrained(tmp_path / "source")
    path = tmp_path / "source" / "model.safetensors"
    weights = load_file(path)
    weights["model.encoder.layernorm_embedding.weight"] = torch.ones(16)
    del weights["model.encoder.layers.0.fc1.bias"]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match="2 problem") as error:
        convert_model("marian", tmp_path / "source", tmp_path / "out")
    assert "`model.encoder.layers.0.fc1.bias` is missing" in str(error.value)
    assert "`model.encoder.layernorm_embedding.weight` is left over" in str(error.value)


def test_the_program_knows_every_family():
    assert tuple(KINDS) == MODEL_KINDS


def test_another_kind_of_model_is_named(tmp_path):
    marian().save_pretrained(tmp_path / "source")
    with pytest.raises(ValueError, match="'marian', not 'bart': choose 'marian'"):
        convert_model("bart", tmp_path / "source", tmp_path / "out")
    paths = (str(tmp_path / "source"), str(tmp_path / "out"))
    with pytest.raises(UsageError, match="--from bart does not take --heads"):
        run_subcommand("convert", ["--from", "bart", "--heads", "2", *paths])
    with pytest.raises(UsageError, match="--from system-a needs --heads"):
        run_subcommand("convert", ["--from", "system-a", *paths])
    with pytest.raises(FileNotFoundError, match="'/none' does not exist"):
        run_subcommand("convert", ["--from", "bart", "/none", str(tmp_path / "out")])


@pytest.mark.parametrize("separate", [False, True])
def test_a_directory_goes_back_with_its_tokenizer(trained_pieces, tmp_path, separate):
    source = save_with_tokenizer(trained_pieces, tmp_path / "source", separate)
    convert_model("marian", tmp_path / "source", tmp_path / "ours")
    run_subcommand("export", ["--to", "hf", str(tmp_path / "ours"), str(tmp_path / "back")])
    assert_same_weights(source, AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back"))
    expected, found = (AutoTokenizer.from_pretrained(tmp_path / n) for n in ("source", "back"))
    assert type(found) is type(expected)
    for side in ("text", "text_target"):
        assert expected(**{side: TEXTS})["input_ids"] == found(**{side: TEXTS})["input_ids"]
