"""Models of Eole, against an independent model and Eole itself."""

import json

import pytest
import torch
from conftest import add_noise
from eole_models import MODEL, SPECIALS, renamed, save
from opennmt_models import SOURCE, TARGET, WIDTH, assert_same_logits, reference_model
from transformers import AutoTokenizer

from vanilla_transformer.commands.program import run_subcommand
from vanilla_transformer.interop.eole import read_eole
from vanilla_transformer.interop.probe import compare_logits


def test_the_logits_are_those_of_an_independent_model(tmp_path):
    reference = reference_model()
    out = str(tmp_path / "out")
    source = str(save(tmp_path / "model", renamed(reference)))
    run_subcommand("convert", ["--from", "eole", source, out])
    imported = read_eole(source)
    assert_same_logits(imported, reference)
    config = imported.model.config
    assert (config.pad_token_id, config.decoder_start_token_id, config.eos_token_id) == (1, 2, 3)
    assert config.dropout == 0.2
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer(["w0 w3"], text_target=["das Ha￭ us"])["labels"] == [[4, 5, 6, 3]]


def test_all_options_without_a_counterpart_are_listed(tmp_path):
    changes = {
        "architecture": "rnn",
        "generator_function": "sparsemax",
        "embeddings": {"position_encoding_type": "Rotary", "embedding_layer_norm": True},
        "encoder": {"encoder_layer_style": "postnorm", "norm_eps": 1e-5},
        "mlp_activation_fn": "relu2",
        "num_experts": 2,
    }
    training = {"lora_layers": ["linear_query"]}
    folder = save(tmp_path / "model", renamed(reference_model()), changes, training)
    with pytest.raises(ValueError, match="11 problem") as error:
        read_eole(folder)
    for name in (*changes["embeddings"], *changes["encoder"], *training, "num_experts"):
        assert f"{name}` is" in str(error.value)


def test_files_that_are_broken_are_named(tmp_path):
    folder = save(tmp_path / "model", renamed(reference_model()))
    weights = renamed(reference_model()) | {
        "decoder.transformer_layers.0.layer_scalar": torch.full((1,), 2.0)
    }
    with pytest.raises(ValueError, match=r"layers\.0\.layer_scalar` is not know"):
        read_eole(save(tmp_path / "other", weights))
    (folder / "vocab.json").write_text("{")
    with pytest.raises(ValueError, match=r"vocab\.json' is not valid"):
        read_eole(folder)


@torch.no_grad()
def logits_of(model, output, inputs):
    """The logits of a model of Eole, whose output projection is not among its weights."""
    source, target = inputs["input_ids"], inputs["decoder_input_ids"]
    hidden = (inputs["attention_mask"] == 0)[:, None]
    encoded, states = model.encoder(model.src_emb(source), pad_mask=hidden)
    model.decoder.init_state(src=source, enc_out=encoded, enc_final_hs=states)
    decoded, _ = model.decoder(
        model.tgt_emb(target),
        enc_out=encoded,
        src_pad_mask=hidden,
        tgt_pad_mask=torch.zeros_like(target)[:, None].bool(),
    )
    matrix = output.get("generator.weight", model.tgt_emb.embeddings.weight)
    return torch.nn.functional.linear(decoded, matrix, output.get("generator.bias"))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"share_decoder_embeddings": True, "mlp_activation_fn": "gated-silu", "layer_norm": "rms",
         "add_qkvbias": False, "add_ffnbias": False, "heads_kv": 1, "generator_bias": False},
        {"mlp_activation_fn": "gelu-tanh", "add_key_bias": False, "attn_scaling": 0.4,
         "embeddings": {"word_vec_size": WIDTH, "position_encoding_type": "SinusoidalConcat"}},
        {"mlp_activation_fn": "gated-gelu", "embeddings": {"word_vec_size": WIDTH,
         "position_encoding_type": "Learned", "n_positions": 12, "position_shift": 2}},
        {"embeddings": {"word_vec_size": WIDTH, "position_encoding_type": None, "normalize": True}},
    ],
)  # fmt: skip
def test_the_logits_are_those_of_eole(tmp_path, changes):
    """Runs where Eole is installed."""
    pytest.importorskip("eole.models.model", reason="needs Eole", exc_type=ImportError)
    from eole.config.models import TransformerModelConfig
    from eole.inputters.inputter import dict_to_vocabs
    from eole.models.model import EncoderDecoderModel

    options = TransformerModelConfig(**json.loads(json.dumps({**MODEL, **changes})))
    words = {"src": SOURCE, "tgt": TARGET, "decoder_start_token": "<s>", "specials": SPECIALS}
    torch.manual_seed(0)
    model = add_noise(EncoderDecoderModel.build_blocks(options, dict_to_vocabs(words)))
    output = {"generator.weight": torch.randn(len(TARGET), WIDTH),
              "generator.bias": torch.randn(len(TARGET))}  # fmt: skip
    if options.share_decoder_embeddings:
        del output["generator.weight"]
    if not options.generator_bias:
        del output["generator.bias"]
    ours = read_eole(save(tmp_path / "model", model.state_dict() | output, changes)).model
    model.eval()
    assert compare_logits(ours, "eole", lambda inputs: logits_of(model, output, inputs)).agrees
