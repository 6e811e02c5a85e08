"""A small random model of each kind that `convert` reads, with a tokenizer of its kind."""

import json
import random
import string

import eole_models
import fairseq_models
import nn_transformer_model
import opennmt_models
import torch
from handwritten_model import TABLE, FromScratch
from hf_models import APART, make
from reference_systems import weights_of_a
from t5_models import t5
from tiny_models import make_model
from tokenizers import pre_tokenizers
from transformers import (
    BartTokenizer,
    FSMTConfig,
    FSMTForConditionalGeneration,
    FSMTTokenizer,
    M2M100Tokenizer,
    MBartTokenizer,
    NllbTokenizer,
    PegasusTokenizer,
    T5Tokenizer,
)
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

from vanilla_transformer import VanillaTransformerEncoderModel
from vanilla_transformer.interop.funnel import convert
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer

TEXTS = ["the small cat sat on the mat", "a dog ran away 7 times", "ein kleiner Hund läuft"]
LENGTH = 10
"""Longest output, with the start."""
MERGES = [("t", "h"), ("th", "e")]


def train_pieces(folder):
    """Trains two SentencePiece models; returns the folder and the pieces of each side."""
    import sentencepiece

    rng, letters = random.Random(0), "abcdefghijklmnopqrstuvwxyzäöüß"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 7))) for _ in range(300)]
    lines = [*TEXTS * 5, *(" ".join(rng.choices(words, k=9)) for _ in range(300))]
    (folder / "text").write_text("\n".join(lines), encoding="utf-8")
    vocabularies = {}
    for side, size in (("source", 90), ("target", 70)):
        prefix = folder / side
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text"), model_prefix=str(prefix), vocab_size=size, minloglevel=2
        )
        prefix.with_suffix(".model").rename(prefix.with_suffix(".spm"))
        model = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.spm")
        pieces = [model.id_to_piece(index) for index in range(size)]
        kept = [piece for piece in pieces if piece not in ("</s>", "<unk>", "<s>")]
        vocabularies[side] = kept
    return folder, vocabularies


def save_marian(trained_pieces, folder, separate):
    """A Marian directory as the Hub has it; returns the source."""
    files, pieces = trained_pieces
    both = list(dict.fromkeys([*pieces["source"], *pieces["target"]]))
    sides = (pieces["source"], pieces["target"]) if separate else (both, both)
    size = max(map(len, sides)) + 3
    tables = []
    for side in sides:
        filled = [*side, *(f"unused{n}" for n in range(size - 3 - len(side)))]
        tokens = ["</s>", "<unk>", *filled, "<pad>"]
        tables.append({token: index for index, token in enumerate(tokens)})
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps(tables[0]), encoding="utf-8")
    settings = {"source_lang": "en", "target_lang": "de", "separate_vocabs": separate}
    if separate:
        (folder / "target_vocab.json").write_text(json.dumps(tables[1]), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes((files / f"{side}.spm").read_bytes())
    pad = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "vocab_size": size}
    source = make("marian", **pad, decoder_vocab_size=size, **(APART if separate else {}))
    source.generation_config.bad_words_ids = [[size - 1]]
    source.generation_config.max_length = source.config.max_position_embeddings
    source.save_pretrained(folder)
    return source


def byte_level_tokenizer():
    letters = pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4}
    vocabulary |= {letter: 5 + number for number, letter in enumerate(sorted(letters))}
    return BartTokenizer(vocab=vocabulary | {"th": 261, "the": 262}, merges=MERGES)


def save_bart_like(kind, folder, tokenizer, **fields):
    size = len(tokenizer)
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "eos_token_id")}
    source = make(kind, vocab_size=size, **{**ids, **fields})
    source.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_fsmt(folder):
    """Two vocabularies, whose ids mean other tokens."""
    folder.mkdir()
    letters = [*string.ascii_lowercase, *"äöü.7"]
    ends = [f"{letter}</w>" for letter in letters]
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    source = [*specials, *letters, *ends, "the</w>"]
    target = [*specials, *reversed(source[4:])]
    for name, tokens in (("src", source), ("tgt", target)):
        table = {token: index for index, token in enumerate(tokens)}
        (folder / f"vocab-{name}.json").write_text(json.dumps(table), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\nt h 3\nth e</w> 2\n", encoding="utf-8")
    names = {"src_vocab_file": "vocab-src.json", "tgt_vocab_file": "vocab-tgt.json"}
    files = {name: str(folder / file) for name, file in names.items()}
    tokenizer = FSMTTokenizer(["en", "de"], merges_file=str(folder / "merges.txt"), **files)
    tokenizer.save_pretrained(folder)
    make("fsmt", src_vocab_size=len(source), tgt_vocab_size=len(target)).save_pretrained(folder)


def save_of_many_languages(kind, folder, trained_pieces):
    """M2M100 and NLLB: a token of the language begins the target."""
    files, pieces = trained_pieces
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    if kind == "m2m100":
        table = {token: index for index, token in enumerate([*specials, *pieces["source"]])}
        folder.mkdir()
        (folder / "vocab.json").write_text(json.dumps(table), encoding="utf-8")
        files = str(folder / "vocab.json"), str(files / "source.spm")
        languages = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
        tokenizer = M2M100Tokenizer(
            *files, src_lang="en", tgt_lang="de", additional_special_tokens=languages
        )
        german = tokenizer.get_lang_id("de")
    else:
        table = {token: index for index, token in enumerate([*specials, *"abcdefghijklmnopqrst"])}
        tokenizer = NllbTokenizer(table, src_lang="eng_Latn", tgt_lang="deu_Latn")
        german = tokenizer.convert_tokens_to_ids("deu_Latn")
    size = max(german, *tokenizer.get_vocab().values()) + 9  # with the rows that are never used
    source = make("m2m100", vocab_size=size)
    source.generation_config.forced_bos_token_id = german
    source.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def unigram(specials, pieces):
    return [*((token, 0.0) for token in specials), *((piece, -3.0) for piece in pieces)]


def save_others(folder):
    """Sources that are no models of transformers; returns their files and options by kind."""
    paths = {kind: folder / kind for kind in ("fairseq", "opennmt-py", "eole", "table", "torch")}
    for kind in ("fairseq", "opennmt-py"):
        paths[kind].mkdir()
        paths[kind] /= "model.pt"
    fields = {**fairseq_models.FSMT, **fairseq_models.SIZES}
    source = fairseq_models.filled(FSMTForConditionalGeneration(FSMTConfig(**fields)))
    fairseq_models.save(paths["fairseq"], fairseq_models.weights_of(source))
    for language, size in (("en", 27), ("de", 23)):
        words = ["the", "ca@@", "t", *(f"w{number}" for number in range(size - 3))]
        lines = "".join(f"{word} 3\n" for word in words)
        (folder / "fairseq" / f"dict.{language}.txt").write_text(lines, encoding="utf-8")
    source = opennmt_models.reference_model()
    opennmt_models.save(paths["opennmt-py"], source)
    eole_models.save(paths["eole"], eole_models.renamed(source))
    torch.manual_seed(0)
    torch.save(FromScratch().state_dict(), paths["table"])
    (folder / "table.yaml").write_text(TABLE, encoding="utf-8")
    torch.save(nn_transformer_model.random_model().state_dict(), paths["torch"])
    torch.save(weights_of_a(), folder / "system-a")
    return {
        "fairseq": (paths["fairseq"], {}),
        "opennmt-py": (paths["opennmt-py"], {}),
        "eole": (paths["eole"], {}),
        "table": (paths["table"], {"table": folder / "table.yaml"}),
        "torch": (
            paths["torch"],
            {
                "heads": nn_transformer_model.HEADS,
                "scale_embedding": True,
                "positions": "learned:pos.weight",
                "changes": nn_transformer_model.TOKENS,
                **nn_transformer_model.NAMES,
            },
        ),
        "system-a": (folder / "system-a", {"heads": 2}),
    }


KINDS = ("marian", "marian, apart", "bart", "blenderbot", "mbart", "mbart, no start", "pegasus")
KINDS += ("t5", "fsmt", "m2m100", "nllb")


def save_of_kind(name, folder, pieces):
    """Saves a source of one of `KINDS`; returns the kind that `convert` takes."""
    kind, _, variant = name.partition(", ")
    some = list(dict.fromkeys(["▁", *pieces[1]["source"]]))
    padded = unigram(["<pad>", "</s>", "<unk>"], some)
    if kind == "marian":
        save_marian(pieces, folder, bool(variant))
    elif kind in ("bart", "blenderbot"):
        save_bart_like(kind, folder, byte_level_tokenizer())
    elif kind == "mbart":
        vocabulary = unigram(["<s>", "<pad>", "</s>", "<unk>"], some)
        tokenizer = MBartTokenizer(vocabulary, src_lang="en_XX", tgt_lang="de_DE")
        start = None if variant else tokenizer.convert_tokens_to_ids("de_DE")
        save_bart_like("mbart", folder, tokenizer, decoder_start_token_id=start)
    elif kind == "pegasus":
        save_bart_like(kind, folder, PegasusTokenizer(padded, offset=0), decoder_start_token_id=0)
    elif kind == "t5":
        tokenizer = T5Tokenizer(padded, extra_ids=3)
        t5("1.1", vocab_size=len(tokenizer)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    elif kind == "fsmt":
        save_fsmt(folder)
    else:
        save_of_many_languages(kind, folder, pieces)
    return kind


def save_all(folder):
    """Saves a source of each kind; returns (kind, source, options of the conversion) by name."""
    pieces = train_pieces(folder)
    found = {name: (save_of_kind(name, folder / name, pieces), folder / name, {}) for name in KINDS}
    others = save_others(folder)
    return found | {kind: (kind, *others[kind]) for kind in others}


def convert_all(folder):
    """Converts the sources, whose outputs become short, and adds a model that generates nothing.

    Returns:
        The names, which are those of the directories in `folder`.
    """
    sources = folder.with_name("sources")
    sources.mkdir()
    for name, (kind, source, options) in save_all(sources).items():
        model = convert(kind, source, folder / name, **options).model
        model.generation_config.max_length = LENGTH
        model.generation_config.save_pretrained(folder / name)
    tokenizer = VanillaTransformerTokenizer.train(TEXTS, kind="word")
    tokenizer.save_pretrained(folder / "encoder")
    model = make_model(VanillaTransformerEncoderModel, vocab_size=len(tokenizer))
    model.save_pretrained(folder / "encoder")
    return [path.name for path in folder.iterdir()]
