"""Exported graphs of the model: torch.export, ONNX, and decoding with them."""

import logging

import pytest
import torch
from test_onnx import FAST_AND_SLOW, SLOW
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

exporters = pytest.importorskip("transformers.exporters", reason="needs a newer transformers")


@pytest.fixture(autouse=True)
def without_a_malformed_message(caplog):
    """Hides a message that torch logs without its argument, which fails when it is formatted."""
    caplog.set_level(logging.ERROR, logger="torch._export.serde.serialize")


def exporter(kind):
    if kind == "onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(package, reason="needs the extra `onnx`")
        return exporters.OnnxExporter(), exporters.OnnxConfig(dynamic=True)
    return exporters.DynamoExporter(), exporters.DynamoConfig(dynamic=True)


def batch_of(tiny_batch, *lengths, keep=("input_ids", "attention_mask")):
    batch = tiny_batch(*lengths)
    return {k: batch[k] for k in keep}


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("architecture", FAST_AND_SLOW)
def test_torch_export_takes_other_sizes(tiny_model, tiny_batch, architecture, attention):
    model, auto = tiny_model(attention=attention, **architecture), torch.export.Dim.AUTO
    names = ("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask")
    batch = batch_of(tiny_batch, keep=names)
    shapes = {name: {0: auto, 1: auto} for name in names} | {"use_cache": None}
    program = torch.export.export(model, (), {**batch, "use_cache": False}, dynamic_shapes=shapes)
    for lengths in ((7, 4, 6), (5, 6, 3)), ((9, 3), (4, 8)), ((40, 3), (4, 50)):
        other = batch_of(tiny_batch, *lengths, keep=names)
        found = program.module()(**other, use_cache=False).logits
        torch.testing.assert_close(found, model(**other).logits)


@pytest.mark.parametrize("architecture", FAST_AND_SLOW)
@SLOW  # the fast tests of test_onnx.py export an encoder too
@pytest.mark.parametrize("kind", ["dynamo", "onnx"])
def test_an_exported_encoder_computes_the_same(
    tiny_model, tiny_batch, tmp_path, kind, architecture
):
    tool, config = exporter(kind)
    encoder = tiny_model(**architecture).get_encoder()
    tool.export(encoder, batch_of(tiny_batch), config).save_pretrained(tmp_path)
    loaded = exporters.ExportedModel.from_pretrained(tmp_path, trust_remote_code=True)
    source = batch_of(tiny_batch, (9, 3), (1, 1))
    real = source["attention_mask"].bool()
    expected = encoder(**source).last_hidden_state
    close(loaded(**source).last_hidden_state[real], expected[real])


@pytest.mark.parametrize("architecture", FAST_AND_SLOW)
@pytest.mark.parametrize("kind", ["dynamo", pytest.param("onnx", marks=SLOW)])
def test_an_exported_decoder_with_its_cache_generates_the_same(
    tiny_model, tiny_batch, tmp_path, kind, architecture
):
    """Exports with three sources of seven tokens, then runs six steps with two sources of nine."""
    tool, config = exporter(kind)
    model = tiny_model(**architecture)
    exported = tool.export_for_generation(
        model, batch_of(tiny_batch), config, multi_token_decode=True
    )
    exported.save_pretrained(tmp_path)
    runners = exporters.ExportedModel.from_pretrained(tmp_path, trust_remote_code=True).runners
    source = batch_of(tiny_batch, (9, 3), (1, 1))
    expected = model.generate(
        **source,
        max_new_tokens=6,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    encoded, tokens = model.get_encoder()(**source), torch.zeros(2, 1, dtype=torch.long)
    cache = EncoderDecoderCache(
        DynamicCache(config=model.config), DynamicCache(config=model.config)
    )
    for step, logits in enumerate(expected.logits):
        output = runners["prefill" if step == 0 else "decode"](
            attention_mask=source["attention_mask"],
            decoder_input_ids=tokens,
            encoder_outputs=encoded,
            cache=cache,
        )
        close(output.logits[:, -1], logits)
        cache, tokens = output.cache, output.logits[:, -1:].argmax(-1)


@SLOW
@pytest.mark.parametrize("architecture", FAST_AND_SLOW)
def test_a_whole_onnx_graph_computes_the_same(tiny_model, tiny_batch, tmp_path, architecture):
    tool, config = exporter("onnx")
    model = tiny_model(**architecture)
    names = ("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask")
    inputs = {**batch_of(tiny_batch, keep=names), "use_cache": False}
    tool.export(model, inputs, config).save_pretrained(tmp_path)
    import onnxruntime

    session = onnxruntime.InferenceSession(
        str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    other = batch_of(tiny_batch, (9, 3), (4, 8), keep=names)
    feeds = {
        entry.name: other[entry.name.removeprefix("input.")].numpy()
        for entry in session.get_inputs()
    }
    found = dict(
        zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True)
    )
    [logits] = [value for name, value in found.items() if "logits" in name]
    close(torch.tensor(logits), model(**other).logits)
