"""The models that `benchmark.py` compares, all of the same size and with random weights.

`marian`, `bart` and `t5` are those of transformers, `torch` is `nn.Transformer` of PyTorch with
embeddings, `ours` is this package, and `padded` is this package where it computes padding too.
`ctranslate2` runs our weights; it needs the extra of the same name. `-int8` says that
the weights have 8 bits. T5 has relative positions and no biases, BART has learned positions and a
norm after its embeddings, `torch` has a norm after each stack. Otherwise all have the paper's
layers. No system drops attention weights.

Shapes: `input_ids` and `attention_mask` are (batch, source_len), `labels` are (batch, target_len).
"""

import argparse
import math
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.models.t5.modeling_t5 import T5Attention

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.model.tokenization_vanilla_transformer import VanillaTransformerTokenizer

TRAINED = ("marian", "bart", "t5", "torch", "padded", "ours")
LOADED = ("marian", "bart", "t5", "ours")
GENERATING = (*LOADED, "ctranslate2", "ctranslate2-int8")
SPECIAL_TOKENS = 4
PADDING, START = 1, 0
_TOKENS: dict[str, Any] = {
    "pad_token_id": PADDING,
    "eos_token_id": 2,
    "decoder_start_token_id": START,
}


def is_installed(system: str) -> bool:
    """Whether the packages of a system are installed."""
    packages = {"ctranslate2": "ctranslate2", "marian-flash": "flash_attn"}
    package = packages.get(system, packages.get(system.split("-")[0]))
    return package is None or find_spec(package) is not None


class TorchTransformer(nn.Module):
    """`nn.Transformer` with one embedding matrix for source, target and output, and sinusoids."""

    positions: torch.Tensor

    def __init__(self, options: argparse.Namespace, dropout: float) -> None:
        super().__init__()
        width = options.d_model
        self.embedding = nn.Embedding(options.vocab_size, width, PADDING)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.transformer = nn.Transformer(
            width,
            width // 64 or 1,
            options.layers,
            options.layers,
            4 * width,
            dropout,
            batch_first=True,
        )
        self.dropout = nn.Dropout(dropout)
        rates = torch.exp(-math.log(10000.0) * torch.arange(0, width, 2) / width)
        angles = torch.arange(1024)[:, None] * rates
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], dim=1))

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor
    ) -> SimpleNamespace:
        """Returns the cross-entropy of the labels, as `loss`."""
        inputs = F.pad(labels, (1, 0), value=START)[:, :-1]
        inputs = inputs.masked_fill(inputs == -100, PADDING)
        padding = attention_mask == 0
        states = self.transformer(
            self._embed(input_ids),
            self._embed(inputs),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(
                inputs.shape[1], device=inputs.device, dtype=torch.bool
            ),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        logits = F.linear(states, self.embedding.weight)
        return SimpleNamespace(loss=F.cross_entropy(logits.flatten(0, 1), labels.flatten()))

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Embeds tokens and their positions: (batch, length) to (batch, length, d_model)."""
        scaled = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        embedded: torch.Tensor = self.dropout(scaled + self.positions[: ids.shape[1]])
        return embedded


def make_model(system: str, options: argparse.Namespace, dropout: float = 0.1) -> Any:
    """Makes the model of a system, in float32, for training; those with our weights get ours."""
    torch.manual_seed(options.seed)
    kind = system.removesuffix("-int8")
    if kind == "torch":
        return _without_attention_dropout(TorchTransformer(options, dropout)).train()
    if kind == "t5":
        t5 = T5ForConditionalGeneration(_make_t5_config(options, dropout))
        return _without_attention_dropout(t5).train()
    fields = _fields_of_config(options, dropout)
    model: Any
    if kind == "marian":
        model = MarianMTModel(MarianConfig(**fields, **_TOKENS, forced_eos_token_id=None))
    elif kind == "bart":
        config = BartConfig(**fields, **_TOKENS, bos_token_id=START, forced_eos_token_id=None)
        model = BartForConditionalGeneration(config)
    else:
        model = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(**fields))
        model.set_padding_free(kind != "padded")
    return model.train()


def _without_attention_dropout(model: nn.Module) -> nn.Module:
    """Sets the rate of attention weights to 0 in models that have one rate for everything."""
    for part in model.modules():
        if isinstance(part, nn.MultiheadAttention | T5Attention):
            part.dropout = 0.0
    return model


def _fields_of_config(options: argparse.Namespace, dropout: float) -> dict[str, Any]:
    """Returns the fields that Marian, BART and our config have under the same names."""
    fields: dict[str, Any] = {
        "vocab_size": options.vocab_size,
        "d_model": options.d_model,
        "dropout": dropout,
        "max_position_embeddings": 1024,
        "activation_function": "relu",
        "attn_implementation": options.attn_implementation,
    }
    for side in ("encoder", "decoder"):
        fields[f"{side}_layers"] = options.layers
        fields[f"{side}_attention_heads"] = options.d_model // 64 or 1
        fields[f"{side}_ffn_dim"] = 4 * options.d_model
    return fields


def _make_t5_config(options: argparse.Namespace, dropout: float) -> Any:
    heads = options.d_model // 64 or 1
    attention: dict[str, Any] = {"attn_implementation": options.attn_implementation}
    return T5Config(
        vocab_size=options.vocab_size,
        d_model=options.d_model,
        d_kv=options.d_model // heads,
        d_ff=4 * options.d_model,
        num_layers=options.layers,
        num_heads=heads,
        dropout_rate=dropout,
        **attention,
        **_TOKENS,
    )


def make_generating_model(system: str, options: argparse.Namespace) -> Any:
    """Makes a model of transformers, or ours, in evaluation mode."""
    model = make_model(system, options)
    with torch.no_grad():
        for parameter in model.parameters():  # biases start at 0
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model.eval()


def save_system(system: str, options: argparse.Namespace, folder: Path) -> None:
    """Saves or exports the model of a system.

    Args:
        folder: Directory to write; it does not exist yet.
    """
    kind, _, bits = system.partition("-")
    model = make_generating_model(kind, options)
    if kind in LOADED:
        model.save_pretrained(folder)
    else:
        from vanilla_transformer.weights.ctranslate2 import convert_to_ctranslate2

        words = " ".join(f"w{index}" for index in range(options.vocab_size - SPECIAL_TOKENS))
        tokenizer = VanillaTransformerTokenizer.train(
            [words], vocab_size=options.vocab_size, kind="word"
        )
        convert_to_ctranslate2(model, tokenizer, folder, bits or "float32")
        tokenizer.save_pretrained(folder / "tokenizer")


def load_export(folder: Path, options: argparse.Namespace) -> Any:
    """Loads CTranslate2's translator and the tokenizer that `save_system` exported."""
    import ctranslate2

    tokenizer = VanillaTransformerTokenizer.from_pretrained(folder / "tokenizer")
    device = torch.device(options.device).type
    translator = ctranslate2.Translator(str(folder), device, intra_threads=options.threads)
    return translator, tokenizer
