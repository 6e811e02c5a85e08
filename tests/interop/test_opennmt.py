"""Checkpoints of OpenNMT-py, against independent models and CTranslate2."""

import pytest
import torch
from opennmt_models import SOURCE, TARGET, assert_same_logits, reference_model, save, weights_of
from torch import nn
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.opennmt import read_opennmt


@pytest.mark.parametrize(
    ("scheme", "name"),
    [("sinusoidal", "SinusoidalInterleaved"), ("sinusoidal_fairseq", "SinusoidalConcat")],
)
def test_the_logits_are_those_of_an_independent_model(tmp_path, scheme, name):
    reference = reference_model()
    path = save(tmp_path / "model.pt", reference, weights_of(reference, scheme),
                position_encoding_type=name)  # fmt: skip
    imported = read_opennmt(path)
    assert_same_logits(imported, reference, scheme)
    config = imported.model.config
    assert (config.pad_token_id, config.decoder_start_token_id, config.eos_token_id) == (1, 2, 3)
    assert (config.dropout, config.attention_dropout) == (0.1, 0.2)


def test_the_tokenizer_and_the_first_versions_of_norms(tmp_path):
    reference = reference_model()
    old = {
        name.replace("norm.weight", "norm.a_2").replace("norm.bias", "norm.b_2"): tensor
        for name, tensor in weights_of(reference).items()
    }
    out = str(tmp_path / "out")
    path = str(save(tmp_path / "model.pt", reference, old))
    run_subcommand("convert", ["--from", "opennmt-py", path, out])
    tokenizer = AutoTokenizer.from_pretrained(out)
    encoded = tokenizer(["w0 w3 unknown"], text_target=["das Ha￭ us"])
    assert encoded["input_ids"] == [[4, 7, 0]]  # a source has no </s>
    assert encoded["labels"] == [[4, 5, 6, 3]]
    assert tokenizer.decode([2, 4, 5, 6, 7, 3], skip_special_tokens=True) == "das Haus."
    model = AutoModelForSeq2SeqLM.from_pretrained(out)
    found = model.state_dict()["model.decoder.layers.0.feed_forward_pre_norm.bias"]
    assert torch.equal(found, reference.decoder.layers[0].norm3.bias)


def test_biases_that_no_layer_has_are_zero(tmp_path):
    """`add_qkvbias` may be off in part: a bias of one projection only."""
    reference = reference_model()
    with torch.no_grad():
        for module in reference.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.in_proj_bias.zero_()
    weights = {name: w for name, w in weights_of(reference).items()
               if not (".linear_" in name and name.endswith("bias"))}  # fmt: skip
    assert_same_logits(read_opennmt(save(tmp_path / "model.pt", reference, weights)), reference)
    del weights["encoder.transformer.0.self_attn.final_linear.bias"]
    with pytest.raises(ValueError, match=r"encoder\.layers\.0\.self_attn\.out_proj\.bias` is miss"):
        read_opennmt(save(tmp_path / "model.pt", reference, weights))


def test_all_options_without_a_counterpart_are_listed(tmp_path):
    options = {
        "encoder_type": "brnn",
        "model_task": "lm",
        "copy_attn": True,
        "max_relative_positions": -1,
        "self_attn_type": "average",
        "pos_ffn_activation_fn": "swish",
        "lora_layers": ["w_1"],
        "num_experts": 4,
        "heads": None,
    }
    path = save(tmp_path / "model.pt", reference_model(), **options)
    with pytest.raises(ValueError, match="9 problem") as error:
        read_opennmt(path)
    assert all(f"`{name}` is" in str(error.value) for name in options)
    path = save(tmp_path / "model.pt", reference_model(), vocab=(SOURCE, TARGET[4:]))
    with pytest.raises(ValueError, match="is '</s>', which is no token"):
        read_opennmt(path)


def test_weights_and_tables_that_do_not_fit_are_named(tmp_path):
    reference = reference_model()
    path = save(tmp_path / "model.pt", reference, position_encoding_type="SinusoidalConcat")
    with pytest.raises(ValueError, match="2 problem") as error:
        read_opennmt(path)
    assert "`encoder.embeddings.make_embedding.pe.pe`: it does not hold" in str(error.value)
    path = save(tmp_path / "model.pt", reference, position_encoding=False)
    with pytest.raises(ValueError, match="2 problem") as error:
        read_opennmt(path)
    assert "`decoder.embeddings.make_embedding.pe.pe` is not known" in str(error.value)
    torch.save({"model": {}}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="3 problem"):
        read_opennmt(tmp_path / "other.pt")
