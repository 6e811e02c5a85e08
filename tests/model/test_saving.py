"""Saving and loading: tying, Auto classes, code beside the weights, broken directories."""

import copy
import itertools

import pytest
import torch
from safetensors import safe_open
from strangers import run_stranger
from transformers import AutoModelForSeq2SeqLM, BertConfig, BertModel

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)

LAYOUTS = [
    {"share_encoder_decoder_embeddings": share, "tie_word_embeddings": tie, **vocab}
    for share, tie, vocab in itertools.product(
        (True, False), (True, False), ({}, {"decoder_vocab_size": 52}, {"decoder_vocab_size": 30})
    )
    if not (share and vocab)
]


def assert_tied_as_configured(model):
    config = model.config
    encoder, decoder = model.model.encoder.embed_tokens, model.model.decoder.embed_tokens
    shared, tied = config.share_encoder_decoder_embeddings, config.tie_word_embeddings
    assert (encoder.weight.data_ptr() == decoder.weight.data_ptr()) is shared
    assert (model.lm_head.weight.data_ptr() == decoder.weight.data_ptr()) is tied
    assert hasattr(model.model, "shared") is shared
    if shared:
        assert model.model.shared.weight is encoder.weight
    assert encoder.weight.shape[0] == encoder.num_embeddings == config.vocab_size
    assert decoder.weight.shape[0] == decoder.num_embeddings == config.decoder_vocab_size
    assert model.lm_head.out_features == config.decoder_vocab_size
    matrices = {p.data_ptr(): p for p in (encoder.weight, decoder.weight, model.lm_head.weight)}
    assert len(matrices) == 3 - shared - tied
    parameters = {id(p) for p in model.parameters()}
    assert sum(p.shape[-1] == config.d_model and p.shape[0] in _vocabs(config)
               for p in model.parameters() if p.dim() == 2) == 3 - shared - tied  # fmt: skip
    assert len(parameters) == len(list(model.parameters()))


def _vocabs(config):
    assert config.d_model not in (config.vocab_size, config.decoder_vocab_size)
    return (config.vocab_size, config.decoder_vocab_size)


def reload(model, directory):
    model.save_pretrained(directory)
    loaded, info = type(model).from_pretrained(directory, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not info[kind], (kind, info[kind])
    return loaded.eval()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_the_embeddings_survives_saving_twice(
    tiny_model, tiny_batch, tmp_path, layout
):
    model = tiny_model(**layout)
    decoder_vocab = model.config.decoder_vocab_size
    batch = tiny_batch(decoder_vocab=decoder_vocab)
    expected = model(**batch).logits
    for step in ("first", "second"):
        assert_tied_as_configured(model)
        model = reload(model, tmp_path / step)
        torch.testing.assert_close(model(**batch).logits, expected, rtol=0, atol=0)
    assert_tied_as_configured(model)
    with safe_open(tmp_path / "second/model.safetensors", "pt") as file:
        stored = sum(file.get_tensor(key).numel() for key in file.keys())  # noqa: SIM118 - no dict
    assert stored == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_resized_embeddings_stay_tied_and_survive_saving(tiny_model, tmp_path, layout):
    model = tiny_model(**layout)
    old = model.get_input_embeddings().weight.detach().clone()
    old_target = model.config.decoder_vocab_size
    resized = model.resize_token_embeddings(70)
    assert resized.num_embeddings == model.config.vocab_size == 70
    torch.testing.assert_close(model.get_input_embeddings().weight[:40], old)
    shared = layout["share_encoder_decoder_embeddings"]
    assert model.config.decoder_vocab_size == (70 if shared else old_target)
    assert_tied_as_configured(model)
    loaded = reload(model, tmp_path)
    assert_tied_as_configured(loaded)
    target = torch.tensor([[0, 5]])
    expected = model(torch.tensor([[69, 4]]), decoder_input_ids=target).logits
    found = loaded(torch.tensor([[69, 4]]), decoder_input_ids=target).logits
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_target_vocabulary_is_resized_where_it_is_separate(tiny_model, tmp_path, layout):
    model = tiny_model(**layout, lm_head_bias=True)
    old = model.get_decoder().embed_tokens.weight.detach().clone()
    ids = {"input_ids": torch.tensor([[5, 4]]), "decoder_input_ids": torch.tensor([[0, 7]])}
    before = model(**ids).logits
    if layout["share_encoder_decoder_embeddings"]:
        model.resize_decoder_token_embeddings(70)
        assert model.config.vocab_size == model.config.decoder_vocab_size == 70
        assert_tied_as_configured(model)
        return
    model.lm_head.weight.requires_grad_(False)
    resized = model.resize_decoder_token_embeddings(65, pad_to_multiple_of=7)
    assert resized is model.model.decoder.embed_tokens
    assert resized.num_embeddings == model.config.decoder_vocab_size == 70
    assert model.config.vocab_size == model.get_input_embeddings().num_embeddings == 40
    torch.testing.assert_close(resized.weight[: len(old)], old, rtol=0, atol=0)
    torch.testing.assert_close(model(**ids).logits[..., : len(old)], before)
    assert not model.lm_head.weight.requires_grad
    assert_tied_as_configured(model)
    assert_tied_as_configured(reload(model, tmp_path))


@pytest.mark.parametrize("mean_resizing", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_new_tokens_have_no_larger_bias_than_the_mean_of_the_old(tiny_model, layout, mean_resizing):
    model = tiny_model(**layout, lm_head_bias=True)
    old = torch.linspace(-12, -8, model.config.decoder_vocab_size)
    with torch.no_grad():
        model.lm_head.bias.copy_(old)
    model.resize_decoder_token_embeddings(len(old) + 18, mean_resizing=mean_resizing)
    torch.testing.assert_close(model.lm_head.bias[: len(old)].detach(), old, rtol=0, atol=0)
    assert model.lm_head.bias[len(old) :].max() <= -10 + 1e-5
    if layout["share_encoder_decoder_embeddings"]:  # the other method resizes the same matrix
        model.resize_token_embeddings(len(old) + 30, mean_resizing=mean_resizing)
        assert model.lm_head.bias[len(old) :].max() <= -10 + 1e-5


def test_weights_of_another_norm_placement_are_seen(tiny_model, tmp_path):
    tiny_model(norm_placement="pre").save_pretrained(tmp_path)
    _, info = VanillaTransformerForConditionalGeneration.from_pretrained(
        tmp_path, norm_placement="post", output_loading_info=True
    )
    assert any("self_attn_post_norm" in key for key in info["missing_keys"])
    assert any("self_attn_pre_norm" in key for key in info["unexpected_keys"])
    with pytest.raises(RuntimeError, match="self_attn_post_norm"):
        tiny_model(norm_placement="post").load_state_dict(
            tiny_model(norm_placement="pre").state_dict()
        )


def test_parameters_missing_from_a_file_get_their_initial_values(tiny_model, tmp_path):
    tiny_model(cls=VanillaTransformerModel).save_pretrained(tmp_path)
    model, info = VanillaTransformerForConditionalGeneration.from_pretrained(
        tmp_path, lm_head_bias=True, tie_word_embeddings=False, output_loading_info=True
    )
    assert set(info["missing_keys"]) == {"lm_head.weight", "lm_head.bias"}
    assert (model.lm_head.bias == 0).all()
    assert model.lm_head.weight.abs().max() <= (6 / (16 + 40)) ** 0.5
    assert model.model.shared.weight[1].abs().max() > 0, "the loaded padding row was overwritten"


# --- a machine without the package ---------------------------------------------------------------


def test_the_saved_code_runs_where_the_package_is_not_installed(
    tiny_model, tmp_path, load_as_a_stranger
):
    """Loads, saves again, and loads that: three generations of the directory agree."""
    model, ids = tiny_model(tie_word_embeddings=False, norm_placement="pre"), [[5, 6, 7, 8]]
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    model.save_pretrained(first)
    tokens = model.generate(torch.tensor(ids), max_new_tokens=6)
    hidden = model.model(torch.tensor(ids), decoder_input_ids=tokens[:, :2]).last_hidden_state
    for source, target in ((first, second), (second, third)):
        found = load_as_a_stranger(source, target, ids)
        assert found["tokens"] == tokens.tolist()
        assert found["hidden"] == pytest.approx(hidden.sum().item(), abs=1e-4)
    code = {path.name for path in first.glob("*.py")}
    assert {path.name for path in third.glob("*.py")} == code
    loaded = VanillaTransformerForConditionalGeneration.from_pretrained(third)
    assert torch.equal(loaded.generate(torch.tensor(ids), max_new_tokens=6), tokens)


TWO_OF_ONE_NAME = """
import shutil
from pathlib import Path
from transformers import AutoModelForSeq2SeqLM

def load(folder):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
    return model, sys.modules[type(model).__module__.rpartition(".")[0] + "." + name]

folder, name = Path(sys.argv[1]), Path(sys.argv[2]).name
other = folder.parent / "other" / folder.name
shutil.copytree(folder, other)
file = other / f"{name}.py"
file.write_text(file.read_text() + "\\nOTHER = True\\n")
first, code = load(folder)
second, other_code = load(other)
again, _ = load(folder)
assert type(first) is type(again) is not type(second)
assert type(first.config) is not type(second.config)
print(json.dumps([hasattr(code, "OTHER"), hasattr(other_code, "OTHER")]))
"""


def test_directories_of_one_name_run_their_own_code(tiny_model, tmp_path):
    tiny_model().save_pretrained(tmp_path / "model")
    found = run_stranger(
        tmp_path / "model", tmp_path / "normalization", [], tmp_path, TWO_OF_ONE_NAME
    )
    assert found == [False, True]


# --- broken directories --------------------------------------------------------------------------


def test_a_directory_of_another_model_is_an_error(tmp_path):
    config = BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
    )
    BertModel(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"bert.*vanilla_transformer"):
        VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"bert.*vanilla_transformer"):
        VanillaTransformerConfig.from_pretrained(tmp_path)


@pytest.mark.parametrize("tied", [True, False])
def test_a_part_of_a_model_is_not_resized_alone(tiny_model, tied):
    model = tiny_model(tie_word_embeddings=tied)
    for part in (model.model, model.model.decoder):
        for found in (part, copy.deepcopy(part)):
            with pytest.raises(ValueError, match="part of a model"):
                found.resize_token_embeddings(50)
    assert model.config.vocab_size == model.lm_head.out_features == 40
    separate = tiny_model(decoder_vocab_size=50)
    with pytest.raises(ValueError, match="part of a model"):
        separate.model.resize_decoder_token_embeddings(60)


@pytest.mark.parametrize("content", [b"", b'{"num_beams": ', b"[]", b"\xff\xfe"])
def test_a_damaged_generation_config_is_named(tiny_model, tmp_path, content):
    tiny_model().save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"generation_config\.json' is damaged"):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
