"""Weights of five published from-scratch systems, A to E, as weights of ours.

The systems are tutorials' models, which many people typed in and trained; the presets "system-a" to
"system-e" say what each computes. Every reader names the modules as he likes, so this converter
expects one spelling of the names and takes rules that turn a user's names into it:

    (encoder|decoder).embedding.weight
    (encoder|decoder).layers.N.self_attention.(q|k|v|out).(weight|bias)
    decoder.layers.N.cross_attention.(q|k|v|out).(weight|bias)
    (encoder|decoder).layers.N.feed_forward.(linear1|linear2).(weight|bias)
    encoder.layers.N.norm1, norm2; decoder.layers.N.norm1, norm2, norm3: (weight|bias)
    output.(weight|bias)

Systems B and C have `self_attention.qkv`, and C `cross_attention.kv` beside `cross_attention.q`,
whose rows lie head by head. B, an encoder alone, has no prefix `encoder.`, and `norm` after its
layers. E has no norms. The parameters of a norm may be called gain or gamma, and beta.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from vanilla_transformer.interop.qkv import from_per_head, fuse_self_attention
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

Rules = Mapping[str, str | None]
Weights = dict[str, torch.Tensor]

_SPELLINGS: Rules = {
    r"(.*norm\d?)\.(?:gain|gamma)": r"\1.weight",
    r"(.*norm\d?)\.beta": r"\1.bias",
    r"(.*\.)?positions\..*": None,  # tables of sinusoids are computed here
}
_ENCODER_ALONE: Rules = {r"((?:layers|norm)\..*)": r"encoder.\1"}
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
_FUSED = re.compile(r".*\.(qkv|kv)_proj\.\w+")
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
# An encoder alone still makes a whole model here: the rest is as small as it can be.
_SMALLEST_REST = {
    "vocab_size": 3,
    "decoder_layers": 1,
    "decoder_attention_heads": 1,
    "decoder_ffn_dim": 1,
}


@dataclass(frozen=True)
class System:
    """What the weights of a published system look like; its preset says what it computes.

    Attributes:
        preset: Name of the preset.
        norm_slot: "post" or "pre": where its norms stand.
        per_head: Its projections are fused, with rows [q_0, k_0, v_0, q_1, ...].
        encoder_alone: It has no embeddings, no decoder and no output projection.
    """

    preset: str
    norm_slot: str = "post"
    per_head: bool = False
    encoder_alone: bool = False


SYSTEMS = {
    system.preset: system
    for system in (
        System("system-a"),
        System("system-b", per_head=True, encoder_alone=True),
        System("system-c", per_head=True),
        System("system-d", norm_slot="pre"),
        System("system-e"),
    )
}


@dataclass
class _Renamed:
    """Weights under our names, and what went wrong on the way."""

    weights: Weights = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def convert(
    system: str,
    state_dict: Mapping[str, torch.Tensor],
    num_heads: int,
    renames: Rules | None = None,
    source_pad_token_id: int | None = None,
    **changes: Any,
) -> tuple[VanillaTransformerConfig, Weights]:
    """Turns the weights of a published system into a config and weights of ours.

    Args:
        system: "system-a" to "system-e".
        state_dict: Names and weights of the trained model.
        num_heads: Its number of heads, which its weights do not tell; a wrong one gives a model
            that computes something else, without an error.
        renames: Regular expressions that match whole names of the trained model, each with the name
            that this module expects, which may refer to groups as in `re.sub`, or None to leave the
            weight out. The first that matches counts; a name that none matches stays as it is.
        source_pad_token_id: Where the source's table has its padding token, if elsewhere than the
            target's. Here both have one id, `pad_token_id`: the two rows of the source's embedding
            change places, and so must the two tokens in the source's table. A table that has no
            such id grows to have it, by rows of zeros.
        **changes: Fields of the config that differ from the preset: a dropout rate, the ids of
            special tokens.

    Returns:
        The config, and weights for a `VanillaTransformerForConditionalGeneration`; of system B for
        a `VanillaTransformerModel`, of which they are the encoder without its embedding.

    Raises:
        ValueError: If there is no such system, if a rule is no regular expression, if a field is
            illegal; and with a list of all problems if weights are left over or missing, have
            another shape, or differ where the config ties them.
    """
    kind = _system(system)
    renamed = _rename(kind, state_dict, renames or {})
    if source_pad_token_id is not None:
        _make_room_for_padding(kind, renamed, source_pad_token_id, changes)
    config = _config(kind, renamed, num_heads, changes)
    weights = _by_part(kind, renamed, config)
    renamed.problems += _misfits(kind, config, weights, renamed.origins)
    _raise_if_any(kind, renamed.problems)
    if source_pad_token_id is not None:
        _move_padding(weights, source_pad_token_id, config)
    if config.fused_qkv:
        weights = fuse_self_attention(weights)
    if kind.encoder_alone:
        weights = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
    return config, weights


def config_from(
    system: str,
    state_dict: Mapping[str, torch.Tensor],
    num_heads: int,
    renames: Rules | None = None,
    **changes: Any,
) -> VanillaTransformerConfig:
    """Reads the sizes of a published system from its weights and completes its preset.

    Args:
        system: "system-a" to "system-e".
        state_dict: Names and weights of the trained model.
        num_heads: Its number of heads.
        renames: As for `convert`.
        **changes: Fields that differ from the preset.

    Returns:
        The config.

    Raises:
        ValueError: As `convert`, if the weights that tell the sizes are missing.
    """
    kind = _system(system)
    return _config(kind, _rename(kind, state_dict, renames or {}), num_heads, changes)


def _system(name: str) -> System:
    if name not in SYSTEMS:
        raise ValueError(f"There is no `system` {name!r}: choose one of {list(SYSTEMS)}.")
    return SYSTEMS[name]


def _rename(system: System, state_dict: Mapping[str, torch.Tensor], renames: Rules) -> _Renamed:
    alone = _ENCODER_ALONE if system.encoder_alone else {}
    names = {k: v and v.replace("SLOT", system.norm_slot) for k, v in _NAMES.items()}
    compiled = [_compile(rules) for rules in (renames, _SPELLINGS, alone, names)]
    renamed = _Renamed()
    for old, tensor in state_dict.items():
        new: str | None = old
        for rules in compiled:
            new = None if new is None else _apply(rules, new)
        if new is None:
            continue
        if new in renamed.weights:
            renamed.problems.append(f"`{old}` and `{renamed.origins[new]}` both become `{new}`")
        renamed.weights[new], renamed.origins[new] = tensor, old
    return renamed


def _compile(rules: Rules) -> list[tuple[re.Pattern[str], str | None]]:
    compiled = []
    for expression, template in rules.items():
        try:
            pattern = re.compile(expression)
            re.sub(f"(?:{expression})|", template or "", "")  # checks the groups of the template
        except (re.error, TypeError, IndexError) as error:
            raise ValueError(
                f"The rule {expression!r}: {template!r} in `renames` is no regular expression with "
                f"a name ({error}): write it as Python's `re` does."
            ) from error
        compiled.append((pattern, template))
    return compiled


def _apply(rules: list[tuple[re.Pattern[str], str | None]], name: str) -> str | None:
    for pattern, template in rules:
        if match := pattern.fullmatch(name):
            return None if template is None else match.expand(template)
    return name


def _config(
    system: System, renamed: _Renamed, num_heads: int, changes: Mapping[str, Any]
) -> VanillaTransformerConfig:
    stacks = ("encoder",) if system.encoder_alone else ("encoder", "decoder")
    sizes: dict[str, Any] = dict(_SMALLEST_REST) if system.encoder_alone else {}
    needed = {name: where for stack in stacks for name, where in _SIZES[stack].items()}
    matrices = {name for name, tensor in renamed.weights.items() if tensor.dim() == 2}
    missing = {where for where, _ in needed.values()} - matrices
    if missing:
        odd = [f"`{old}` is not known" for new, old in renamed.origins.items() if new == old]
        lost = [f"`{name}`, a matrix that tells sizes, is missing" for name in sorted(missing)]
        _raise_if_any(system, renamed.problems + odd + lost)
    for name, (where, axis) in needed.items():
        sizes[name] = renamed.weights[where].shape[axis]
    for stack in stacks:
        layers = re.compile(rf"model\.{stack}\.layers\.(\d+)\..*")
        found = [int(m[1]) for name in renamed.weights if (m := layers.fullmatch(name))]
        sizes[f"{stack}_layers"], sizes[f"{stack}_attention_heads"] = max(found) + 1, num_heads
    return VanillaTransformerConfig.from_preset(system.preset, **{**sizes, **changes})


def _by_part(system: System, renamed: _Renamed, config: VanillaTransformerConfig) -> Weights:
    """Takes the projections apart whose rows lie head by head."""
    weights: Weights = {}
    for name, tensor in renamed.weights.items():
        match = _FUSED.fullmatch(name) if system.per_head else None
        if match is None:
            weights[name] = tensor
            continue
        decoder = name.startswith("model.decoder")
        heads = config.decoder_attention_heads if decoder else config.encoder_attention_heads
        try:
            parts = from_per_head(tensor, heads, len(match[1]))
        except ValueError as error:
            renamed.problems.append(f"`{renamed.origins[name]}`: {error}")
            continue
        for letter, part in zip(match[1], parts, strict=True):
            new = name.replace(f".{match[1]}_proj.", f".{letter}_proj.")
            if new in renamed.weights:
                renamed.problems.append(
                    f"`{renamed.origins[name]}` and `{renamed.origins[new]}` both hold `{new}`"
                )
            weights[new], renamed.origins[new] = part, renamed.origins[name]
    return weights


def _misfits(
    system: System, config: VanillaTransformerConfig, weights: Weights, origins: Mapping[str, str]
) -> Iterator[str]:
    expected, tied = _expected(system, config)
    for name, tensor in weights.items():
        if name not in expected:
            yield f"`{origins[name]}` is not known"
        elif tuple(tensor.shape) != expected[name]:
            found = tuple(tensor.shape)
            yield f"`{origins[name]}` has shape {found}, but `{name}` has {expected[name]}"
    for name in sorted(expected.keys() - weights.keys()):
        yield f"`{name}` is missing"
    for target, source in tied.items():
        if {target, source} <= weights.keys() and not weights[target].equal(weights[source]):
            yield f"`{origins[target]}` and `{origins[source]}` differ, but the config ties them"


def _expected(
    system: System, config: VanillaTransformerConfig
) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Returns name and shape of each weight, projections apart, and which are tied to which."""
    separate = VanillaTransformerConfig.from_dict({**config.to_dict(), "fused_qkv": False})
    with torch.device("meta"):
        model = VanillaTransformerForConditionalGeneration(separate)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if not system.encoder_alone:
        return shapes, model._tied_weights_keys
    inside = ("model.encoder.layers.", "model.encoder.final_norm.")
    return {name: shape for name, shape in shapes.items() if name.startswith(inside)}, {}


def _make_room_for_padding(
    system: System, renamed: _Renamed, source_pad: int, changes: Mapping[str, Any]
) -> None:
    """Gives the source's embedding a row for the target's padding, if it has fewer rows."""
    table = renamed.weights.get(_SOURCE_TABLE)
    if table is None or table.dim() != 2:
        return  # reported with the other problems
    if source_pad not in range(len(table)):
        raise ValueError(
            f"`source_pad_token_id` must lie within the vocabulary (0 to {len(table) - 1}), got "
            f"{source_pad}."
        )
    preset = VanillaTransformerConfig.from_preset(system.preset)
    pad = changes.get("pad_token_id", preset.pad_token_id)
    missing = pad + 1 - len(table) if isinstance(pad, int) else 0
    renamed.weights[_SOURCE_TABLE] = F.pad(table, (0, 0, 0, max(missing, 0)))


def _move_padding(weights: Weights, source_pad: int, config: VanillaTransformerConfig) -> None:
    pad = config.pad_token_id
    if pad is None or config.share_encoder_decoder_embeddings or _SOURCE_TABLE not in weights:
        raise ValueError(
            f"`source_pad_token_id` ({source_pad}) needs an embedding of the source alone and a "
            f"`pad_token_id`, got {pad}: leave it out."
        )
    order = torch.arange(config.vocab_size)
    order[[pad, source_pad]] = order[[source_pad, pad]]
    weights[_SOURCE_TABLE] = weights[_SOURCE_TABLE][order]


def _raise_if_any(system: System, problems: list[str]) -> None:
    if problems:
        listed = "".join(f"\n- {problem}" for problem in problems)
        raise ValueError(
            f"The weights do not fit {system.preset!r}: {len(problems)} problem(s). Give `renames` "
            "that lead to the names of `vanilla_transformer.interop.systems`, or change fields of "
            f"the config.{listed}"
        )
