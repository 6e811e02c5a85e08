"""Models on onnxruntime: their graphs compute the same, and generate the same."""

import importlib
import json
import shutil

import pytest
import torch
from onnx_graphs import OnnxGraphs
from tiny_models import make_batch, make_model

FEW_LAYERS = {"encoder_layers": 1, "decoder_layers": 1}  # tracing is slow
SLOW = pytest.mark.slow
MODELS = {
    "modern": {
        "position_embedding_type": "rope",
        "decoder_num_key_value_heads": 2,
        "norm_placement": "pre",
        "norm_type": "rms_norm",
        "gated_ffn": True,
        "attention_bias": False,
        "decoder_vocab_size": 44,
        "residual_scale": 0.5,
    },
    "the paper's": {},
    "relative": {"position_embedding_type": "relative", "head_dim": 6, "decoder_layers": 2},
    "alibi, fused": {"position_embedding_type": "alibi", "fused_qkv": True},
    "learned": {"position_embedding_type": "learned", "normalize_embedding": True},
    "no positions": {"position_embedding_type": "none", "norm_type": "unbiased_std"},
}
FAST_AND_SLOW = [
    pytest.param(
        {**FEW_LAYERS, **fields}, id=name, marks=[] if name == "modern" else [pytest.mark.slow]
    )
    for name, fields in MODELS.items()
]


@pytest.fixture(scope="session")
def onnx():
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason="needs the extra `onnx`")
    return importlib.import_module("vanilla_transformer.interop.onnx")


@pytest.fixture(scope="session")
def exported_once(onnx, tmp_path_factory):
    """Exports a model, or returns what an earlier test exported, since tracing is slow."""
    made = {}

    def export(fields):
        key = json.dumps(fields)
        if key not in made:
            model, folder = make_model(**fields), tmp_path_factory.mktemp("onnx")
            made[key] = model, folder, onnx.export_to_onnx(model, None, folder)
        return made[key]

    return export


@pytest.mark.parametrize("fields", FAST_AND_SLOW)
def test_the_graphs_compute_and_generate_the_same(fields, exported_once):
    model, folder, (comparison, notes) = exported_once(fields)
    assert comparison.agrees
    assert notes == ()
    assert not list(folder.glob("*.py"))
    graphs = OnnxGraphs(folder)
    for lengths in (((7, 4, 6), (6, 6, 6)), ((1,), (1,)), ((9, 3), (2, 2))):
        batch = make_batch(*lengths, decoder_vocab=model.config.decoder_vocab_size)
        del batch["labels"], batch["decoder_attention_mask"]
        with torch.no_grad():
            expected = model(**batch).logits
        torch.testing.assert_close(graphs.logits(**batch), expected, rtol=0, atol=2e-5)
        del batch["decoder_input_ids"]
        expected = model.generate(**batch, num_beams=1, max_new_tokens=6)
        assert torch.equal(graphs.generate(model.config, 6, **batch), expected)


@pytest.mark.slow
def test_outputs_that_a_config_asks_for_are_no_outputs_of_a_graph(onnx, tmp_path):
    model = make_model(**FEW_LAYERS, output_hidden_states=True, output_attentions=True)
    comparison, _ = onnx.export_to_onnx(model, None, tmp_path)
    assert comparison.agrees


def test_the_alignment_is_that_of_the_model(exported_once):
    model, folder, _ = exported_once(FAST_AND_SLOW[0].values[0])
    batch = make_batch((7, 4), (6, 5), decoder_vocab=model.config.decoder_vocab_size)
    graphs, ids = OnnxGraphs(folder), batch["decoder_input_ids"]
    encoded = graphs.encode(batch["input_ids"], batch["attention_mask"])
    feeds = {"input_ids": ids.numpy(), **encoded, **graphs.empty_cache(2)}
    (found,) = graphs.decoder.run(["alignment"], feeds)
    del batch["labels"], batch["decoder_attention_mask"]
    with torch.no_grad():
        expected = model(**batch, output_attentions=True).cross_attentions[-1].mean(1)
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=0, atol=1e-5)


def test_8_bits_keep_the_names_and_the_outputs(onnx, exported_once, tmp_path):
    import onnx as graphs

    model, original, _ = exported_once(FAST_AND_SLOW[0].values[0])
    folder = shutil.copytree(original, tmp_path / "copy")
    onnx.quantize_graphs(folder)
    files = {path.stem: path for path in (folder / "onnx").iterdir()}
    assert sorted(files) == ["decoder_model_merged_quantized", "encoder_model_quantized"]
    for name, path in files.items():
        before = graphs.load(original / "onnx" / path.name.replace("_quantized", "")).graph
        after = graphs.load(path).graph
        for part in ("input", "output"):
            assert getattr(before, part) == getattr(after, part), name
        matrices = [each for each in before.initializer if len(each.dims) > 1]
        types = [each.data_type for each in after.initializer if len(each.dims) > 1]
        assert len(types) == 2 * len(matrices)
        assert {graphs.TensorProto.INT8} < {*types}, name  # and the scales of each
    quantized = OnnxGraphs(folder)
    batch = make_batch(decoder_vocab=model.config.decoder_vocab_size)
    del batch["labels"], batch["decoder_attention_mask"]
    with torch.no_grad():
        expected = model(**batch).logits
    difference = (quantized.logits(**batch) - expected).abs().max() / expected.abs().max()
    assert 0.001 < difference < 0.03
    del batch["decoder_input_ids"]
    expected = model.generate(**batch, num_beams=1, max_new_tokens=4)
    assert torch.equal(quantized.generate(model.config, 4, **batch), expected)


def test_the_files_are_those_of_transformers_js(onnx, exported_once):
    import onnx as graphs

    folder = exported_once(FAST_AND_SLOW[0].values[0])[1]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "marian"
    assert config["is_encoder_decoder"] is True
    assert config["transformers.js_config"] == {"dtype": "fp32"}
    sides, pair = ("encoder", "decoder"), ("key", "value")
    cached = [f"0.{side}.{kind}" for side in sides for kind in pair]
    graph = graphs.load(folder / "onnx" / "decoder_model_merged.onnx").graph
    first = ["input_ids", "encoder_attention_mask", "encoder_hidden_states"]
    assert [i.name for i in graph.input] == first + [f"past_key_values.{name}" for name in cached]
    assert [o.name for o in graph.output] == ["logits", "alignment"] + [
        f"present.{name}" for name in cached
    ]
    for each in graph.input:  # transformers.js sets every other size of an empty cache to 0
        sizes = [size.dim_param or size.dim_value for size in each.type.tensor_type.shape.dim]
        assert sizes[0] == "batch_size"
        if "past" in each.name:
            assert (sizes[1], sizes[3]) == (2, 4)
            assert sizes[2] == ("known_source_len" if "encoder" in each.name else "past_len")
    for path in (folder / "onnx").iterdir():
        assert b"/vanilla_transformer/" not in path.read_bytes()  # where the code lies
