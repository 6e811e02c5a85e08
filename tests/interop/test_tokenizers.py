"""Tokenizers of converted models, from the SentencePiece and BPE files of old checkpoints."""

import json
import random

import pytest
from hf_models import SIZES, assert_inspectable, family_of, make_source
from transformers import AutoTokenizer, T5Config

from vanilla_transformer.interop.funnel import convert

sentencepiece = pytest.importorskip("sentencepiece")

TEXTS = [
    "ab cde fgh",
    "Löwe 字 …",
    "",
    "  ab\tc ",
    "\u200b🙂 A\u0301 ▁a",
    "<s> <0x41> </s>",
    "x" * 99,
]
PAD_FIRST = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
LAYOUTS = {  # kind: class of the tokenizer, name of the file, special ids, tokens in front
    "t5": ("T5Tokenizer", "spiece.model", PAD_FIRST, 0),
    "pegasus": ("PegasusTokenizer", "spiece.model", PAD_FIRST, 0),
    "mbart": ("MBartTokenizer", "sentencepiece.bpe.model", {}, 0),
    "nllb": ("NllbTokenizer", "sentencepiece.bpe.model", {}, 1),
    "m2m100": ("M2M100Tokenizer", "sentencepiece.bpe.model", {}, 1),
}


BYTES = {"model_type": "bpe", "byte_fallback": True, "vocab_size": 340}  # and unknown characters
FOLDED = {"normalization_rule_name": "nmt_nfkc_cf", "user_defined_symbols": "<sep>"}
OTHER_PIECES = [("t5", BYTES), ("m2m100", BYTES), ("nllb", {**BYTES, **FOLDED}), ("mbart", FOLDED)]


def train_pieces(folder, options):
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyzöü", k=4)) for _ in range(100)]
    (folder / "text").write_text("\n".join(" ".join(rng.choices(words, k=9)) for _ in range(200)))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"),
        model_prefix=str(folder / "trained"),
        minloglevel=2,
        **{"vocab_size": 120, **options},
    )
    return folder / "trained.model"


def save_model(kind, folder):
    family = family_of(kind)
    if kind == "t5":
        config = T5Config(vocab_size=460, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
        config.decoder_start_token_id = 0
    else:
        config = family.config_class(**{**SIZES, "vocab_size": 400, "decoder_start_token_id": 2})
    make_source(family.model_class, config).save_pretrained(folder)


@pytest.mark.parametrize(
    ("kind", "options"), [*((kind, {}) for kind in LAYOUTS), *OTHER_PIECES], ids=str
)
def test_pieces_and_ids_are_those_of_the_source(kind, options, tmp_path):
    tokenizer_class, file, special, in_front = LAYOUTS[kind]
    source = tmp_path / "source"
    save_model(kind, source)
    trained = train_pieces(tmp_path, {**special, **options})
    (source / file).write_bytes(trained.read_bytes())
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(trained))
    settings = {"tokenizer_class": tokenizer_class}
    if kind == "m2m100":
        tokens = [pieces.id_to_piece(index) for index in range(pieces.get_piece_size())]
        tokens = list(dict.fromkeys(["<s>", "<pad>", "</s>", "<unk>", *tokens]))
        (source / "vocab.json").write_text(json.dumps(dict(zip(tokens, range(999), strict=False))))
        settings |= {"src_lang": "en", "tgt_lang": "de"}
    (source / "tokenizer_config.json").write_text(json.dumps(settings))
    done = convert(kind, source, tmp_path / "out")
    assert type(done.tokenizer).__name__ == tokenizer_class
    before, after = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("source", "out"))
    assert type(after).__name__ == tokenizer_class
    for side in ("text", "text_target"):
        ids = [each(**{side: TEXTS})["input_ids"] for each in (before, after)]
        assert ids[0] == ids[1]
        assert before.batch_decode(ids[0]) == after.batch_decode(ids[1])
    found = after.convert_ids_to_tokens(after(TEXTS[0])["input_ids"])
    wanted = pieces.encode(TEXTS[0], out_type=str)
    assert found[in_front : in_front + len(wanted)] == wanted
    assert_inspectable(tmp_path / "out", TEXTS[0])
