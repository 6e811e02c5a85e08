"""Exports load in transformers.js, and generate the same."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from onnx_graphs import OnnxGraphs
from transformers import AutoTokenizer

from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.inference.loading import load_weights
from vanilla_transformer.interop.tokenizers import PROBES, load_tokenizer, save_plain_tokenizer
from vanilla_transformer.names import TOKENIZER_KINDS

pytestmark = pytest.mark.slow

PACKAGE = "@huggingface/transformers@4.3.1"
MODEL = Path(__file__).resolve().parents[2] / "model_cards" / "pronounce"
WORDS = ["hello", "transformers", "attention", "is", "all", "you", "need", "pronounce", "house"]
KINDS = ("float32", "int8")
GENERATE = """
async function generate(library, folder, words) {
    const { AutoTokenizer, AutoModelForSeq2SeqLM } = library;
    const tokenizer = await AutoTokenizer.from_pretrained(folder);
    const target = await AutoTokenizer.from_pretrained(`${folder}/target_tokenizer`);
    const model = await AutoModelForSeq2SeqLM.from_pretrained(folder);
    const found = [];
    for (const word of words) {
        const ids = await model.generate({ ...tokenizer(word), num_beams: 1 });
        const text = target.batch_decode(ids, { skip_special_tokens: true })[0];
        found.push([ids.tolist()[0].map(Number), text]);
    }
    return found;
}
async function encode(library, folder, texts) {
    const tokenizer = await library.AutoTokenizer.from_pretrained(folder);
    return texts.map((text) => {
        const ids = tokenizer.encode(text);
        return [ids, tokenizer.decode(ids, { skip_special_tokens: true })];
    });
}
function offline(library, models) {
    library.env.allowRemoteModels = false;
    library.env.allowLocalModels = true;
    library.env.localModelPath = models;
    return library;
}
"""
NODE = """
import * as module from '@huggingface/transformers';
%s
const [models, task, folder, texts] = process.argv.slice(2);
const call = { generate, encode }[task];
const found = await call(offline({ ...module }, models), folder, JSON.parse(texts));
console.log(JSON.stringify(found));
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A folder with transformers.js; the packages that it builds on fetch nothing themselves."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"private": true}')
    words = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", PACKAGE]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"npm cannot install {PACKAGE}: {done.stderr[-300:]}")
    (folder / "program.mjs").write_text(NODE % GENERATE)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """The model that the package ships, exported in each type: the folder, and the outputs."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason="needs the extra `onnx`")
    from vanilla_transformer.interop.onnx import export_to_onnx, quantize_graphs

    folder, outputs = tmp_path_factory.mktemp("models"), {}
    model, tokenizer = load_weights(str(MODEL)).eval(), load_tokenizer(MODEL)
    export_to_onnx(model, tokenizer, folder / "float32")
    quantize_graphs(shutil.copytree(folder / "float32", folder / "int8"))
    for kind in KINDS:
        source, target = (
            AutoTokenizer.from_pretrained(folder / "float32" / name)
            for name in ("", "target_tokenizer")
        )
        graphs, found = OnnxGraphs(folder / kind), []
        for word in WORDS:
            ids = graphs.generate(model.config, 40, **source(word, return_tensors="pt"))[0]
            found.append([ids.tolist(), target.decode(ids, skip_special_tokens=True)])
        outputs[kind] = found
    return folder, outputs


def run_node(node, models, task, folder, texts):
    words = ["node", "program.mjs", f"{models}/", task, folder, json.dumps(texts)]
    done = subprocess.run(words, cwd=node, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_node_generates_the_same(node, exports, kind):
    models, outputs = exports
    assert run_node(node, models, "generate", kind, WORDS) == outputs[kind]


def test_8_bits_take_a_quarter(exports):
    models, outputs = exports
    sizes = [
        sum(path.stat().st_size for path in (models / kind / "onnx").iterdir()) for kind in KINDS
    ]
    assert 0.25 < sizes[1] / sizes[0] < 0.3
    equal = [one == other for one, other in zip(*outputs.values(), strict=True)]
    assert sum(equal) >= len(WORDS) - 1


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_tokenizers_of_every_kind_encode_and_decode_the_same(node, tmp_path, kind):
    texts = [*PROBES, "the naïve café, 3 löwen", "a b  c"]
    tokenizer = VanillaTransformerTokenizer.train(texts * 3, vocab_size=400, kind=kind)
    save_plain_tokenizer(tokenizer, tmp_path / "plain")
    expected = [
        [ids, tokenizer.decode(ids, skip_special_tokens=True)]
        for ids in tokenizer(texts)["input_ids"]
    ]
    assert run_node(node, tmp_path, "encode", "plain", texts) == expected
