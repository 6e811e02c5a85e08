"""Every choice of architecture: its name, meaning, legal values and source.

transformers keeps one model class for each config class, and one config class for each content of
this file and of the files that it names in a line like the next. That line therefore leads to all
code of the model: two directories with different code have different classes.

    from .modeling_vanilla_transformer import ...
"""

import difflib
import math
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.utils import logging

from .positions import check_rope_fits_heads, check_rope_parameters, with_rope_defaults
from .presets import PRESETS
from .sharing import (
    AUTO_MAP,
    CustomPipelines,
    choose_bare_model,
    collect_pipelines,
    current_versions,
    list_code_files,
    select_user_pipelines,
)

logger = logging.get_logger(__name__)

CHOICES = {
    "classifier_pooling": ("mean", "first"),
    "initializer": (
        "xavier",
        "half_xavier",
        "normal",
        "residual_scaled",
        "depth_scaled",
        "t_fixup",
        "deepnorm",
        "admin",
    ),
    "norm_placement": ("post", "pre", "none"),
    "norm_type": ("layer_norm", "rms_norm", "unbiased_std"),
    "position_embedding_type": (
        "sinusoidal",
        "sinusoidal_half",
        "sinusoidal_fairseq",
        "learned",
        "rope",
        "alibi",
        "relative",
        "none",
    ),
    "qk_norm": ("none", "self", "all"),
}
"""The legal values of each field that is a choice between names."""

POST_NORM_INITIALIZERS = ("deepnorm", "admin")
"""Initializers that give the residual stream a larger share in each sum before a norm."""

BIASED_SCHEMES = ("alibi", "relative")
"""The values of `position_embedding_type` that add a bias to the scores."""

SIZES = (
    "vocab_size",
    "decoder_vocab_size",
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "encoder_num_key_value_heads",
    "decoder_num_key_value_heads",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "max_position_embeddings",
    "head_dim",
    "relative_attention_num_buckets",
    "relative_attention_max_distance",
)
PROBABILITIES = (
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "ffn_dropout",
    "final_dropout",
    "encoder_layerdrop",
    "decoder_layerdrop",
    "label_smoothing",
    "classifier_dropout",
)
POSITIVE_NUMBERS = (
    "layer_norm_eps",
    "residual_scale",
    "encoder_residual_scale",
    "decoder_residual_scale",
    "attention_scale",
    "logit_scale",
)
POSITIONS_WITH_OFFSET = ("sinusoidal", "sinusoidal_half", "sinusoidal_fairseq", "learned")
"""The values of `position_embedding_type` for which `position_offset` has an effect."""
TARGET_TOKEN_IDS = (
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
    "forced_eos_token_id",
)
OTHER_TOKEN_IDS = ("unk_token_id", "sep_token_id", "cls_token_id", "mask_token_id")
"""Attributes that resemble fields and are set by tokenizers."""

ATTENTION_TP_PLAN = {
    "q_proj": "colwise",
    "k_proj": "colwise",
    "v_proj": "colwise",
    "q_norm": "replicated_with_grad_allreduce",
    "k_norm": "replicated_with_grad_allreduce",
    "out_proj": "rowwise",
}


class Rule(NamedTuple):
    """Values that cannot be, or do nothing.

    Attributes:
        is_broken: A condition on the values that `check_rules` is given, in their order.
        message: Names field, value and remedy; a format string with the names of these values.
    """

    is_broken: Callable[..., Any]
    message: str


def check_rules(rules: Iterable[Rule], **values: Any) -> None:
    """Raises a ValueError with the message of the first rule that is broken, if there is one."""
    for is_broken, message in rules:
        if is_broken(*values.values()):
            raise ValueError(message.format(**values))


def _rules_of_fields(
    names: Iterable[str], is_legal: Callable[[Any], bool], demand: str
) -> list[Rule]:
    """Makes a rule for each of several fields, which may also be None or missing."""

    def is_broken(name: str, config: Any) -> bool:
        value = getattr(config, name, None)
        return value is not None and not is_legal(value)

    return [
        Rule(partial(is_broken, name), f"`{name}` must {demand}, got {{config.{name}!r}}.")
        for name in names
    ]


def _rule_of_division(whole: str, part: str) -> Rule:
    def is_broken(config: Any) -> bool:
        is_free = whole == "d_model" and hasattr(config, "head_dim")
        return not is_free and bool(getattr(config, whole) % getattr(config, part))

    return Rule(
        is_broken,
        f"`{whole}` ({{config.{whole}}}) must be divisible by `{part}` ({{config.{part}}}): "
        "change one of them.",
    )


def _is_outside_vocabulary(name: str, config: Any) -> bool:
    value, size = getattr(config, name), config.decoder_vocab_size
    if name == "pad_token_id":
        size = min(size, config.vocab_size)
    ids = value if isinstance(value, list) else [value]
    return any(token is not None and token not in range(size) for token in ids)


def _are_no_heads_of_the_decoder(config: Any) -> bool:
    limits = config.decoder_layers, config.decoder_attention_heads
    return config.alignment_heads is not None and not (
        config.alignment_heads
        and all(
            isinstance(pair, list | tuple)
            and len(pair) == 2
            and all(
                type(number) is int and number in range(limit)
                for number, limit in zip(pair, limits, strict=True)
            )
            for pair in config.alignment_heads
        )
    )


RULES: tuple[Rule, ...] = (
    *(
        rule
        for name, choices in CHOICES.items()
        for rule in _rules_of_fields([name], choices.__contains__, f"be one of {choices}")
    ),
    *_rules_of_fields(SIZES, lambda value: value >= 1, "be at least 1"),
    *_rules_of_fields(PROBABILITIES, lambda value: 0 <= value < 1, "lie in [0, 1)"),
    *_rules_of_fields(
        POSITIVE_NUMBERS, lambda value: 0 < value < math.inf, "be above 0 and finite"
    ),
    *_rules_of_fields(["activation_function"], ACT2FN.__contains__, f"be one of {sorted(ACT2FN)}"),
    Rule(
        lambda config: config.norm_type == "unbiased_std" and config.d_model < 2,
        "`d_model` ({config.d_model}) must be at least 2 for `norm_type='unbiased_std'`: one "
        "number has no sample standard deviation.",
    ),
    Rule(
        lambda config: config.qk_norm != "none" and config.norm_type == "unbiased_std",
        "`qk_norm` {config.qk_norm!r} needs `norm_type` 'layer_norm' or 'rms_norm', got "
        "{config.norm_type!r}: change one of them.",
    ),
    _rule_of_division("d_model", "encoder_attention_heads"),
    _rule_of_division("encoder_attention_heads", "encoder_num_key_value_heads"),
    _rule_of_division("d_model", "decoder_attention_heads"),
    _rule_of_division("decoder_attention_heads", "decoder_num_key_value_heads"),
    Rule(
        lambda config: (
            config.share_encoder_decoder_embeddings
            and config.vocab_size != config.decoder_vocab_size
        ),
        "`vocab_size` ({config.vocab_size}) and `decoder_vocab_size` ({config.decoder_vocab_size}) "
        "differ: make them equal or set `share_encoder_decoder_embeddings=False`.",
    ),
    Rule(
        lambda config: (
            config.initializer in POST_NORM_INITIALIZERS and config.norm_placement != "post"
        ),
        "`initializer` {config.initializer!r} is made for `norm_placement` 'post', got "
        "{config.norm_placement!r}: change one of them.",
    ),
    Rule(
        lambda config: config.initializer in POST_NORM_INITIALIZERS and config.residual_scale != 1,
        "`residual_scale` is {config.residual_scale}, but `initializer` {config.initializer!r} "
        "sets the factors: leave it out, or give `encoder_residual_scale` and "
        "`decoder_residual_scale`.",
    ),
    Rule(
        lambda config: (
            config.position_offset < 0
            or (
                config.position_offset
                and config.position_embedding_type not in POSITIONS_WITH_OFFSET
            )
        ),
        "`position_offset` must be at least 0, and 0 unless `position_embedding_type` "
        f"({{config.position_embedding_type!r}}) is one of {POSITIONS_WITH_OFFSET}, got "
        "{config.position_offset}.",
    ),
    Rule(
        lambda config: (
            config.position_embedding_type == "sinusoidal_fairseq" and config.d_model < 4
        ),
        "`d_model` ({config.d_model}) must be at least 4 for "
        "`position_embedding_type='sinusoidal_fairseq'`: its frequencies need two sines.",
    ),
    Rule(
        lambda config: (
            config.position_embedding_type == "relative"
            and not 2
            <= config.relative_attention_num_buckets // 2
            < config.relative_attention_max_distance
        ),
        "`relative_attention_num_buckets` must be at least 4, and "
        "`relative_attention_max_distance` more than half of it, got "
        "{config.relative_attention_num_buckets} and {config.relative_attention_max_distance}.",
    ),
    Rule(
        lambda config: (
            config.position_embedding_type != "rope" and getattr(config, "rope_parameters", None)
        ),
        "`rope_parameters` {config.rope_parameters!r} has no effect with "
        "`position_embedding_type` {config.position_embedding_type!r}: set "
        "`position_embedding_type` to 'rope', or `rope_parameters` to None.",
    ),
    *(
        Rule(
            partial(_is_outside_vocabulary, name),
            f"`{name}` must lie within its vocabularies, got {{config.{name}!r}}: change it, "
            "`vocab_size` ({config.vocab_size}) or `decoder_vocab_size` "
            "({config.decoder_vocab_size}).",
        )
        for name in ("pad_token_id", *TARGET_TOKEN_IDS)
    ),
    Rule(
        _are_no_heads_of_the_decoder,
        "`alignment_heads` must be a list of pairs [layer, head] with layers below "
        "{config.decoder_layers} and heads below {config.decoder_attention_heads}, or None, got "
        "{config.alignment_heads!r}.",
    ),
)
"""What the fields of a config must be, besides their types and the parameters of RoPE."""


class VanillaTransformerConfig(PreTrainedConfig):
    """Configuration of a vanilla encoder-decoder Transformer.

    The defaults have the sizes of the base model of "Attention Is All You Need" (Vaswani et al.
    2017). Section numbers below refer to that paper. If a field accepts None, the entry says what
    None stands for.

    Args:
        vocab_size: Number of rows of the encoder's embedding matrix, and of the shared matrix if
            there is one (§5.1).
        decoder_vocab_size: Number of rows of the decoder's embedding matrix and of the output
            projection. None: equal to `vocab_size`.
        share_encoder_decoder_embeddings: Whether source and target share one embedding matrix
            (§3.4). None: True if both vocabularies have the same size. While the matrix is shared,
            setting `vocab_size` also sets `decoder_vocab_size`.
        tie_word_embeddings: Whether the output projection uses the decoder's embedding matrix
            (§3.4).
        d_model: Width of the residual stream (§3.1).
        encoder_layers, decoder_layers: Number of layers of each stack (§3.1).
        encoder_attention_heads, decoder_attention_heads: Number of attention heads of each stack.
            Each must divide `d_model` (§3.2.2), unless `head_dim` is given.
        encoder_num_key_value_heads, decoder_num_key_value_heads: Number of key and value heads in
            self-attention and cross-attention. Each must divide the number of heads of its stack.
            Fewer heads give grouped-query attention (Ainslie et al. 2023), and 1 gives multi-query
            attention (Shazeer 2019). None: the number of heads, which the config then holds. While
            both numbers are equal, setting the number of heads sets this one too.
        head_dim: Width of an attention head in both stacks. None: `d_model` divided by the number
            of heads of the stack; then a config does not have this attribute. T5 chooses it freely
            (Raffel et al. 2020, `d_kv`).
        attention_scale: Positive factor on the attention scores. None: 1/sqrt(width of a head)
            (§3.2.1). T5 uses 1.
        qk_norm: Which attention normalises the queries and keys of each head, before rotation, so
            that scores cannot grow without limit (Henry et al. 2020): "none", "self" for
            self-attention, which CTranslate2 can compute, or "all" for cross-attention too. The
            norms are of `norm_type`, over the width of a head, and all heads of a layer share their
            parameters: "rms_norm" makes them those of Qwen3 (Yang et al. 2025), and "layer_norm"
            those of ViT-22B (Dehghani et al. 2023) with a bias. The scores start as
            `attention_scale` times the width of a head times a cosine.
        fused_qkv: Whether one matrix, `self_attn.qkv_proj`, computes the three projections of
            self-attention; `interop.match_weights` converts between both layouts. Cross-attention
            reads two inputs and keeps separate matrices.
        encoder_ffn_dim, decoder_ffn_dim: Inner width of the feed-forward sublayer (§3.3).
        activation_function: Activation of the feed-forward sublayer: any name in transformers'
            `ACT2FN`. The paper uses "relu" (§3.3).
        gated_ffn: Whether the feed-forward sublayer is gated: fc2(act(gate(x)) * fc1(x)) instead of
            fc2(act(fc1(x))). With "silu" this is SwiGLU, with "gelu" GEGLU, with "relu" ReGLU
            (Shazeer 2020). The inner width stays `encoder_ffn_dim`; two thirds of it give about the
            same number of parameters as an ungated sublayer.
        norm_placement: Where each sublayer is normalised. "post" computes norm(x + f(x)) (§3.1),
            "pre" computes x + f(norm(x)) (Xiong et al. 2020), and "none" computes x + f(x).
        norm_type: Type of all norms. "layer_norm" (Ba et al. 2016), "rms_norm" (Zhang and Sennrich
            2019), or "unbiased_std" for gain * (x - mean) / (std + eps) + bias with the sample
            standard deviation (The Annotated Transformer).
        layer_norm_eps: Small number above 0 that is added to the variance under the root. For
            "unbiased_std" it is added to the standard deviation.
        final_layer_norm: Whether a norm follows each stack. None: True only for "pre", because
            nothing else normalises the residual stream of a pre-norm model.
        normalize_embedding: Whether a norm follows the sum of embeddings and positions (BART, Lewis
            et al. 2020).
        position_embedding_type: How a model sees the order of tokens. "sinusoidal" adds interleaved
            sines and cosines (§3.5). "sinusoidal_half" adds all sines, then all cosines (Marian
            in transformers). "sinusoidal_fairseq" does the same with the frequencies of
            tensor2tensor, fairseq and Marian itself, 10000^(-i / (d_model / 2 - 1)). "learned"
            adds a trained vector per position.
            "rope" rotates the queries and keys of self-attention (Su et al. 2021). "alibi" adds a
            bias to the scores of self-attention that grows with the distance and is symmetric in
            the encoder (Press et al. 2022). "relative" adds a trained bias per head and per range
            of distances to these scores, the same in all layers of a stack (T5, Raffel et al.
            2020). "none" uses no positions.
        position_offset: Position of the first token, for the sinusoids and for "learned". fairseq
            and BART begin at `pad_token_id` + 1, which is usually 2. A table of learned positions
            has `max_position_embeddings` + `position_offset` rows.
        max_position_embeddings: Longest sequence in tokens for "learned", and the trained length
            for the scaled types of "rope". The other types have no limit and ignore this field.
        relative_attention_num_buckets: Number of ranges of distances for "relative". Half of them
            (in the encoder, a quarter in each direction) hold one distance each; the rest grow
            logarithmically.
        relative_attention_max_distance: Distance in tokens from which on "relative" does not tell
            distances apart.
        rope_parameters: Parameters of "rope", named as in transformers' `RopeParameters`:
            `rope_type` ("default", "linear", "dynamic", "yarn", "longrope", "llama3" or
            "proportional"), `rope_theta` (10000 by default), and what the type requires. None: the
            type "default". With other positions, a config does not have this attribute.
        scale_embedding: Whether embeddings are multiplied by sqrt(d_model) (§3.4).
        attention_bias, ffn_bias, lm_head_bias: Whether the attention projections, the feed-forward
            projections and the output projection have a bias.
        logit_scale: Positive factor on the logits, before a bias. T5 with tied embeddings uses
            1/sqrt(d_model).
        residual_scale: Positive factor on each sublayer's output before the residual sum. A factor
            of 1/sqrt(layers) keeps the residual stream of a deep stack from growing.
        encoder_residual_scale, decoder_residual_scale: The same factor for one stack. None:
            `residual_scale`; with the initializers "deepnorm" and "admin" 1/alpha, which the
            config then holds. For a new model with other numbers of layers than a loaded config,
            set both to None.
        initializer: How the weights of a new model are drawn; loaded weights stay. The variance of
            a projection is that of Glorot and Bengio 2010 ("Xavier"), uniform, and embeddings are
            normal with std d_model^-0.5, unless said otherwise. "half_xavier" halves projections
            and embeddings: at a `d_model` of 512, their std is about 0.02. "xavier" changes
            nothing. "normal" draws all from a normal distribution with std 0.02 (BERT, BART,
            Marian in transformers).
            "residual_scaled" divides the last projection of each sublayer by the root of the number
            of sublayers of the stack (GPT-2, Radford et al. 2019, §2.3). "depth_scaled" divides all
            matrices of layer l by sqrt(l) (Zhang et al. 2019). "t_fixup" is made for
            `norm_placement="none"`: it scales values, outputs and feed-forward by 0.67 · N^-0.25 in
            N encoder layers, and these and the embeddings by (9M)^-0.25 for M decoder layers
            (Huang et al. 2020). "deepnorm" needs `norm_placement="post"`: it computes
            norm(alpha · x + f(x)) as norm(x + f(x)/alpha), which is the same but for
            `layer_norm_eps`, and scales values, outputs and feed-forward by beta. Alpha follows
            from the numbers of layers, and beta from alpha (Wang et al. 2022, figure 2); a residual
            scale that is given stands for 1/alpha, and changes both. "admin" is the same without
            beta, and with alpha = sqrt((n + 1)/ln(n + 1) - 1) in a stack of n sublayers
            (Liu et al. 2020, in the closed form of the authors' package admin-torch).
        dropout: Dropout probability on each sublayer's output and on the sum of embeddings and
            positions (§5.4).
        attention_dropout: Dropout probability on the attention weights.
        activation_dropout: Dropout probability after the feed-forward activation.
        ffn_dropout: Dropout probability after the last feed-forward projection, in addition to
            `dropout` on the sublayer's output.
        final_dropout: Dropout probability on the output of each stack, after its norm (T5).
        encoder_layerdrop, decoder_layerdrop: Probability of skipping a layer in a training step
            (Fan et al. 2020). A call with a cache skips no layer. A skipped layer has no gradient,
            so training on several devices needs DDP's `find_unused_parameters`, which Trainer turns
            on unless gradient checkpointing is on.
        label_smoothing: Label smoothing of the model's own loss, in training and evaluation (§5.4).
        alignment_heads: Heads of cross-attention whose mean weights align target tokens with source
            tokens, as pairs [layer of the decoder, head], both counted from 0. A training with a
            guided head (Garg et al. 2019) names it here. Only alignments read this field. None: all
            heads of the last layer but one.
        classifier_pooling: Which vector represents a sequence for classification. "mean" is the
            mean over the real tokens, "first" is the first real token (Devlin et al. 2019).
        classifier_dropout: Dropout probability before the classifier of sequences or tokens. None:
            equal to `dropout`.
        use_cache: Whether decoding keeps the keys and values of past tokens.
        pad_token_id, bos_token_id, eos_token_id: Special tokens of both vocabularies. Each may be
            None, and `eos_token_id` may be a list.
        decoder_start_token_id: First input token of the decoder.
        forced_eos_token_id: Token, or list of tokens, that ends a sequence at the maximum length.
            None: no such token.
        **kwargs: Fields of `PreTrainedConfig` and custom attributes.

    Raises:
        ValueError: If a value has the wrong type or is illegal, if sizes do not divide each other,
            or if an unknown field looks like a misspelt one. The message names the field, the value
            and the remedy.
    """

    model_type = "vanilla_transformer"
    keys_to_ignore_at_inference = ["past_key_values", "cache"]  # noqa: RUF012 - as below
    attribute_map = {  # noqa: RUF012 - as the base class declares it
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
        "num_key_value_heads": "encoder_num_key_value_heads",
    }

    # Names relative to a stack. Each model keeps the rules that match one of its modules.
    base_model_tp_plan = {  # noqa: RUF012 - as the base class declares it
        "shared": "embedding_rowwise",
        **{f"layers.*.self_attn.{name}": style for name, style in ATTENTION_TP_PLAN.items()},
        **{f"layers.*.encoder_attn.{name}": style for name, style in ATTENTION_TP_PLAN.items()},
        "layers.*.feed_forward.fc1": "colwise",
        "layers.*.feed_forward.gate": "colwise",
        "layers.*.feed_forward.fc2": "rowwise",
    }
    # The embeddings stay in the root's group: only there do shared matrices stay shared.
    base_model_fsdp_plan = {  # noqa: RUF012 - as the base class declares it
        "layers.*": "free_full_weight",
        "final_norm": "keep_full_weight",
    }

    vocab_size: int = 32000
    decoder_vocab_size: int | None = None
    share_encoder_decoder_embeddings: bool | None = None
    tie_word_embeddings: bool = True
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_num_key_value_heads: int | None = None
    decoder_num_key_value_heads: int | None = None
    head_dim: int | None = field(default_factory=lambda: None)
    attention_scale: float | int | None = None
    qk_norm: str = "none"
    fused_qkv: bool = False
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048
    activation_function: str = "relu"
    gated_ffn: bool = False
    norm_placement: str = "post"
    norm_type: str = "layer_norm"
    layer_norm_eps: float = 1e-5
    final_layer_norm: bool | None = None
    normalize_embedding: bool = False
    position_embedding_type: str = "sinusoidal"
    position_offset: int = 0
    max_position_embeddings: int = 1024
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    rope_parameters: dict | None = field(default_factory=lambda: None)  # type: ignore[type-arg]
    scale_embedding: bool = True
    attention_bias: bool = True
    ffn_bias: bool = True
    lm_head_bias: bool = False
    logit_scale: float | int = 1.0
    residual_scale: float | int = 1.0
    encoder_residual_scale: float | int | None = None
    decoder_residual_scale: float | int | None = None
    initializer: str = "half_xavier"
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    ffn_dropout: float | int = 0.0
    final_dropout: float | int = 0.0
    encoder_layerdrop: float | int = 0.0
    decoder_layerdrop: float | int = 0.0
    label_smoothing: float | int = 0.0
    alignment_heads: list | None = None  # type: ignore[type-arg]  # as for `eos_token_id` below
    classifier_pooling: str = "mean"
    classifier_dropout: float | int | None = None
    is_encoder_decoder: bool = True
    use_cache: bool = True
    pad_token_id: int | None = 1
    bos_token_id: int | None = 0
    eos_token_id: int | list | None = 2  # type: ignore[type-arg]  # isinstance accepts no list[int]
    decoder_start_token_id: int | None = 0
    forced_eos_token_id: int | list | None = None  # type: ignore[type-arg]  # isinstance accepts no list[int]

    def __post_init__(self, **kwargs: Any) -> None:
        """Resolves other names of fields, fills in dependent defaults and checks every field."""
        for name in self.attribute_map.keys() & kwargs.keys():
            setattr(self, name, kwargs.pop(name))
        self.check()
        self._refuse_misspelt_fields(kwargs)
        auto_map = kwargs.pop("auto_map", None) or {}
        if not isinstance(auto_map, dict):
            raise ValueError(
                f"`auto_map` is {auto_map!r}: give a class for each Auto class, or leave it out."
            )
        self.auto_map = {**AUTO_MAP, **auto_map}
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]  # the base class is untyped
        self._update_bare_model()

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> "VanillaTransformerConfig":
        """Returns the config of a published system.

        Args:
            name: "vaswani-base" or "vaswani-big" (table 3 of the paper), "iwslt" (fairseq's
                transformer_iwslt_de_en), "system-a" to "system-e" (the systems of five tutorials;
                sizes that a tutorial leaves open are those of the paper), or "modern" (pre-norm,
                RMSNorm, SwiGLU, RoPE, grouped queries, no biases).
            **changes: Fields that differ from the preset.
        """
        if name not in PRESETS:
            raise ValueError(f"Unknown preset `name` {name!r}: choose one of {list(PRESETS)}.")
        return cls(**{**PRESETS[name], **changes})

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets a field, and the fields that must stay consistent with it."""
        name = self.attribute_map.get(name, name)
        if name.endswith("_attention_heads"):
            key_value_heads = name.replace("attention", "num_key_value")
            if getattr(self, key_value_heads, None) == getattr(self, name):
                super().__setattr__(key_value_heads, value)  # type: ignore[no-untyped-call]  # as below
        super().__setattr__(name, value)  # type: ignore[no-untyped-call]  # the base class is untyped
        if name == "vocab_size" and self.share_encoder_decoder_embeddings:
            self.decoder_vocab_size = value  # a shared matrix has one size
        elif name == "architectures" and hasattr(self, "auto_map"):
            self._update_bare_model()

    def _update_bare_model(self) -> None:
        """Sets the class that `AutoModel` loads to the one that fits `architectures`."""
        self.__dict__["architectures"], self.auto_map = choose_bare_model(
            self.architectures, self.auto_map, self.is_encoder_decoder
        )

    def __eq__(self, other: object) -> bool:
        """Compares attributes; the base class would also read fields that this config lacks."""
        return isinstance(other, PreTrainedConfig) and self.__dict__ == other.__dict__

    def head_dim_with(self, num_heads: int) -> int:
        """Returns the width of an attention head of a stack that has this many heads."""
        return getattr(self, "head_dim", None) or self.d_model // num_heads

    def residual_scale_of(self, stack: str) -> float:
        """Returns the factor on the outputs of the sublayers of a stack: "encoder" or "decoder"."""
        own: float | None = getattr(self, f"{stack}_residual_scale")
        return self.residual_scale if own is None else own

    # --- saving and loading ----------------------------------------------------------------------

    @property
    def custom_pipelines(self) -> CustomPipelines:
        """A copy of the pipelines of the saved architecture and those that the user set."""
        return collect_pipelines(self.architectures, self.__dict__.get("custom_pipelines", {}))

    @custom_pipelines.setter
    def custom_pipelines(self, pipelines: dict[str, Any]) -> None:
        self.__dict__.pop("custom_pipelines", None)
        if user_pipelines := select_user_pipelines(pipelines):
            self.__dict__["custom_pipelines"] = user_pipelines

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], push_to_hub: bool = False, **kwargs: Any
    ) -> None:
        """Writes the config, with the current versions, and the code of all classes it names."""
        self.saved_with = current_versions()
        super().save_pretrained(save_directory, push_to_hub, **kwargs)
        if self._auto_class is not None:
            for file in list_code_files():
                shutil.copyfile(file, Path(save_directory) / file.name)

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as they are written to a file, without empty `custom_pipelines`."""
        fields: dict[str, Any] = super().to_dict()
        fields.pop("custom_pipelines", None)
        if self.custom_pipelines:
            fields["custom_pipelines"] = dict(self.custom_pipelines)
        return fields

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> "VanillaTransformerConfig":
        """Creates a config from the content of a config file; `kwargs` override fields.

        Raises:
            ValueError: As the constructor, and if the file describes another kind of model.
        """
        kind = config_dict.get("model_type", cls.model_type)
        if kind != cls.model_type:
            raise ValueError(
                f"`model_type` is {kind!r}, not {cls.model_type!r}: the directory holds another "
                "model. Load it with transformers' Auto classes, or give another directory."
            )
        # Heads come first, because setting them may also set the number of key and value heads.
        ordered = sorted(kwargs.items(), key=lambda field: field[0].endswith("key_value_heads"))
        return super().from_dict(config_dict, **dict(ordered))

    def get_text_config(
        self, decoder: bool | None = None, encoder: bool | None = None
    ) -> PreTrainedConfig:
        """Returns the config of one stack, which transformers uses to size a cache.

        It is a copy without `rope_parameters`, which only the whole config holds; it is this config
        if both or neither of the stacks are chosen.
        """
        config: PreTrainedConfig = super().get_text_config(decoder, encoder)
        if config is not self:
            config.__dict__.pop("rope_parameters", None)
            config.decoder_start_token_id = self.decoder_start_token_id  # not a size of a stack
        return config

    # --- checks ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Fills in the dependent defaults, then checks every field.

        The constructor calls it, and so does every model when it is built: fields can change after
        construction, as in `from_pretrained(directory, field=value)`.
        """
        self._check_types()
        self._fill_in_defaults()
        check_rules(RULES, config=self)
        self._warn_of_kept_scales()
        self._check_rope()

    def _check_types(self) -> None:
        for name, kind in VanillaTransformerConfig.__annotations__.items():
            value = getattr(self, name, None)
            is_bool_as_number = isinstance(value, bool) and kind not in (bool, bool | None)
            if is_bool_as_number or not isinstance(value, kind):
                expected = getattr(kind, "__name__", str(kind))
                raise ValueError(f"`{name}` must be of type {expected}, got {value!r}.")

    def _fill_in_defaults(self) -> None:
        """Sets the fields whose None stands for a value that depends on other fields."""
        if self.decoder_vocab_size is None:
            self.decoder_vocab_size = self.vocab_size
        if self.share_encoder_decoder_embeddings is None:
            self.share_encoder_decoder_embeddings = self.vocab_size == self.decoder_vocab_size
        for stack in ("encoder", "decoder"):
            if getattr(self, f"{stack}_num_key_value_heads") is None:
                heads = getattr(self, f"{stack}_attention_heads")
                setattr(self, f"{stack}_num_key_value_heads", heads)
        if self.final_layer_norm is None:
            self.final_layer_norm = self.norm_placement == "pre"
        self.fill_residual_scales(
            stack
            for stack in ("encoder", "decoder")
            if getattr(self, f"{stack}_residual_scale") is None
        )
        if "head_dim" in self.__dict__ and self.head_dim is None:
            del self.head_dim  # transformers takes a model that has it for one that sets it
        given = getattr(self, "rope_parameters", None)
        if self.position_embedding_type == "rope":
            self.rope_parameters = with_rope_defaults(given, self.max_position_embeddings)
        elif not given and "rope_parameters" in self.__dict__:
            del self.rope_parameters  # transformers takes a model that has it for a rotary one

    def filled_residual_scales(self) -> list[str]:
        """Returns the stacks whose residual scale is the one that `initializer` sets."""
        if self.initializer not in POST_NORM_INITIALIZERS:
            return []
        return [
            stack
            for stack, alpha in self._shares_of_the_residual_stream().items()
            if getattr(self, f"{stack}_residual_scale") == 1 / alpha
        ]

    def fill_residual_scales(self, stacks: Iterable[str]) -> None:
        """Sets the residual scales that `initializer` sets, if it sets any.

        Args:
            stacks: Any of "encoder" and "decoder".
        """
        if self.initializer in POST_NORM_INITIALIZERS:
            alphas = self._shares_of_the_residual_stream()
            for stack in stacks:
                setattr(self, f"{stack}_residual_scale", 1 / alphas[stack])

    def _shares_of_the_residual_stream(self) -> dict[str, float]:
        """Returns alpha in norm(alpha · x + f(x)) by stack."""
        # The sizes are checked later: a wrong one must get that far.
        encoder, decoder = max(self.encoder_layers, 1), max(self.decoder_layers, 1)
        if self.initializer == "admin":
            sublayers_of_decoder = 3 if self.is_encoder_decoder else 2
            counts = {"encoder": 2 * encoder, "decoder": sublayers_of_decoder * decoder}
            return {
                stack: math.sqrt((count + 1) / math.log(count + 1) - 1)
                for stack, count in counts.items()
            }
        if not self.is_encoder_decoder:
            return {"encoder": (2 * encoder) ** 0.25, "decoder": (2 * decoder) ** 0.25}
        return {
            "encoder": 0.81 * (encoder**4 * decoder) ** 0.0625,
            "decoder": (3 * decoder) ** 0.25,
        }

    def _warn_of_kept_scales(self) -> None:
        """Warns of scales for other layers: a trained model keeps its own, a new one should not."""
        is_filled = len(self.filled_residual_scales()) == 2
        if self.initializer in POST_NORM_INITIALIZERS and self.is_encoder_decoder and not is_filled:
            held = [self.encoder_residual_scale, self.decoder_residual_scale]
            logger.warning_once(
                f"`encoder_residual_scale` and `decoder_residual_scale` are {held}, which "
                f"`initializer` {self.initializer!r} does not give {self.encoder_layers} and "
                f"{self.decoder_layers} layers: for a new model, set both to None."
            )

    def _check_rope(self) -> None:
        if self.position_embedding_type != "rope":
            return
        parameters = self.rope_parameters or {}
        check_rope_parameters(parameters)
        for stack in ("encoder", "decoder"):
            name = f"{stack}_attention_heads"
            heads = getattr(self, name)
            head_dim = self.head_dim_with(heads)
            check_rope_fits_heads(parameters, self.d_model, name, heads, head_dim)

    def _refuse_misspelt_fields(self, kwargs: dict[str, Any]) -> None:
        """Raises for a misspelt field; in a saved config, which may hold any attribute, warns."""
        known = [*VanillaTransformerConfig.__annotations__, *VanillaTransformerConfig.attribute_map]
        for name in kwargs.keys() - OTHER_TOKEN_IDS:
            if name in ("rope_theta", "rope_scaling"):
                raise ValueError(
                    f"`{name}` {kwargs[name]!r} must be given in `rope_parameters`, not beside it."
                )
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
            if not close:
                continue
            message = f"Unknown field `{name}`: did you mean `{close[0]}`? It would have no effect."
            if self.transformers_version is None:
                raise ValueError(message)
            logger.warning(message)
