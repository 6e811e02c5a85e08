"""Converts models that are built around torch's `nn.Transformer`.

`nn.Transformer` has neither embeddings nor positions nor an output projection: the caller names
them. Its encoder and its decoder always end with a norm, with `norm_first` and without it. With
`bias=False` its norms have no bias either; here they have one, which is zero.

In torch 2.13, an activation that is a module, such as `nn.GELU()`, is used by the encoder only: the
decoder's layers are copies that fall back to ReLU. Such a model has no counterpart here.
"""

import copy
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers.activations import ACT2FN

from vanilla_transformer.interop.checkpoint_files import read_rename_rules, read_state_dict
from vanilla_transformer.interop.fitting import fit_weights, raise_problems
from vanilla_transformer.interop.imported import Imported, SourceLogits, build_model
from vanilla_transformer.interop.rename_table import Rule, apply_rules
from vanilla_transformer.interop.renaming import RenamedWeights, Weights, rename_weights
from vanilla_transformer.interop.sinusoids import SINUSOIDS, find_wrong_sinusoids, sinusoids
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig

TOKEN_FIELDS = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
"""Fields that no weight shows, and whose defaults would be wrong without a word."""

_FIRST = re.compile(r"(.*?)encoder\.layers\.0\.self_attn\.in_proj_weight")
_POSITIONS = {stack: f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder")}


@dataclass(frozen=True)
class Positions:
    """The positions of the source.

    Attributes:
        scheme: "learned", "none", or a name in `SINUSOIDS`.
        tables: Names of the table in the source: one for both sides, or one for each; may be empty
            for sinusoids.
    """

    scheme: str
    tables: tuple[str, ...] = ()


def import_torch(
    source: str | Path,
    heads: int,
    source_embedding: str,
    target_embedding: str,
    generator: str,
    positions: str,
    scale_embedding: bool,
    norm_first: bool = False,
    activation: str = "relu",
    key: str | None = None,
    rename: str | Path | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Imported:
    """Converts the state dict of a model around `nn.Transformer`.

    Args:
        source: File of weights, as `read_state_dict` takes it.
        heads: Number of attention heads (`nhead`).
        source_embedding: Name of the source's embedding matrix.
        target_embedding: Name of the target's. It may be the same one.
        generator: Name of the output projection, without `.weight`.
        positions: "learned:NAME", "learned:SOURCE_NAME,TARGET_NAME", "sinusoidal", "none", or
            "sinusoidal:NAME" for a table that is stored: it is compared with the sinusoids. Any
            name in `SINUSOIDS` may stand for "sinusoidal".
        scale_embedding: Whether the model multiplies embeddings by sqrt(d_model).
        norm_first: As in `nn.Transformer`.
        activation: As in `nn.Transformer`, or the name of another function in `ACT2FN`.
        key: Entry of the file that holds the weights.
        rename: YAML file of rules for names, applied first: null drops a weight.
        changes: Config fields, the ids of special tokens among them.

    Returns:
        The model, with a function that computes logits with `nn.Transformer`.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If an option is missing or wrong, if a table of positions does not hold
            sinusoids, or if weights are missing, left over or of another shape.
    """
    fields = {
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "scale_embedding": scale_embedding,
        "norm_placement": "pre" if norm_first else "post",
        "activation_function": activation,
        **(changes or {}),
    }
    forgotten = [f"`{name}` is missing" for name in TOKEN_FIELDS if name not in fields]
    raise_problems("Ids that no weight shows are not given", forgotten, "Give them with --set.")
    rules = {} if rename is None else read_rename_rules(rename)
    state_dict = rename_weights(read_state_dict(source, key), [rules]).weights
    read = read_positions(positions)
    names = {"source": source_embedding, "target": target_embedding, "generator": generator}
    prefix = _check_names(state_dict, [*names.values()][:2], generator, read)
    renamed = rename_torch_weights(state_dict, prefix, names, norm_first, read)
    config, weights = fit_weights(
        renamed, {**_read_fields(renamed, read, norm_first), **fields}, [r".*norm\.bias"]
    )
    model = build_model(config, weights)
    return Imported(
        model,
        kind="torch",
        source=str(source),
        library=f"torch {torch.__version__}, nn.Transformer",
        source_logits=_logits_of_torch(state_dict, prefix, names, config, read),
        notes=_describe_bias(config),
    )


def read_positions(text: str) -> Positions:
    """Reads positions as `import_torch` takes them.

    Args:
        text: SCHEME, SCHEME:NAME or SCHEME:SOURCE_NAME,TARGET_NAME.

    Returns:
        The positions.

    Raises:
        ValueError: If the scheme is unknown, or if a table is missing or has no place.
    """
    scheme, _, rest = text.partition(":")
    tables = tuple(name for name in rest.split(",") if name)
    most = {"learned": 2, **dict.fromkeys(SINUSOIDS, 2), "none": 0}
    if scheme not in most:
        raise ValueError(f"`positions` is {text!r}: begin with one of {list(most)}.")
    if len(tables) > most[scheme] or (scheme == "learned" and not tables):
        raise ValueError(
            f"`positions` is {text!r}: write learned:NAME, learned:SOURCE_NAME,TARGET_NAME, "
            "sinusoidal, sinusoidal:NAME or none."
        )
    return Positions(scheme, tables)


def _check_names(
    state_dict: Mapping[str, torch.Tensor],
    embeddings: list[str],
    generator: str,
    positions: Positions,
) -> str:
    """Checks that the named weights are there, and returns the prefix of `nn.Transformer`."""
    named = [*embeddings, f"{generator}.weight", *positions.tables]
    problems = [f"`{name}` is not in it" for name in dict.fromkeys(named) if name not in state_dict]
    prefixes = [match[1] for name in state_dict if (match := _FIRST.fullmatch(name))]
    if len(prefixes) != 1:
        problems.append(
            f"it holds {len(prefixes)} weights `...encoder.layers.0.self_attn.in_proj_weight`, "
            "where one nn.Transformer has 1"
        )
    listed = ", ".join(list(state_dict)[:8])
    raise_problems("The checkpoint has other names", problems, f"Its first names are: {listed}.")
    return prefixes[0]


def rename_torch_weights(
    state_dict: Mapping[str, torch.Tensor],
    prefix: str,
    names: Mapping[str, str],
    norm_first: bool,
    positions: Positions,
) -> RenamedWeights:
    """Gives the weights of the source the names of this package.

    Args:
        state_dict: Weights of the source.
        prefix: What stands before the names of `nn.Transformer`.
        names: Names of the "source" and "target" embedding and of the "generator".
        norm_first: As in `nn.Transformer`.
        positions: Positions of the source.

    Returns:
        The weights. A stored table of sinusoids is compared and left out.
    """
    slot = "pre" if norm_first else "post"
    layer = rf"{re.escape(prefix)}(encoder|decoder)\.layers\.(\d+)\."
    here = r"model.\1.layers.\2."
    cross = rf"{re.escape(prefix)}decoder\.layers\.(\d+)\.multihead_attn\."
    here_cross = r"model.decoder.layers.\1.encoder_attn."
    norms = {("encoder", 2): "feed_forward", ("decoder", 2): "encoder_attn"}
    norms |= {("decoder", 3): "feed_forward"}
    parts = ("q_proj", "k_proj", "v_proj")
    rules = [
        _split_rule(rf"{layer}self_attn\.in_proj_(\w+)", here + "self_attn.{}.\\3", parts),
        Rule(rf"{layer}self_attn\.out_proj\.(\w+)", (here + r"self_attn.out_proj.\3",)),
        _split_rule(rf"{cross}in_proj_(\w+)", here_cross + "{}.\\2", parts),
        Rule(rf"{cross}out_proj\.(\w+)", (here_cross + r"out_proj.\2",)),
        Rule(rf"{layer}linear([12])\.(\w+)", (here + r"feed_forward.fc\3.\4",)),
        Rule(rf"{layer}norm1\.(\w+)", (here + rf"self_attn_{slot}_norm.\3",)),
        *(
            Rule(
                rf"{re.escape(prefix)}{stack}\.layers\.(\d+)\.norm{number}\.(\w+)",
                (rf"model.{stack}.layers.\1.{sublayer}_{slot}_norm.\2",),
            )
            for (stack, number), sublayer in norms.items()
        ),
        Rule(rf"{re.escape(prefix)}(encoder|decoder)\.norm\.(\w+)", (r"model.\1.final_norm.\2",)),
        Rule(rf"{re.escape(names['generator'])}\.(\w+)", (r"lm_head.\1",)),
        *_embedding_rules(names, positions),
    ]
    stored = positions.tables if positions.scheme in SINUSOIDS else ()
    wrong = find_wrong_sinusoids(state_dict, positions.scheme, stored)
    flat = {
        name: tensor.squeeze() if name in positions.tables else tensor
        for name, tensor in state_dict.items()
    }
    renamed = apply_rules(rules, flat)
    return RenamedWeights(renamed.weights, renamed.origins, (*renamed.problems, *wrong))


def _split_rule(pattern: str, template: str, parts: tuple[str, ...]) -> Rule:
    return Rule(pattern, tuple(template.format(part) for part in parts), is_split=True)


def _embedding_rules(names: Mapping[str, str], positions: Positions) -> list[Rule]:
    """Returns rules for the matrices that the caller names; one name may stand for two."""
    targets: dict[str, list[str]] = {}
    for side, stack in (("source", "encoder"), ("target", "decoder")):
        targets.setdefault(names[side], []).append(f"model.{stack}.embed_tokens.weight")
    for name in positions.tables:
        targets[name] = []
    if positions.scheme == "learned":
        for name, stack in zip((positions.tables * 2)[:2], _POSITIONS, strict=True):
            targets[name].append(_POSITIONS[stack])
    return [Rule(re.escape(name), tuple(new)) for name, new in targets.items()]


def _read_fields(renamed: RenamedWeights, positions: Positions, norm_first: bool) -> dict[str, Any]:
    """Reads fields of the config from what is there and what is equal."""
    weights = renamed.weights
    source, target, output = (
        weights.get(name)
        for name in (
            "model.encoder.embed_tokens.weight",
            "model.decoder.embed_tokens.weight",
            "lm_head.weight",
        )
    )
    return {
        "final_layer_norm": "model.encoder.final_norm.weight" in weights,
        "attention_bias": "model.encoder.layers.0.self_attn.q_proj.bias" in weights,
        "ffn_bias": "model.encoder.layers.0.feed_forward.fc1.bias" in weights,
        "lm_head_bias": "lm_head.bias" in weights,
        "share_encoder_decoder_embeddings": _are_equal(source, target),
        "tie_word_embeddings": _are_equal(target, output),
        "position_embedding_type": positions.scheme,
    }


def _are_equal(first: torch.Tensor | None, second: torch.Tensor | None) -> bool:
    return first is not None and second is not None and torch.equal(first, second)


def _describe_bias(config: VanillaTransformerConfig) -> tuple[str, ...]:
    if config.attention_bias:
        return ()
    return ("The norms of the source have no bias. Those of this model have one, which is zero.",)


# The source, rebuilt ------------------------------------------------------------------------------


def _logits_of_torch(
    state_dict: Mapping[str, torch.Tensor],
    prefix: str,
    names: Mapping[str, str],
    config: VanillaTransformerConfig,
    positions: Positions,
) -> SourceLogits:
    """Returns a function that computes logits with `nn.Transformer` itself."""
    weights: Weights = {name: tensor.float() for name, tensor in state_dict.items()}

    def embed(ids: torch.Tensor, table: str, side: int) -> torch.Tensor:
        scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        embeds: torch.Tensor = F.embedding(ids, weights[table]) * scale
        if positions.scheme == "none":
            return embeds
        if positions.scheme == "learned" or positions.tables:
            stored = weights[positions.tables[min(side, len(positions.tables) - 1)]]
            return embeds + stored.squeeze()[: ids.shape[1]]
        return embeds + sinusoids(positions.scheme, ids.shape[1], config.d_model)

    def compute(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        model = _rebuild_source(weights, prefix, config)
        target, padding = inputs["decoder_input_ids"], inputs["attention_mask"] == 0
        states = model(
            embed(inputs["input_ids"], names["source"], 0),
            embed(target, names["target"], 1),
            tgt_mask=torch.ones(target.shape[1], target.shape[1]).triu(1).bool(),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        generator = names["generator"]
        return F.linear(states, weights[f"{generator}.weight"], weights.get(f"{generator}.bias"))

    return compute


def _rebuild_source(
    weights: Mapping[str, torch.Tensor], prefix: str, config: VanillaTransformerConfig
) -> nn.Transformer:
    """Builds the source's `nn.Transformer` with its weights."""
    model = nn.Transformer(
        config.d_model,
        config.encoder_attention_heads,
        config.encoder_layers,
        config.decoder_layers,
        config.encoder_ffn_dim,
        activation=ACT2FN[config.activation_function].forward,
        layer_norm_eps=config.layer_norm_eps,
        batch_first=True,
        norm_first=config.norm_placement == "pre",
        bias=config.attention_bias,
    )
    if not config.final_layer_norm:
        model.encoder.norm = model.decoder.norm = None
    inside = re.compile(rf"{re.escape(prefix)}((?:encoder|decoder)\.(?:layers|norm)\..*)")
    named = {m[1]: tensor for name, tensor in weights.items() if (m := inside.fullmatch(name))}
    model.load_state_dict(copy.copy(named))
    return model.eval()
