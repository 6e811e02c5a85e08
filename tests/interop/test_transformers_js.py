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


def run_node(node, models, task, folder, texts):
    words = ["node", "program.mjs", f"{models}/", task, folder, json.dumps(texts)]
    done = subprocess.run(words, cwd=node, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_node_generates_the_same(node, tmp_path):
    """With the model that the package ships."""
    onnx = pytest.importorskip("vanilla_transformer.interop.onnx", reason="needs the extra `onnx`")
    model, tokenizer = load_weights(str(MODEL)).eval(), load_tokenizer(MODEL)
    onnx.export_to_onnx(model, tokenizer, tmp_path / "exported")
    target = AutoTokenizer.from_pretrained(tmp_path / "exported" / "target_tokenizer")
    graphs, expected = OnnxGraphs(tmp_path / "exported"), []
    for word in WORDS:
        ids = graphs.generate(model.config, 40, **tokenizer(word, return_tensors="pt"))[0]
        expected.append([ids.tolist(), target.decode(ids, skip_special_tokens=True)])
    assert run_node(node, tmp_path, "generate", "exported", WORDS) == expected


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
