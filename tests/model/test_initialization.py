"""Initial values: variances, and what loading keeps."""

import math

import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerForSequenceClassification,
)
from vanilla_transformer.model.configuration_vanilla_transformer import CHOICES
from vanilla_transformer.model.normalization import NORMS

SIZES = {
    "vocab_size": 300,
    "d_model": 96,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 160,
    "decoder_ffn_dim": 160,
    "dropout": 0.0,
}
PLACEMENTS = {"t_fixup": "none"}
ROLES = ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", "gate")
VALUES = ("v_proj", "out_proj", "fc1", "fc2", "gate")
EXPECTED_GAINS = {  # of (stack, role)
    "xavier": lambda stack, role: 1,
    "half_xavier": lambda stack, role: 0.5,
    "t_fixup": lambda stack, role: (
        {"encoder": 0.67 * 2**-0.25, "decoder": (9 * 3) ** -0.25}[stack] if role in VALUES else 1
    ),
}


def make_config(initializer, **changes):
    placement = PLACEMENTS.get(initializer, "pre")
    fields = {**SIZES, "initializer": initializer, "norm_placement": placement, **changes}
    return VanillaTransformerConfig(**fields)


def make_model(initializer, kind=VanillaTransformerForConditionalGeneration, **changes):
    torch.manual_seed(0)
    return kind(make_config(initializer, **changes))


def matrices_of_layers(model):
    """Yields (stack, layer, role, matrix), of stacked projections part by part."""
    for name, module in model.named_modules():
        words = name.split(".")
        if not isinstance(module, nn.Linear) or "layers" not in words:
            continue
        stack, layer = words[words.index("layers") - 1], int(words[words.index("layers") + 1])
        parts = module.weight.split(getattr(module, "part_sizes", len(module.weight)))
        roles = ROLES[:3] if len(parts) == 3 else words[-1:]
        for role, matrix in zip(roles, parts, strict=True):
            yield stack, layer, role, matrix


@pytest.mark.parametrize("initializer", EXPECTED_GAINS)
@pytest.mark.parametrize(
    "changes", [{}, {"fused_qkv": True, "gated_ffn": True, "decoder_num_key_value_heads": 2}]
)
def test_the_bound_of_each_matrix(initializer, changes):
    found = list(matrices_of_layers(make_model(initializer, **changes)))
    assert len(found) == (2 * (7 if changes else 6) + 3 * (11 if changes else 10))
    for stack, layer, role, matrix in found:
        bound = math.sqrt(6 / sum(matrix.shape)) * EXPECTED_GAINS[initializer](stack, role)
        assert 0.99 * bound < matrix.abs().max() <= bound * 1.00001, (stack, layer, role)
        assert matrix.std().item() == pytest.approx(bound / 3**0.5, rel=0.03)


def test_normal_values():
    model = make_model("normal", position_embedding_type="learned", lm_head_bias=True)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05), name
        elif "norm" not in name:
            assert not parameter.any(), name
    assert not model.get_input_embeddings().weight[1].any()
    relative = make_model("normal", position_embedding_type="relative", decoder_layers=1)
    tables = [
        parameter for name, parameter in relative.named_parameters() if "embed_positions" in name
    ]
    assert [parameter.std().item() for parameter in tables] == [pytest.approx(0.02, rel=0.3)] * 2


@pytest.mark.parametrize("initializer", EXPECTED_GAINS)
def test_embeddings_and_other_projections(initializer):
    model = make_model(initializer, tie_word_embeddings=False)
    gain = {"t_fixup": (9 * 3) ** -0.25, "half_xavier": 0.5}.get(initializer, 1)
    table = model.get_input_embeddings().weight
    assert table.std().item() == pytest.approx(gain * 96**-0.5, rel=0.03)
    assert not table[1].any()
    vectors = {
        name: parameter for name, parameter in model.named_parameters() if parameter.ndim == 1
    }
    for name, parameter in vectors.items():
        assert (parameter == ("norm" in name and name.endswith("weight"))).all(), name
    bound = math.sqrt(6 / (96 + 300)) * (0.5 if initializer == "half_xavier" else 1)
    assert model.lm_head.weight.abs().max().item() == pytest.approx(bound, rel=0.01)


@pytest.mark.parametrize("initializer", EXPECTED_GAINS)
def test_it_draws_the_same_numbers_as_xavier_but_for_the_factors(initializer):
    """A change of the initializer is a change of scale: so seeds compare."""
    reference = make_model("xavier", norm_placement="none")
    found = dict(make_model(initializer, norm_placement="none").named_parameters())
    for name, parameter in reference.named_parameters():
        if parameter.ndim == 2:
            assert (
                torch.corrcoef(torch.stack([parameter.flatten(), found[name].flatten()]))[0, 1]
                > 0.9999
            )


# Saving and loading ------------------------------------------------------------------------------


def test_a_missing_matrix_is_drawn_with_its_factor_and_the_others_stay(tmp_path):
    model = make_model("t_fixup")
    name = "model.decoder.layers.1.encoder_attn.v_proj.weight"
    state = {key: value for key, value in model.state_dict().items() if key != name}
    model.save_pretrained(tmp_path, state_dict=state)
    loaded = type(model).from_pretrained(tmp_path)
    for key, value in loaded.state_dict().items():
        if key != name:
            assert torch.equal(value, model.state_dict()[key]), key
    bound = math.sqrt(6 / (96 + 96)) * (9 * 3) ** -0.25
    drawn = loaded.get_parameter(name)
    assert 0.99 * bound < drawn.abs().max() <= bound
    assert not torch.equal(drawn, model.get_parameter(name))


def without_initial_value(kind, **changes):
    """The parameters and buffers that a model would leave as they are in memory."""
    model = kind(VanillaTransformerConfig(**{**SIZES, **changes}))
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with torch.no_grad():
        for thing in (*model.modules(), *tensors.values()):
            thing._is_hf_initialized = False
        for tensor in tensors.values():
            tensor.fill_(math.nan if tensor.is_floating_point() else 7)
    model.initialize_weights()
    return [name for name, tensor in tensors.items() if not tensor.isfinite().all()]


EVERYTHING = {"gated_ffn": True, "normalize_embedding": True, "qk_norm": "all"}
EVERYTHING |= {"lm_head_bias": True}
VALUES_OF_FIELDS = {**CHOICES, "activation_function": tuple(ACT2FN), "fused_qkv": (True,)}
MODELS = (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerForSequenceClassification,
)


@pytest.mark.parametrize("field", VALUES_OF_FIELDS)
@pytest.mark.parametrize("kind", MODELS)
def test_every_parameter_of_every_choice_has_an_initial_value(kind, field):
    for value in VALUES_OF_FIELDS[field]:
        changes = {**EVERYTHING, field: value}
        if value == "unbiased_std":
            changes["qk_norm"] = "none"
        if value == "t_fixup":
            changes["norm_placement"] = "none"
        assert without_initial_value(kind, **changes) == [], value


class ScaledNorm(nn.LayerNorm):
    """A norm with one parameter more than its base class."""

    def __init__(self, d_model, eps):
        super().__init__(d_model, eps)
        self.scale = nn.Parameter(torch.ones(d_model))


class GainNorm(nn.Module):
    """A norm of no class that is known."""

    def __init__(self, d_model, eps):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))


@pytest.mark.parametrize("norm", [ScaledNorm, GainNorm])
def test_a_norm_without_initial_values_is_seen(monkeypatch, norm):
    monkeypatch.setitem(NORMS, "new", norm)
    monkeypatch.setitem(CHOICES, "norm_type", ("new",))
    found = without_initial_value(MODELS[0], norm_type="new")
    name = "scale" if norm is ScaledNorm else "gain"
    assert {path.rpartition(".")[2] for path in found} == {name}
