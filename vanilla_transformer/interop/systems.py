"""Converts the weights of five published tutorials, systems A to E, into weights of this package.

The systems are models that tutorials build from scratch:

- A: "[Transformer] Transformer 코드 리뷰" ("Transformer code review"), the blog of MongTae,
  14 February 2025. A full post-norm Transformer after the paper.
- B: "트랜스포머 인코더 구현하기" ("Implementing the Transformer encoder"), a notebook of
  Crimsonjoo's Easy-Transformer (https://github.com/crimsonjoo/Easy-Transformer). An encoder without
  a decoder; its input is already embedded.
- C: "트랜스포머 디코더 핵심 코드 구현을 통한 동작 메커니즘 이해하기" ("Understanding how the
  Transformer decoder works by implementing its core code"), a blog post of 4 February 2024. A
  translator of characters.
- D: "LLM 구현 2편 - Transformer 아키텍처 이해" ("Implementing an LLM, part 2: understanding the
  Transformer architecture"), 8 November 2025. A pre-norm model with GELU.
- E: an untitled notebook that composes `Transformer(encoder, decoder)` from deep-copied blocks. It
  has residual connections without norms.

The presets "system-a" to "system-e" hold what each system computes. People who follow a tutorial
choose their own names for modules. This converter expects the following names, and takes rules that
turn other names into these:

    (encoder|decoder).embedding.weight
    (encoder|decoder).layers.N.self_attention.(q|k|v|out).(weight|bias)
    decoder.layers.N.cross_attention.(q|k|v|out).(weight|bias)
    (encoder|decoder).layers.N.feed_forward.(linear1|linear2).(weight|bias)
    encoder.layers.N.norm1, norm2; decoder.layers.N.norm1, norm2, norm3: (weight|bias)
    output.(weight|bias)

Systems B and C have `self_attention.qkv`; C also has `cross_attention.kv` and `cross_attention.q`.
The rows of these fused projections lie head by head. B has no prefix `encoder.`, and has `norm`
after its layers. E has no norms. The parameters of a norm may also be named gain or gamma, and
beta.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from vanilla_transformer.interop.fitting import (
    count_layers,
    expected_weights,
    find_misfits,
    find_untied,
    raise_problems,
)
from vanilla_transformer.interop.qkv import from_per_head, fuse_self_attention
from vanilla_transformer.interop.renaming import RenamedWeights, Rules, Weights, rename_weights
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig

_SPELLINGS: Rules = {
    r"(.*norm\d?)\.(?:gain|gamma)": r"\1.weight",
    r"(.*norm\d?)\.beta": r"\1.bias",
    r"(.*\.)?positions\..*": None,  # the model computes its sinusoids itself
}
_ENCODER_ONLY: Rules = {r"((?:layers|norm)\..*)": r"encoder.\1"}
_NAMES: Rules = {
    r"(\w+)\.embedding\.(\w+)": r"model.\1.embed_tokens.\2",
    r"(\w+)\.norm\.(\w+)": r"model.\1.final_norm.\2",
    r"(\w+\.layers\.\d+)\.self_attention\.(\w+)\.(\w+)": r"model.\1.self_attn.\2_proj.\3",
    r"(\w+\.layers\.\d+)\.cross_attention\.(\w+)\.(\w+)": r"model.\1.encoder_attn.\2_proj.\3",
    r"(\w+\.layers\.\d+)\.feed_forward\.linear(\d)\.(\w+)": r"model.\1.feed_forward.fc\2.\3",
    r"(\w+\.layers\.\d+)\.norm1\.(\w+)": r"model.\1.self_attn_SLOT_norm.\2",
    r"(encoder\.layers\.\d+)\.norm2\.(\w+)": r"model.\1.feed_forward_SLOT_norm.\2",
    r"(decoder\.layers\.\d+)\.norm2\.(\w+)": r"model.\1.encoder_attn_SLOT_norm.\2",
    r"(decoder\.layers\.\d+)\.norm3\.(\w+)": r"model.\1.feed_forward_SLOT_norm.\2",
    r"output\.(\w+)": r"lm_head.\1",
}
_SOURCE_TABLE = "model.encoder.embed_tokens.weight"
_FUSED_PROJECTION = re.compile(r".*\.(qkv|kv)_proj\.\w+")
# The weight and its axis that tell a size, by stack and config field.
_SIZES = {
    "encoder": {
        "d_model": ("model.encoder.layers.0.feed_forward.fc1.weight", 1),
        "encoder_ffn_dim": ("model.encoder.layers.0.feed_forward.fc1.weight", 0),
    },
    "decoder": {
        "vocab_size": (_SOURCE_TABLE, 0),
        "decoder_vocab_size": ("model.decoder.embed_tokens.weight", 0),
        "decoder_ffn_dim": ("model.decoder.layers.0.feed_forward.fc1.weight", 0),
    },
}
# An encoder-only system becomes a whole model. Its other parts are as small as possible.
_SMALLEST_REST = {
    "vocab_size": 3,
    "decoder_layers": 1,
    "decoder_attention_heads": 1,
    "decoder_ffn_dim": 1,
}


@dataclass(frozen=True)
class System:
    """Describes the weights of a published system. Its preset describes what it computes.

    Attributes:
        preset: Name of the preset.
        tutorial: Title and author of the tutorial, as far as they are known.
        norm_slot: Place of the norms: "post" or "pre".
        per_head: Whether the projections are fused, with rows [q_0, k_0, v_0, q_1, ...].
        encoder_only: Whether embeddings, decoder and output projection are missing.
    """

    preset: str
    tutorial: str
    norm_slot: str = "post"
    per_head: bool = False
    encoder_only: bool = False


SYSTEMS = {
    system.preset: system
    for system in (
        System("system-a", '"[Transformer] Transformer 코드 리뷰", MongTae'),
        System(
            "system-b",
            '"트랜스포머 인코더 구현하기", Crimsonjoo (Easy-Transformer)',
            per_head=True,
            encoder_only=True,
        ),
        System(
            "system-c",
            '"트랜스포머 디코더 핵심 코드 구현을 통한 동작 메커니즘 이해하기"',
            per_head=True,
        ),
        System("system-d", '"LLM 구현 2편 - Transformer 아키텍처 이해"', norm_slot="pre"),
        System("system-e", "an untitled notebook: Transformer(encoder, decoder)"),
    )
}
"""The systems by name of their preset."""


def convert(
    system: str,
    state_dict: Mapping[str, torch.Tensor],
    num_heads: int,
    renames: Rules | None = None,
    source_pad_token_id: int | None = None,
    **changes: Any,
) -> tuple[VanillaTransformerConfig, Weights]:
    """Converts the weights of a published system into a config and weights of this package.

    Args:
        system: "system-a" to "system-e".
        state_dict: Names and weights of the trained model.
        num_heads: Number of attention heads of the trained model. The weights do not show it: a
            wrong number gives a model that computes something else, without an error.
        renames: Rules that turn names of the trained model into the names that this module expects;
            see `interop.renaming`.
        source_pad_token_id: Id of the padding token in the source vocabulary, if it differs from
            that of the target. A model here has one `pad_token_id` for both. The two rows of the
            source embedding are swapped, and the two tokens must be swapped in the source
            vocabulary, too. An embedding that has no row `pad_token_id` is extended with zeros.
        **changes: Config fields that differ from the preset, such as a dropout rate or the ids of
            special tokens.

    Returns:
        The config, and weights for a `VanillaTransformerForConditionalGeneration`. For system B,
        the weights are those of the encoder of a `VanillaTransformerModel`, without its embedding.

    Raises:
        ValueError: If there is no such system, if a rule is not a regular expression, or if a field
            is invalid. One error lists all weights that are left over or missing, that have another
            shape, or that differ although the config ties them.
    """
    description = _find_system(system)
    renamed = _rename_to_model(description, state_dict, renames)
    if source_pad_token_id is not None:
        renamed = _add_padding_row(description, renamed, source_pad_token_id, changes)
    config = _read_config(description, renamed, num_heads, changes)
    separate = _separate_projections(description, renamed, config)
    problems = [*separate.problems, *_find_misfits(description, config, separate)]
    _raise_problems(description, problems)
    weights = dict(separate.weights)
    if source_pad_token_id is not None:
        weights[_SOURCE_TABLE] = _swap_padding_rows(weights, source_pad_token_id, config)
    if config.fused_qkv:
        weights = fuse_self_attention(weights)
    if description.encoder_only:
        weights = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
    return config, weights


def config_from(
    system: str,
    state_dict: Mapping[str, torch.Tensor],
    num_heads: int,
    renames: Rules | None = None,
    **changes: Any,
) -> VanillaTransformerConfig:
    """Reads the sizes of a published system from its weights, and takes the rest from its preset.

    Args:
        system: "system-a" to "system-e".
        state_dict: Names and weights of the trained model.
        num_heads: Number of attention heads of the trained model.
        renames: As in `convert`.
        **changes: Config fields that differ from the preset.

    Returns:
        The config.

    Raises:
        ValueError: As `convert`, if the weights that tell the sizes are missing.
    """
    description = _find_system(system)
    renamed = _rename_to_model(description, state_dict, renames)
    return _read_config(description, renamed, num_heads, changes)


def _find_system(name: str) -> System:
    if name not in SYSTEMS:
        raise ValueError(f"There is no `system` {name!r}: choose one of {list(SYSTEMS)}.")
    return SYSTEMS[name]


def _rename_to_model(
    system: System, state_dict: Mapping[str, torch.Tensor], renames: Rules | None
) -> RenamedWeights:
    """Renames weights to the names of the model, before fused projections are separated."""
    prefix = _ENCODER_ONLY if system.encoder_only else {}
    names = {old: new and new.replace("SLOT", system.norm_slot) for old, new in _NAMES.items()}
    return rename_weights(state_dict, (renames or {}, _SPELLINGS, prefix, names))


def _read_config(
    system: System, renamed: RenamedWeights, num_heads: int, changes: Mapping[str, Any]
) -> VanillaTransformerConfig:
    """Completes the preset with the sizes of the weights and with the changes."""
    stacks = ("encoder",) if system.encoder_only else ("encoder", "decoder")
    sizes: dict[str, Any] = dict(_SMALLEST_REST) if system.encoder_only else {}
    needed = {name: where for stack in stacks for name, where in _SIZES[stack].items()}
    matrices = {name for name, tensor in renamed.weights.items() if tensor.dim() == 2}
    missing = {where for where, _ in needed.values()} - matrices
    if missing:
        unknown = [f"`{old}` is not known" for new, old in renamed.origins.items() if new == old]
        lost = [f"`{name}`, a matrix that tells sizes, is missing" for name in sorted(missing)]
        _raise_problems(system, [*renamed.problems, *unknown, *lost])
    for name, (where, axis) in needed.items():
        sizes[name] = renamed.weights[where].shape[axis]
    for stack in stacks:
        sizes[f"{stack}_layers"] = count_layers(renamed, stack)
        sizes[f"{stack}_attention_heads"] = num_heads
    return VanillaTransformerConfig.from_preset(system.preset, **{**sizes, **changes})


def _separate_projections(
    system: System, renamed: RenamedWeights, config: VanillaTransformerConfig
) -> RenamedWeights:
    """Splits fused projections, whose rows lie head by head, into queries, keys and values."""
    weights: Weights = {}
    origins, problems = dict(renamed.origins), list(renamed.problems)
    for name, tensor in renamed.weights.items():
        match = _FUSED_PROJECTION.fullmatch(name) if system.per_head else None
        if match is None:
            weights[name] = tensor
            continue
        decoder = name.startswith("model.decoder")
        heads = config.decoder_attention_heads if decoder else config.encoder_attention_heads
        try:
            parts = from_per_head(tensor, heads, len(match[1]))
        except ValueError as error:
            problems.append(f"`{origins[name]}`: {error}")
            continue
        for letter, part in zip(match[1], parts, strict=True):
            new = name.replace(f".{match[1]}_proj.", f".{letter}_proj.")
            if new in renamed.weights:
                problems.append(f"`{origins[name]}` and `{origins[new]}` both hold `{new}`")
            weights[new], origins[new] = part, origins[name]
    return RenamedWeights(weights, origins, tuple(problems))


def _find_misfits(
    system: System, config: VanillaTransformerConfig, separate: RenamedWeights
) -> Iterator[str]:
    """Yields a sentence for each weight that is unknown, missing, misshapen or wrongly untied."""
    plain = VanillaTransformerConfig.from_dict({**config.to_dict(), "fused_qkv": False})
    shapes, tied = expected_weights(plain)
    if system.encoder_only:
        inside = ("model.encoder.layers.", "model.encoder.final_norm.")
        shapes, tied = {n: shape for n, shape in shapes.items() if n.startswith(inside)}, {}
    yield from find_misfits(shapes, separate)
    yield from find_untied(separate, tied)


def _add_padding_row(
    system: System, renamed: RenamedWeights, source_pad: int, changes: Mapping[str, Any]
) -> RenamedWeights:
    """Extends the source embedding so that it has a row for the target's padding token."""
    table = renamed.weights.get(_SOURCE_TABLE)
    if table is None or table.dim() != 2:
        return renamed  # reported with the other problems
    if source_pad not in range(len(table)):
        raise ValueError(
            f"`source_pad_token_id` is {source_pad}, outside the vocabulary: choose 0 to "
            f"{len(table) - 1}."
        )
    preset = VanillaTransformerConfig.from_preset(system.preset)
    pad = changes.get("pad_token_id", preset.pad_token_id)
    missing = max(pad + 1 - len(table), 0) if isinstance(pad, int) else 0
    extended = {_SOURCE_TABLE: F.pad(table, (0, 0, 0, missing))}
    return replace(renamed, weights={**renamed.weights, **extended})


def _swap_padding_rows(
    weights: Weights, source_pad: int, config: VanillaTransformerConfig
) -> torch.Tensor:
    """Returns the source embedding with the rows of the two padding tokens swapped."""
    pad = config.pad_token_id
    if pad is None or config.share_encoder_decoder_embeddings or _SOURCE_TABLE not in weights:
        raise ValueError(
            f"`source_pad_token_id` is {source_pad}, which needs a separate source embedding and a "
            f"`pad_token_id` (got {pad}): leave it out."
        )
    order = torch.arange(config.vocab_size)
    order[[pad, source_pad]] = order[[source_pad, pad]]
    return weights[_SOURCE_TABLE][order]


def _raise_problems(system: System, problems: Sequence[str]) -> None:
    remedy = (
        "Give `renames` that lead to the names of `vanilla_transformer.interop.systems`, or change "
        "fields of the config."
    )
    raise_problems(f"The weights do not fit {system.preset!r}", problems, remedy)
