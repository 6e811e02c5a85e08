"""A conversion holds a model once in memory: its source stays in a map of the file."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import make_config
from safetensors.torch import save_file

from vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerTokenizer,
)
from vanilla_transformer.interop.ctranslate2 import convert_to_ctranslate2

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux' /proc"),
]

WORDS = 30_000
SIZES = {"d_model": 768, "encoder_layers": 4, "decoder_layers": 4, "encoder_ffn_dim": 3072,
         "decoder_ffn_dim": 3072, "encoder_attention_heads": 8,
         "decoder_attention_heads": 8}  # fmt: skip
TABLE = """
config: {encoder_attention_heads: 8, decoder_attention_heads: 8, pad_token_id: 1, eos_token_id: 2,
  decoder_start_token_id: 0}
weights: {}
"""
PROGRAM = """
import sys, threading, time
without, *words = sys.argv[1:]
sys.modules.update(dict.fromkeys(filter(None, [without])))
from vanilla_transformer.commands import program
import vanilla_transformer.interop.ctranslate2_reader, vanilla_transformer.interop.rename_table

def own_memory():
    '''Memory that no file backs: the kernel cannot drop it.'''
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon:")) * 1024

peak = before = own_memory()
def watch():
    global peak
    while True:
        peak = max(peak, own_memory())
        time.sleep(0.01)

threading.Thread(target=watch, daemon=True).start()
assert program.main(words) == 0
print(peak - before)
"""


@pytest.fixture(scope="module")
def big():
    torch.manual_seed(0)
    config = make_config(**SIZES, vocab_size=WORDS + 4)
    return VanillaTransformerForConditionalGeneration(config).eval()


def times_in_memory(source, size, out, *options, without=""):
    """How many times a model of a size is in memory at the worst moment of its conversion."""
    words = [sys.executable, "-c", PROGRAM, without, "convert", str(source), str(out), *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.splitlines()[-1]) / size


@pytest.mark.parametrize("name", ["run.pt", "run.safetensors"])
def test_a_file_of_weights_is_in_memory_once(big, tmp_path, name):
    weights = {name: tensor.detach() for name, tensor in big.named_parameters()}  # once if tied
    (torch.save if name.endswith(".pt") else save_file)(weights, tmp_path / name)
    (tmp_path / "table.yaml").write_text(TABLE)
    options = ("--from", "table", "--table", str(tmp_path / "table.yaml"))
    size = (tmp_path / name).stat().st_size
    assert 0.5 < times_in_memory(tmp_path / name, size, tmp_path / "out", *options) < 1.5


@pytest.mark.parametrize(
    ("without", "most"),
    [
        ("ctranslate2", 1.5),
        ("", 2.5),  # CTranslate2 4.8 alone takes 1.9 times the size, while it loads the file
    ],
)
def test_a_model_of_ctranslate2_is_in_memory_once(big, tmp_path, without, most):
    words = " ".join(f"w{index}" for index in range(WORDS))
    tokenizer = VanillaTransformerTokenizer.train([words], vocab_size=WORDS + 4, kind="word")
    convert_to_ctranslate2(big, tokenizer, tmp_path / "ct2")
    size = (tmp_path / "ct2" / "model.bin").stat().st_size
    assert 0.5 < times_in_memory(tmp_path / "ct2", size, tmp_path / "out", without=without) < most
