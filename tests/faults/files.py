"""Every kind of file that the package reads: how it is made, read, and what of it may change."""

import csv
import gzip
import json

import pyarrow as pa
import pyarrow.parquet as parquet
import torch
from safetensors.torch import save_file

from vanilla_transformer.data.arguments import DataArguments
from vanilla_transformer.data.file_contents import read_object
from vanilla_transformer.data.parallel_data import load_parallel_data
from vanilla_transformer.inference.translator import Translator
from vanilla_transformer.interop.checkpoint_files import read_rename_rules, read_state_dict
from vanilla_transformer.run.parsing import parse_arguments

PAIRS = [{"source": f"word{i} a", "target": f"b word{i}"} for i in range(20)]
OF_A_MODEL = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
OF_A_MODEL += ("model.safetensors",)
RECIPE = """d_model: 32
output_dir: nowhere
metrics: [bleu, wer]
lr_scheduler_type: cosine
lr_scheduler_kwargs: {num_cycles: 1}
learning_rate: 0.001
save_strategy: no
"""


def generate(path):
    translator = Translator.from_pretrained(str(path.parent), "transformers", "cpu")
    return translator.translate(["word1 word2 word3", "word4"], max_new_tokens=6)


def table(path):
    return load_parallel_data(DataArguments(train_file=str(path)))["train"].to_dict()


def text_pairs(path):
    files = DataArguments(train_source=str(path), train_target=str(path.with_name("other.txt")))
    return load_parallel_data(files)["train"].to_dict()


def weights(path):
    return {name: tensor.tolist() for name, tensor in read_state_dict(path).items()}


def recipe(path):
    read = parse_arguments([str(path)], command=())
    return repr((read.model, read.architecture, read.training.to_dict()))


def write_files(folder):
    """Writes one file of each kind that is not part of a model."""
    with (folder / "a.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["source", "target"])
        writer.writeheader()
        writer.writerows(PAIRS)
    (folder / "a.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    (folder / "a.json").write_text(json.dumps(PAIRS, indent=1))
    columns = {name: [pair[name] for pair in PAIRS] for name in ("source", "target")}
    parquet.write_table(pa.table(columns), folder / "a.parquet")
    lines = "".join(pair["source"] + "\n" for pair in PAIRS)
    (folder / "a.txt").write_text(lines)
    (folder / "a.txt.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    (folder / "other.txt").write_text(lines)
    tensors = {f"layer.{i}": torch.arange(12.0).view(3, 4) for i in range(5)}
    torch.save(tensors, folder / "a.pt")
    save_file(tensors, folder / "a.safetensors")
    (folder / "rules.yaml").write_text("'old\\.(.*)': 'new.\\1'\n'unused': null\n")
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "recipe.json").write_text('{"d_model": 32, "output_dir": "nowhere", "seed": 1}')
    (folder / "all_results.json").write_text('{"eval_bleu": 1.5, "train_loss": 0.5}')


READERS = {
    **dict.fromkeys(OF_A_MODEL, generate),
    **dict.fromkeys(("a.csv", "a.jsonl", "a.json", "a.parquet"), table),
    **dict.fromkeys(("a.txt", "a.txt.gz"), text_pairs),
    **dict.fromkeys(("a.pt", "a.safetensors"), weights),
    **dict.fromkeys(("recipe.yaml", "recipe.json"), recipe),
    "rules.yaml": read_rename_rules,
    "all_results.json": read_object,
}
FREE = {  # damage after which such a file says something else, in full order: nobody can tell
    "a.csv": {"a flipped bit", "cut off", "inserted bytes"},
    "a.txt": {"a flipped bit", "inserted bytes"},
    "a.jsonl": {"a flipped bit", "inserted bytes", "cut off"},
    "a.json": {"a flipped bit", "inserted bytes"},
    "a.parquet": {"a flipped bit"},
    "a.pt": {"a flipped bit", "zeros"},
    "a.safetensors": {"a flipped bit", "zeros"},
    "model.safetensors": {"a flipped bit", "zeros"},
    "rules.yaml": {"a flipped bit", "inserted bytes", "cut off", "other text"},
    "recipe.yaml": {"a flipped bit", "inserted bytes", "cut off", "other text"},
    "recipe.json": {"a flipped bit", "inserted bytes", "other text"},
}
