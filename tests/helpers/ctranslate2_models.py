"""Directories of CTranslate2 that its own converters write from small random models."""

import json
import struct

import ctranslate2
import torch
from ctranslate2.converters import transformers as converters
from hf_models import make, make_source
from transformers import T5Config, T5ForConditionalGeneration

T5 = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "num_heads": 3, "num_layers": 2, "d_ff": 24,
      "num_decoder_layers": 2, "decoder_start_token_id": 0}  # fmt: skip
PEGASUS = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
SENTENCES = ("<s>", "<pad>", "</s>", "<unk>")
PIECES = ("<pad>", "</s>", "<unk>")
MARIAN = ("</s>", "<unk>")
FAMILIES = {
    "marian": ("marian", {}, MARIAN),
    "m2m100": ("m2m100", {}, SENTENCES),
    "mbart": ("mbart", {}, SENTENCES),
    "bart": ("bart", {}, SENTENCES),
    "pegasus": ("pegasus", PEGASUS, PIECES),
    "t5": (None, {}, PIECES),
    "t5 v1.1": (None, {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, PIECES),
}
"""Kind of transformers (None: T5), config fields, and the first tokens."""


class Words:
    """What a converter of CTranslate2 asks a tokenizer for."""

    bos_token, pad_token, eos_token, unk_token, unk_token_id = "<s>", "<pad>", "</s>", "<unk>", 3
    special_tokens_map = {}  # noqa: RUF012 - as in transformers

    def __init__(self, tokens):
        self.tokens = tokens

    def get_vocab(self):
        return {token: index for index, token in enumerate(self.tokens)}

    def convert_ids_to_tokens(self, index):
        return self.tokens[index]


def make_family(name):
    """A model of transformers and its tokens."""
    kind, changes, first = FAMILIES[name]
    if kind is None:
        source = make_source(T5ForConditionalGeneration, T5Config(**T5, **changes), seed=1)
    else:
        source = make(kind, decoder_attention_heads=2, **changes)
        if kind in ("bart", "mbart", "pegasus"):  # what their old configs say
            source.config.normalize_before = kind != "bart"
            source.config.normalize_embedding = kind != "pegasus"
    last = ("<pad>",) if kind == "marian" else ()
    count = source.config.vocab_size - len(first) - len(last)
    return source, [*first, *(f"▁w{index}" for index in range(count)), *last]


def write_family(name, folder, quantization=None):
    source, tokens = make_family(name)
    with torch.no_grad():
        loader = converters._MODEL_LOADERS[type(source.config).__name__]
        write_spec(loader(source, Words(tokens)), folder, quantization)
    return make_family(name)[0], tokens  # the loader changes its model


def write_spec(spec, folder, quantization=None):
    spec.validate()
    spec.optimize(quantization)
    folder.mkdir()
    spec.save(str(folder))


def assert_same_searches(model, folder, tokens, forced=None, beams=(1, 3)):
    """Greedy and beam outputs of the model are those of CTranslate2 in float32.

    `tokens` are those of CTranslate2, for source and target; `forced` is the first token of a
    target for which the model names none.
    """
    source_tokens, target_tokens = tokens
    config = model.config
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, min(config.vocab_size, 45), (6, 7), generator=generator)
    ids[:, -1] = config.eos_token_id
    translator = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    start = config.decoder_start_token_id
    options, prefix = {}, None
    if start is None:
        start, prefix = target_tokens.index(forced), [[forced]] * len(ids)
        options["decoder_start_token_id"] = start
    adds_end = json.loads((folder / "config.json").read_text()).get("add_source_eos", False)
    given = ids[:, :-1] if adds_end else ids
    rows = [[source_tokens[index] for index in row] for row in given.tolist()]
    for count in beams:
        found = model.generate(
            input_ids=ids,
            num_beams=count,
            max_new_tokens=9,
            early_stopping=count > 1,
            **options,
        )
        results = translator.translate_batch(
            rows, target_prefix=prefix, beam_size=count, max_decoding_length=9,
            min_decoding_length=0,
        )  # fmt: skip
        for row, result in zip(found[:, 1:].tolist(), results, strict=True):
            end = row.index(config.eos_token_id) if config.eos_token_id in row else len(row)
            hypothesis = result.hypotheses[0]
            assert [target_tokens[index] for index in row[:end]] == hypothesis


def as_version_5(folder, **flags):
    """Makes a directory one of CTranslate2 2: attributes of the whole model, and no config."""
    path = folder / "model.bin"
    content = path.read_bytes()
    name_length = struct.unpack_from("<H", content, 4)[0]
    place = 4 + 2 + name_length + 4  # of the number of variables
    (count,) = struct.unpack_from("<I", content, place)
    added = b""
    for name, value in flags.items():
        text = name.encode() + b"\0"
        added += struct.pack("<H", len(text)) + text + struct.pack("<BBIb", 0, 1, 1, value)
    head = struct.pack("<I", 5) + content[4:place] + struct.pack("<I", count + len(flags))
    path.write_bytes(head + added + content[place + 4 :])
    (folder / "config.json").unlink()
    tokens = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
    (folder / "shared_vocabulary.json").unlink()
    text = "".join(f"{token}\n" for token in tokens)
    (folder / "shared_vocabulary.txt").write_text(text, encoding="utf-8")
