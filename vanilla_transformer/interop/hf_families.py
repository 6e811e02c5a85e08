"""The classes of transformers that models come from and go to, each described by a `Family`.

Marian, Pegasus, BART, mBART, Blenderbot, FSMT, M2M100 and NLLB descend from one code base: their
weights have equal names, and their options too. They differ in whether norms come before or after a
sublayer, in the norms around the stacks, and in their positions.
Blenderbot-small is another class: its decoder normalises the embeddings before it adds the
positions, which no config here expresses.

T5 v1.0 and v1.1, mT5, Flan-T5 and ByT5 are pre-norm models with relative positions and RMSNorm.
`T5ForConditionalGeneration` and `MT5ForConditionalGeneration` are one class under two names. They
compute the scores without a scale, and with tied embeddings (v1.0) they scale the logits.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from transformers import (
    BartForConditionalGeneration,
    BlenderbotForConditionalGeneration,
    FSMTForConditionalGeneration,
    M2M100ForConditionalGeneration,
    MarianMTModel,
    MBartForConditionalGeneration,
    MT5ForConditionalGeneration,
    PegasusForConditionalGeneration,
    PreTrainedConfig,
    PreTrainedModel,
    T5ForConditionalGeneration,
)

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.weights import exact_rewrites as rewrites
from vanilla_transformer.weights.exact_rewrites import Rewrite, fields_with_effect
from vanilla_transformer.weights.match_weights import (
    STACKS,
    Rules,
    WeightRule,
    attention_names,
    layer_rules,
)
from vanilla_transformer.weights.sinusoids import SINUSOIDS


@dataclass(frozen=True)
class Family:
    """A class of transformers whose models a config here can express.

    Attributes:
        options: Its options by name of our field, where both mean the same.
        read_fields: Computes the fields that follow from its other options, or that it fixes.
        write_options: The inverse of `read_fields`.
        names: Rules for the names of weights, in both directions. A rule with `sinusoids` drops a
            table that both sides compute.
        rewrites: Rewrites that turn more models into ones that the class computes.
        limits: Returns the values of our fields that the class computes instead of ours, where its
            config does not show it.
    """

    model_class: type[PreTrainedModel]
    options: Mapping[str, str]
    read_fields: Callable[[Any], dict[str, Any]]
    write_options: Callable[[VanillaTransformerConfig], dict[str, Any]]
    names: Rules
    rewrites: tuple[Rewrite, ...]
    limits: Callable[[VanillaTransformerConfig], dict[str, Any]] = lambda ours: {}

    @property
    def config_class(self) -> type[PreTrainedConfig]:
        """Class of its config."""
        return cast(type[PreTrainedConfig], self.model_class.config_class)

    @property
    def kind(self) -> str:
        """The `model_type` of its config."""
        return self.config_class.model_type

    def fields_of(self, config: PreTrainedConfig) -> dict[str, Any]:
        """Returns our fields for a config of this class, but for fields that the weights show."""
        same = {ours: getattr(config, theirs, None) for ours, theirs in self.options.items()}
        return same | self.read_fields(config)

    def config_for(self, ours: VanillaTransformerConfig) -> PreTrainedConfig:
        """Returns the config of the class with the same meaning as ours, as far as it can."""
        same = {theirs: getattr(ours, name, None) for name, theirs in self.options.items()}
        options: dict[str, Any] = copy.deepcopy(same | self.write_options(ours))
        return self.config_class(**options)

    def fields_in_the_way(self, ours: VanillaTransformerConfig) -> list[str]:
        """Lists the fields whose value is lost when our config becomes one of this class.

        A class may refuse the sizes, such as a width that its heads do not divide: a ValueError.
        """
        try:
            back = VanillaTransformerConfig(**self.fields_of(self.config_for(ours)))
        except Exception as error:  # classes of transformers raise errors of several types
            reason = " ".join(str(error).split())
            raise ValueError(f"{self.model_class.__name__} refuses the config: {reason}") from error
        # Fields that survive the way there and back are computed by the class.
        back.lm_head_bias = ours.lm_head_bias  # the weights show it
        wanted, computed = fields_with_effect(ours), fields_with_effect(back) | self.limits(ours)
        return [
            f"`{name}` is {wanted[name]!r}, but {self.kind} computes {computed[name]!r}"
            for name in sorted(wanted.keys() & computed.keys())
            if wanted[name] != computed[name]
        ]


_FOR_ANY_CLASS = (rewrites.repeat_key_value_heads, rewrites.fold_residual_scale)
_IN_EVERY_CLASS = (
    *("vocab_size", "d_model", "use_cache"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
)
_OF_A_STACK = ("layers", "attention_heads", "ffn_dim", "layerdrop")
_OPTIONS = {
    name: name
    for name in (
        *_IN_EVERY_CLASS,
        *(f"{stack}_{name}" for stack in STACKS for name in _OF_A_STACK),
        *("activation_function", "max_position_embeddings", "scale_embedding"),
        *("dropout", "attention_dropout", "activation_dropout", "forced_eos_token_id"),
    )
}


def _names_with(slot: str) -> Rules:
    """Returns the rules for names; the norms of a sublayer have the slot "pre" or "post"."""
    return {
        **layer_rules(
            r"model\.(encoder|decoder)\.layers\.(\d+)\.",
            {
                r"(self|encoder)_attn_layer_norm": rf"\3_attn_{slot}_norm",
                "final_layer_norm": f"feed_forward_{slot}_norm",
                r"(fc\d)": r"feed_forward.\3",
            },
        ),
        r"model\.(encoder|decoder)\.layernorm_embedding\.(\w+)": r"model.\1.embed_norm.\2",
        r"model\.(encoder|decoder)\.layer_norm\.(\w+)": r"model.\1.final_norm.\2",
        "final_logits_bias": "lm_head.bias",
    }


def _make_family(
    model_class: type[PreTrainedModel],
    positions: str,
    *,
    pre_norm: bool = False,
    embedding_norm: bool = False,
    unused_rows: int = 0,
    more_fields: Callable[[Any], dict[str, Any]] = lambda config: {},
) -> Family:
    """Describes one of these classes.

    Args:
        pre_norm: Whether norms stand before sublayers, with one after each stack.
        unused_rows: Rows of a table of positions before the first one.
        more_fields: Computes our fields beyond these from its config.
    """
    slot = "pre" if pre_norm else "post"
    computed: Rules = {
        r"model\.(encoder|decoder)\.embed_positions\.weights?": WeightRule(sinusoids=positions)
    }
    fields = {
        "norm_placement": slot,
        "final_layer_norm": pre_norm,
        "normalize_embedding": embedding_norm,
        "position_embedding_type": positions,
        "position_offset": unused_rows,
    }
    of_positions: dict[str, Rewrite] = {
        "sinusoidal_half": rewrites.split_waves,
        "learned": partial(rewrites.tabulate_positions, offset=unused_rows),
    }
    return Family(
        model_class=model_class,
        options=_OPTIONS,
        read_fields=lambda config: {**fields, **more_fields(config)},
        write_options=lambda ours: {  # all three matrices are one, or none is tied
            "tie_word_embeddings": bool(
                ours.share_encoder_decoder_embeddings and ours.tie_word_embeddings
            )
        },
        names={**_names_with(slot), **(computed if positions in SINUSOIDS else {})},
        rewrites=(
            *_FOR_ANY_CLASS,
            partial(rewrites.fold_attention_scale, target=None),
            rewrites.fold_logit_scale,
            rewrites.add_zero_biases,
            *(rewrite for scheme, rewrite in of_positions.items() if scheme == positions),
        ),
    )


def _read_vocabularies_of_marian(config: Any) -> dict[str, Any]:
    shared = config.share_encoder_decoder_embeddings
    return {
        # A shared table has one size, and the class then ignores the other one.
        "decoder_vocab_size": config.vocab_size if shared else config.decoder_vocab_size,
        "share_encoder_decoder_embeddings": shared,
    }


def _write_vocabularies_of_marian(config: VanillaTransformerConfig) -> dict[str, Any]:
    # With `share_encoder_decoder_embeddings` Marian also ties the output, or else nothing.
    shared, tied = config.share_encoder_decoder_embeddings, config.tie_word_embeddings
    return {
        "decoder_vocab_size": config.decoder_vocab_size,
        "share_encoder_decoder_embeddings": bool(shared and tied),
        "tie_word_embeddings": tied,
    }


MARIAN = replace(
    _make_family(MarianMTModel, "sinusoidal_half", more_fields=_read_vocabularies_of_marian),
    write_options=_write_vocabularies_of_marian,
)
PEGASUS = _make_family(PegasusForConditionalGeneration, "sinusoidal_half", pre_norm=True)
BART = _make_family(BartForConditionalGeneration, "learned", embedding_norm=True, unused_rows=2)
MBART = _make_family(
    MBartForConditionalGeneration, "learned", pre_norm=True, embedding_norm=True, unused_rows=2
)
BLENDERBOT = _make_family(BlenderbotForConditionalGeneration, "learned", pre_norm=True)


def _after_padding(config: Any) -> dict[str, Any]:
    """fairseq, and the classes that descend from it, count positions from the padding id + 1."""
    return {"position_offset": int(config.pad_token_id) + 1}


def _limits_of_fairseq(ours: VanillaTransformerConfig) -> dict[str, Any]:
    """These classes have no bias of the output, and do not count a start that is padding."""
    start = ours.decoder_start_token_id
    return {
        "lm_head_bias": False,
        "decoder_start_token_id": "any but padding" if start == ours.pad_token_id else start,
    }


M2M100 = replace(
    _make_family(
        M2M100ForConditionalGeneration,
        "sinusoidal_fairseq",
        pre_norm=True,
        more_fields=_after_padding,
    ),
    limits=_limits_of_fairseq,
)
_POST_NORM_OF_FAIRSEQ = _make_family(
    FSMTForConditionalGeneration,
    "sinusoidal_fairseq",
    more_fields=lambda config: {
        "share_encoder_decoder_embeddings": False,
        **_after_padding(config),
    },
)
FSMT = replace(
    _POST_NORM_OF_FAIRSEQ,
    options={**_OPTIONS, "vocab_size": "src_vocab_size", "decoder_vocab_size": "tgt_vocab_size"},
    names={
        r"model\.decoder\.output_projection\.weight": "lm_head.weight",
        **_POST_NORM_OF_FAIRSEQ.names,
    },
    limits=_limits_of_fairseq,
)


# T5 -----------------------------------------------------------------------------------------------


_BUCKETS = ("relative_attention_num_buckets", "relative_attention_max_distance")
_OPTIONS_OF_T5 = {
    **{name: name for name in (*_IN_EVERY_CLASS, *_BUCKETS)},
    "head_dim": "d_kv",
    "encoder_layers": "num_layers",
    "decoder_layers": "num_decoder_layers",
    "layer_norm_eps": "layer_norm_epsilon",
}
_BOTH_STACKS = {"attention_heads": "num_heads", "ffn_dim": "d_ff"}
_DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "final_dropout")

_NAMES_OF_T5: Rules = {
    r"shared\.weight": "model.shared.weight",
    r"(encoder|decoder)\.embed_tokens\.weight": r"model.\1.embed_tokens.weight",
    r"(encoder|decoder)\.final_layer_norm\.weight": r"model.\1.final_norm.weight",
    r"(encoder|decoder)\.block\.0\.layer\.0\.SelfAttention\.relative_attention_bias\.weight": (
        r"model.\1.embed_positions.weight"
    ),
    **layer_rules(
        r"(encoder|decoder)\.block\.(\d+)\.layer\.",
        {
            **attention_names(r"0\.SelfAttention", r"1\.EncDecAttention", "qkvo"),
            r"[12]\.DenseReluDense\.wi(?:_1)?": "feed_forward.fc1",
            r"[12]\.DenseReluDense\.wi_0": "feed_forward.gate",
            r"[12]\.DenseReluDense\.wo": "feed_forward.fc2",
        },
        norms=[rf"{number}\.layer_norm" for number in range(3)],
    ),
}


def _read_fields_of_t5(config: Any) -> dict[str, Any]:
    scaled = getattr(config, "scale_decoder_outputs", False)
    both = {
        f"{stack}_{ours}": getattr(config, theirs)
        for ours, theirs in _BOTH_STACKS.items()
        for stack in STACKS
    }
    return {
        **both,
        **dict.fromkeys(_DROPOUTS, config.dropout_rate),
        "activation_function": config.dense_act_fn,
        "gated_ffn": config.is_gated_act,
        "norm_placement": "pre",
        "norm_type": "rms_norm",
        "final_layer_norm": True,
        "position_embedding_type": "relative",
        "scale_embedding": False,
        "attention_bias": False,
        "ffn_bias": False,
        "attention_scale": 1.0,
        "logit_scale": config.d_model**-0.5 if scaled else 1.0,
    }


def _write_options_of_t5(config: VanillaTransformerConfig) -> dict[str, Any]:
    activation = config.activation_function
    named = "gelu" if config.gated_ffn and activation == "gelu_new" else activation
    sizes = {theirs: getattr(config, f"encoder_{ours}") for ours, theirs in _BOTH_STACKS.items()}
    return {
        **sizes,
        "d_kv": config.head_dim_with(config.encoder_attention_heads),
        "dropout_rate": config.dropout,
        "feed_forward_proj": f"gated-{named}" if config.gated_ffn else named,
        "tie_word_embeddings": config.logit_scale != 1,  # that is how the class chooses the scale
    }


def _limits_of_t5(ours: VanillaTransformerConfig) -> dict[str, Any]:
    """The class has no bias of the output, and a cache for as many layers as the encoder has."""
    layers, most = ours.decoder_layers, ours.encoder_layers
    return {"lm_head_bias": False, "decoder_layers": f"at most {most}" if layers > most else layers}


T5 = Family(
    model_class=T5ForConditionalGeneration,
    options=_OPTIONS_OF_T5,
    read_fields=_read_fields_of_t5,
    write_options=_write_options_of_t5,
    names=_NAMES_OF_T5,
    rewrites=(
        *_FOR_ANY_CLASS,
        partial(rewrites.fold_attention_scale, target=1.0),
        rewrites.fold_embedding_scale,
        lambda state: state.with_fields(forced_eos_token_id=None),  # the generation config holds it
    ),
    limits=_limits_of_t5,
)
MT5 = replace(T5, model_class=MT5ForConditionalGeneration)

FAMILIES = {
    family.kind: family
    for family in (MARIAN, PEGASUS, FSMT, M2M100, BART, MBART, BLENDERBOT, T5, MT5)
}
"""The families by the `model_type` of their configs, in the order in which an export tries them."""
