"""Small models in the layout of Marian itself, and what Marian computes with them, written anew."""

import json
import math

import numpy as np
import torch
import torch.nn.functional as F

WIDTH, INNER, HEADS = 16, 24, 4
SOURCE = ["</s>", "<unk>", "▁a", "▁dog", "s", "yes", "null", "007", '"', "▁\u00e9", "\u2028", "z"]
TARGET = ["</s>", "<unk>", "▁ein", "▁Hund", "e", "no", "~", "1.0", "'", "#", "▁", "y", "x"]
SIZES = (len(SOURCE), len(TARGET))
BASE = {
    "type": "transformer",
    "enc-depth": 2,
    "dec-depth": 2,
    "dim-emb": WIDTH,
    "transformer-heads": HEADS,
    "transformer-ffn-depth": 2,
    "transformer-dim-ffn": INNER,
    "transformer-ffn-activation": "swish",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-decoder-autoreg": "self-attention",
    "tied-embeddings-all": True,
    "tied-embeddings": False,
    "tied-embeddings-src": False,
    "version": "v1.12.0 65bf82ff 2023-02-21 09:56:29 -0800",
}
PRE = {"transformer-preprocess": "n", "transformer-postprocess": "da",
       "transformer-postprocess-top": "n"}  # fmt: skip
VARIANTS = {
    "as OPUS-MT": {},
    "pre-norm": PRE,
    "norm of embeddings": {"transformer-postprocess-emb": "nd"},
    "no norms": {"transformer-postprocess": "da"},
    "root mean squares": {"transformer-postprocess": "dar"},
    "relu": {"transformer-ffn-activation": "relu"},
    "gelu of 1.12": {"transformer-ffn-activation": "gelu"},
    "gelu after 1.12": {"transformer-ffn-activation": "gelu", "version": "v1.12.5 0123456"},
    "learned positions": {"transformer-train-position-embeddings": True},
    "two vocabularies": {"tied-embeddings-all": False, "tied-embeddings": True},
    "nothing tied": {"tied-embeddings-all": False},
    "source and target tied": {"tied-embeddings-all": False, "tied-embeddings-src": True},
    "tied layers": {"transformer-tied-layers": [1, 1]},
    "a smaller decoder": {"transformer-decoder-dim-ffn": 20},
}


def has_one_vocabulary(options):
    return options["tied-embeddings-all"] or options["tied-embeddings-src"]


def make_arrays(options, rows=SIZES, seed=0):
    """Random arrays with the names and shapes that Marian gives them."""
    torch.manual_seed(seed)
    arrays = {}

    def add(name, *shape):
        arrays[name] = (torch.randn(shape) * (0.3 if min(shape) > 1 else 1.0)).numpy()

    def add_norms(prefix, operations, suffix=""):
        if "n" in operations:
            add(f"{prefix}_ln_scale{suffix}", 1, WIDTH)
            add(f"{prefix}_ln_bias{suffix}", 1, WIDTH)
        if "r" in operations:
            add(f"{prefix}_rms_scale{suffix}", 1, WIDTH)

    if has_one_vocabulary(options):
        add("Wemb", rows[0], WIDTH)
    else:
        add("encoder_Wemb", rows[0], WIDTH)
        add("decoder_Wemb", rows[1], WIDTH)
    outputs = rows[0 if has_one_vocabulary(options) else 1]
    if not (options["tied-embeddings-all"] or options["tied-embeddings"]):
        add("decoder_ff_logit_out_Wt", outputs, WIDTH)
    add("decoder_ff_logit_out_b", 1, outputs)
    if options.get("transformer-train-position-embeddings"):
        add("Wpos", 20, WIDTH)
    for stack, attentions in (("encoder", ("self",)), ("decoder", ("self", "context"))):
        inner = options.get("transformer-decoder-dim-ffn", INNER) if stack == "decoder" else INNER
        add_norms(f"{stack}_emb", options["transformer-postprocess-emb"], "_pre")
        add_norms(f"{stack}_top", options["transformer-postprocess-top"])
        count = options["dec-depth" if stack == "decoder" else "enc-depth"]
        tied = options.get("transformer-tied-layers") if stack == "decoder" else None
        for layer in set(tied or range(1, count + 1)):
            for attention in attentions:
                place = f"{stack}_l{layer}_{attention}"
                for letter in "qkvo":
                    add(f"{place}_W{letter}", WIDTH, WIDTH)
                    add(f"{place}_b{letter}", 1, WIDTH)
                add_norms(f"{place}_Wo", options["transformer-preprocess"], "_pre")
                add_norms(f"{place}_Wo", options["transformer-postprocess"])
            place = f"{stack}_l{layer}_ffn"
            add(f"{place}_W1", WIDTH, inner)
            add(f"{place}_b1", 1, inner)
            add(f"{place}_W2", inner, WIDTH)
            add(f"{place}_b2", 1, WIDTH)
            add_norms(f"{place}_ffn", options["transformer-preprocess"], "_pre")
            add_norms(f"{place}_ffn", options["transformer-postprocess"])
    return arrays


def as_text(value):
    return json.dumps(value)  # which is YAML too


def save(folder, arrays, options, words=None, compressed=False):
    """Writes a directory as Marian's training leaves it; returns the model's file."""
    folder.mkdir(exist_ok=True)
    text = "".join(f"{name}: {as_text(value)}\n" for name, value in options.items())
    content = np.frombuffer(text.encode() + b"\0", dtype=np.int8)
    write = np.savez_compressed if compressed else np.savez
    write(folder / "model.npz", **arrays, **{"special:model.yml": content})
    both = [SOURCE] if has_one_vocabulary(options) else [SOURCE, TARGET]
    names = []
    for side, tokens in zip(("source", "target"), words or both, strict=False):
        lines = [f"{as_text(token)}: {index}\n" for index, token in enumerate(tokens)]
        names.append(f"{side}.vocab.yml")
        (folder / names[-1]).write_text("".join(lines), encoding="utf-8")
    listed = "".join(f"  - /home/trainer/{name}\n" for name in (names[0], names[-1]))
    (folder / "decoder.yml").write_text(f"vocabs:\n{listed}", encoding="utf-8")
    return folder / "model.npz"


def sinusoids(length):
    """Sines, then cosines; the frequencies go from 1 to 1/10000, both included."""
    table = torch.zeros(length, WIDTH, dtype=torch.float64)
    half = WIDTH // 2
    for position in range(length):
        for wave in range(half):
            angle = position * math.exp(-wave * math.log(10000.0) / (half - 1))
            table[position, wave] = math.sin(angle)
            table[position, half + wave] = math.cos(angle)
    return table


class Marian:
    """Computes logits from arrays and options, one row at a time, in double precision."""

    def __init__(self, arrays, options):
        self.arrays = {name: torch.from_numpy(a).double() for name, a in arrays.items()}
        self.options = options

    def norm(self, values, place, suffix=""):
        if f"{place}_rms_scale{suffix}" in self.arrays:
            mean = (values**2).mean(-1, keepdim=True)
            return values / (mean + 1e-6).sqrt() * self.arrays[f"{place}_rms_scale{suffix}"]
        scale, bias = (self.arrays[f"{place}_ln_{kind}{suffix}"] for kind in ("scale", "bias"))
        return F.layer_norm(values, (WIDTH,), scale[0], bias[0], eps=1e-6)

    def before(self, values, place, name="preprocess"):
        for operation in self.options[f"transformer-{name}"]:
            if operation in "nr":
                values = self.norm(values, place, "_pre")
        return values

    def after(self, values, skipped, place, name="postprocess"):
        for operation in self.options[f"transformer-{name}"]:
            if operation == "a":
                values = values + skipped
            elif operation in "nr":
                values = self.norm(values, place)
        return values

    def affine(self, values, place, part):
        return values @ self.arrays[f"{place}_W{part}"] + self.arrays[f"{place}_b{part}"]

    def attention(self, values, context, place, causal=False):
        queries = self.before(values, f"{place}_Wo")
        keys = queries if context is None else context
        q, k, v = (
            self.affine(each, place, letter).unflatten(-1, (HEADS, -1)).transpose(0, 1)
            for each, letter in ((queries, "q"), (keys, "k"), (keys, "v"))
        )
        scores = q @ k.transpose(1, 2) / math.sqrt(WIDTH // HEADS)
        if causal:
            later = torch.ones(scores.shape[1:]).triu(1).bool()
            scores = scores.masked_fill(later, -1e9)
        joined = (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)
        return self.after(self.affine(joined, place, "o"), values, f"{place}_Wo")

    def feed_forward(self, values, place):
        act = {
            "swish": F.silu,
            "relu": F.relu,
            "gelu": F.gelu if "v1.12.5" in self.options["version"]
            else lambda x: x * torch.sigmoid(1.702 * x),
        }[self.options["transformer-ffn-activation"]]  # fmt: skip
        inner = act(self.affine(self.before(values, f"{place}_ffn"), place, "1"))
        return self.after(self.affine(inner, place, "2"), values, f"{place}_ffn")

    def stack(self, name, embedded, context=None):
        positions = self.arrays.get("Wpos")
        if positions is None:
            embedded = embedded * math.sqrt(WIDTH) + sinusoids(len(embedded))
        else:
            embedded = embedded + positions[: len(embedded)]
        values = self.before(embedded, f"{name}_emb", "postprocess-emb")
        depth = self.options["enc-depth" if name == "encoder" else "dec-depth"]
        layers = range(1, depth + 1)
        if name == "decoder":
            layers = self.options.get("transformer-tied-layers") or layers
        for layer in layers:
            place = f"{name}_l{layer}"
            values = self.attention(values, None, f"{place}_self", causal=name == "decoder")
            if context is not None:
                values = self.attention(values, context, f"{place}_context")
            values = self.feed_forward(values, f"{place}_ffn")
        return self.after(values, embedded, f"{name}_top", "postprocess-top")

    def logits(self, source, target):
        """Logits after a vector of zeros and after each target token."""
        tables = [
            self.arrays[f"{stack}_Wemb" if f"{stack}_Wemb" in self.arrays else "Wemb"]
            for stack in ("encoder", "decoder")
        ]
        encoded = self.stack("encoder", tables[0][source])
        history = torch.cat([torch.zeros(1, WIDTH).double(), tables[1][target]])
        decoded = self.stack("decoder", history, encoded)
        output = self.arrays.get("decoder_ff_logit_out_Wt", tables[1])
        return decoded @ output.T + self.arrays["decoder_ff_logit_out_b"]
