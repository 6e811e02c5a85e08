"""The config: defaults, round trip, and an error for every bad value."""

import json

import pytest
import torch

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)
from vanilla_transformer.model.presets import PRESETS


def test_the_defaults_are_the_base_model_of_the_paper():
    config = VanillaTransformerConfig()
    assert (config.d_model, config.encoder_layers, config.decoder_layers) == (512, 6, 6)
    assert (config.encoder_attention_heads, config.encoder_ffn_dim) == (8, 2048)
    assert (config.norm_placement, config.activation_function, config.dropout) == (
        "post",
        "relu",
        0.1,
    )
    assert config.decoder_vocab_size == config.vocab_size == 32000
    assert config.share_encoder_decoder_embeddings is True
    assert config.tie_word_embeddings is True
    assert config.final_layer_norm is False
    assert config.is_encoder_decoder is True


def of_type(*kinds):
    """The fields of a config that have one of some types, but for ids and offsets."""
    fields = VanillaTransformerConfig.__annotations__.items()
    named = [name for name, kind in fields if kind in kinds]
    return [name for name in named if not name.endswith(("token_id", "offset"))]


BAD_VALUES = [
    ("alignment_heads", []),
    ("alignment_heads", [[99, 0]]),
    ("alignment_heads", [[0, 99]]),
    ("alignment_heads", "0-1"),
    *((name, value) for name in of_type(int, int | None) for value in (0, -3, 2.5, "16", True)),
    *(
        (name, value)
        for name in of_type(float | int)
        if name.endswith(("dropout", "layerdrop", "smoothing"))
        for value in (-0.1, 1, 1.5, "0.1", True, None, float("nan"))
    ),
    *((name, value) for name in of_type(bool) for value in (1, 0, "yes", None)),
    ("norm_placement", "before"),
    ("norm_type", "batch_norm"),
    ("position_embedding_type", "sinus"),
    ("activation_function", None),
    ("layer_norm_eps", 0.0),
    ("layer_norm_eps", float("nan")),
    ("residual_scale", 0),
    ("residual_scale", float("inf")),
    ("attention_scale", 0),
    ("logit_scale", -1.0),
    ("logit_scale", float("nan")),
    ("position_offset", 2.0),
    ("pad_token_id", "1"),
    ("pad_token_id", -1),
    ("pad_token_id", 40),
    ("decoder_start_token_id", 40),
    ("bos_token_id", 40),
    ("eos_token_id", "2"),
    ("eos_token_id", 40),
    ("eos_token_id", [2, 40]),
    ("forced_eos_token_id", 40),
    ("classifier_dropout", 1),
]


ONE_HEAD = {"encoder_attention_heads": 1, "decoder_attention_heads": 1}
RELATIVE = {"position_embedding_type": "relative"}
ROPE = {"position_embedding_type": "rope"}
BROKEN_PAIRS = [
    ("qk_norm", {"qk_norm": "self", "norm_type": "unbiased_std"}),
    ("relative_attention_num_buckets", {**RELATIVE, "relative_attention_num_buckets": 3}),
    ("relative_attention_max_distance", {**RELATIVE, "relative_attention_max_distance": 16}),
    ("encoder_attention_heads", {"encoder_attention_heads": 3}),
    ("decoder_attention_heads", {"hidden_size": 18}),
    ("encoder_num_key_value_heads", {"encoder_num_key_value_heads": 4}),
    ("decoder_num_key_value_heads", {"decoder_num_key_value_heads": 3}),
    (
        "decoder_vocab_size",
        {"decoder_vocab_size": 50, "share_encoder_decoder_embeddings": True},
    ),
    ("alignment_heads", {"alignment_heads": [[3, 0]]}),
    ("d_model", {**ROPE, **ONE_HEAD, "d_model": 3}),
    ("partial_rotary_factor", {**ROPE, "rope_parameters": {"partial_rotary_factor": 0.2}}),
    ("partial_rotary_factor", {**ROPE, "rope_parameters": {"partial_rotary_factor": 1.5}}),
    ("rope_parameters", {**ROPE, "rope_parameters": {"rope_type": "linear"}}),
    ("rope_parameters", {**ROPE, "rope_parameters": {"rope_thetta": 5.0}}),
    ("rope_parameters", {**ROPE, "rope_parameters": "linear"}),
    ("rope_parameters", {**ROPE, "rope_theta": 500.0}),
]


@pytest.mark.parametrize(("name", "value"), BAD_VALUES)
def test_every_bad_value_is_named(tiny_config, name, value):
    with pytest.raises(ValueError, match=f"`{name}`"):
        tiny_config(**{name: value})


@pytest.mark.parametrize(("name", "fields"), BROKEN_PAIRS)
def test_fields_that_exclude_each_other_are_named(tiny_config, name, fields):
    with pytest.raises(ValueError, match=f"`{name}`"):
        tiny_config(**fields)


def test_rope_parameters_belong_to_rope_alone(tiny_config):
    assert not hasattr(tiny_config(rope_parameters={"rope_theta": 5.0}), "rope_parameters")


def test_the_heads_that_align_are_saved(tiny_config, tmp_path):
    tiny_config(alignment_heads=[[0, 1]]).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["alignment_heads"] == [[0, 1]]
    assert VanillaTransformerConfig.from_pretrained(tmp_path).alignment_heads == [[0, 1]]
    assert tiny_config().alignment_heads is None


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_the_number_of_key_value_heads_is_stored(tiny_config, tmp_path, side):
    config = tiny_config()
    heads = getattr(config, f"{side}_attention_heads")
    assert getattr(config, f"{side}_num_key_value_heads") == heads
    stack = config.get_text_config(**{side: True})
    assert (stack.num_attention_heads, stack.num_key_value_heads) == (heads, heads)
    config.save_pretrained(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    assert fields[f"{side}_num_key_value_heads"] == heads


def test_equal_vocabularies_are_shared(tiny_config):
    assert tiny_config(decoder_vocab_size=50).share_encoder_decoder_embeddings is False
    assert tiny_config(decoder_vocab_size=40).share_encoder_decoder_embeddings is True


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("norm_placment", "norm_placement"),
        ("dmodel", "d_model"),
        ("hiden_size", "hidden_size"),
    ],
)
def test_a_misspelt_field_is_refused_with_the_right_name(tiny_config, wrong, right):
    with pytest.raises(ValueError, match=f"{wrong}.*did you mean `{right}`"):
        tiny_config(**{wrong: 1})


def test_an_attribute_set_on_a_config_does_not_make_its_file_unreadable(tiny_config, tmp_path):
    config = tiny_config()
    config.layer_norm_epsilon = 1.0
    config.save_pretrained(tmp_path)
    loaded = VanillaTransformerConfig.from_pretrained(tmp_path)
    assert loaded.layer_norm_epsilon == 1.0
    assert loaded.layer_norm_eps == config.layer_norm_eps
    assert loaded.to_dict() == config.to_dict()


def test_both_vocabularies_change_where_they_share_a_matrix(tiny_config, tmp_path):
    config = tiny_config()
    config.vocab_size = 12
    assert VanillaTransformerModel(config).decoder.embed_tokens.num_embeddings == 12
    config.save_pretrained(tmp_path)
    loaded = VanillaTransformerConfig.from_pretrained(tmp_path, vocab_size=20)
    assert loaded.decoder_vocab_size == 20
    separate = tiny_config(share_encoder_decoder_embeddings=False)
    separate.vocab_size = 12
    assert separate.decoder_vocab_size == 40


@pytest.mark.parametrize(
    "extra",
    [
        {"my_note": "kept"},
        {"num_labels": 3},
        {"id2label": {0: "a", 1: "b", 2: "c"}},
        {"torch_dtype": "float32"},
        {"output_hidden_states": True},
        {"task_specific_params": {"a": 1}},
        {"sep_token_id": 5},
    ],
)
def test_fields_of_the_base_class_and_own_attributes_are_allowed(tiny_config, extra):
    config = tiny_config(**extra)
    name, value = next(iter(extra.items()))
    name = "dtype" if name == "torch_dtype" else name
    assert getattr(config, name) in (value, torch.float32)


def test_the_common_names_of_sizes_are_the_same_fields(tiny_config):
    config = tiny_config()
    assert config.hidden_size == config.d_model == 16
    assert config.num_hidden_layers == config.encoder_layers
    assert config.num_attention_heads == config.encoder_attention_heads
    config.hidden_size = 32
    assert config.d_model == 32
    assert VanillaTransformerConfig(hidden_size=64).d_model == 64
    model = VanillaTransformerModel(tiny_config(hidden_size=8))
    assert model.get_input_embeddings().weight.shape == (40, 8)


def test_a_bad_value_in_a_file_or_an_override_is_refused(tiny_config, tmp_path):
    tiny_config().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="norm_placement"):
        VanillaTransformerModel(
            VanillaTransformerConfig.from_pretrained(tmp_path, norm_placement="sandwich")
        )
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"norm_placement": "post"', '"norm_placement": "x"'))
    with pytest.raises(ValueError, match="norm_placement"):
        VanillaTransformerConfig.from_pretrained(tmp_path)


# --- presets -------------------------------------------------------------------------------------


def test_a_preset_can_be_changed():
    for name in PRESETS:
        assert VanillaTransformerConfig.from_preset(name, encoder_layers=1).encoder_layers == 1


def count(width, inner, rows, layers=6):
    """Parameters of the paper's model: matrices and biases, gains and shifts, embeddings."""
    attention, norm = 4 * (width * width + width), 2 * width
    feed_forward = 2 * width * inner + inner + width
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return rows * width + layers * (encoder + decoder)


@pytest.mark.parametrize(
    ("name", "exact", "rows", "published"),
    [
        ("vaswani-base", 63_082_496, 37000, 65e6),
        ("vaswani-big", 214_245_376, 37000, 213e6),
        ("iwslt", 39_469_056, 8848 + 6632, 39_469_056),  # what fairseq reports
    ],
)
def test_presets_have_as_many_parameters_as_their_systems(name, exact, rows, published):
    config = VanillaTransformerConfig.from_preset(name)
    with torch.device("meta"):
        model = VanillaTransformerForConditionalGeneration(config)
    assert model.num_parameters() == exact == count(config.d_model, config.encoder_ffn_dim, rows)
    assert exact == pytest.approx(published, rel=0.03)
