"""Every choice of architecture: its name, its default, and which values go together.

`docs/config.md` explains the fields; its table is made from the docstring of the class.
"""

import difflib
import math
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any, cast

from transformers import PreTrainedConfig

from .presets import PRESETS
from .sharing import AUTO_MAP, SharedConfig  # saves the code beside a config

CHOICES = {
    "classifier_pooling": ("mean", "first"),
    "initializer": ("xavier", "half_xavier", "normal", "t_fixup"),
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

BIASED_SCHEMES = ("alibi", "relative")
"""The values of `position_embedding_type` that add a bias to the scores."""

PACKED_SCHEMES = ("sinusoidal", "sinusoidal_half", "sinusoidal_fairseq", "rope", "none")
"""The values of `position_embedding_type` with which attention may take concatenated sequences."""

POSITIVE_NUMBERS = ("layer_norm_eps", "residual_scale", "attention_scale", "logit_scale")

OTHER_TOKEN_IDS = ("unk_token_id", "sep_token_id", "cls_token_id", "mask_token_id")
"""Attributes that resemble fields and are set by tokenizers."""

# How tensor parallelism splits attention: by heads. All devices hold the norms of queries and keys.
ATTENTION_TP_PLAN = {
    "q_proj": "colwise",
    "k_proj": "colwise",
    "v_proj": "colwise",
    "q_norm": "replicated_with_grad_allreduce",
    "k_norm": "replicated_with_grad_allreduce",
    "out_proj": "rowwise",
}


class VanillaTransformerConfig(SharedConfig, PreTrainedConfig):
    """Configuration of a vanilla encoder-decoder Transformer.

    The defaults have the sizes of the base model of "Attention Is All You Need" (Vaswani et al.
    2017). Section numbers below refer to that paper. If a field accepts None, the entry says what
    None stands for.

    Args:
        vocab_size: Rows of the encoder's embedding matrix, and of a shared one (§5.1).
        decoder_vocab_size: Rows of the decoder's embedding matrix and of the output projection.
            None: equal to `vocab_size`.
        share_encoder_decoder_embeddings: Whether source and target share one embedding matrix
            (§3.4). None: True if both vocabularies have the same size.
        tie_word_embeddings: Whether the output projection uses the decoder's embedding matrix
            (§3.4).
        d_model: Width of the residual stream (§3.1).
        encoder_layers, decoder_layers: Number of layers of each stack (§3.1).
        encoder_attention_heads, decoder_attention_heads: Number of attention heads of each stack.
            Each must divide `d_model` (§3.2.2), unless `head_dim` is given.
        encoder_num_key_value_heads, decoder_num_key_value_heads: Number of key and value heads, a
            divisor of the heads of the stack. Fewer make grouped-query attention (Ainslie et al.
            2023), and 1 multi-query attention (Shazeer 2019). None: as many as heads.
        head_dim: Width of an attention head. None: `d_model` divided by the number of heads.
        attention_scale: Positive factor on the attention scores. None: 1/sqrt(width of a head)
            (§3.2.1). T5 uses 1.
        qk_norm: Which attention normalises queries and keys, before rotation: "none", "self" for
            self-attention, or "all" for cross-attention too (Henry et al. 2020).
        fused_qkv: Whether one matrix, `self_attn.qkv_proj`, computes the three projections of
            self-attention.
        encoder_ffn_dim, decoder_ffn_dim: Inner width of the feed-forward sublayer (§3.3).
        activation_function: Activation of the feed-forward sublayer: any name in transformers'
            `ACT2FN`. The paper uses "relu" (§3.3).
        gated_ffn: Whether the feed-forward sublayer is gated: fc2(act(gate(x)) * fc1(x)) instead of
            fc2(act(fc1(x))). With "silu" this is SwiGLU (Shazeer 2020).
        norm_placement: Where each sublayer is normalised. "post" computes norm(x + f(x)) (§3.1),
            "pre" computes x + f(norm(x)) (Xiong et al. 2020), and "none" computes x + f(x).
        norm_type: Type of all norms: "layer_norm" (Ba et al. 2016), "rms_norm" (Zhang and Sennrich
            2019), or "unbiased_std", the norm of The Annotated Transformer.
        layer_norm_eps: Added to the variance under the root; for "unbiased_std", to the standard
            deviation.
        final_layer_norm: Whether a norm follows each stack. None: True only for "pre".
        normalize_embedding: Whether a norm follows the sum of embeddings and positions (BART, Lewis
            et al. 2020).
        position_embedding_type: How a model sees the order of tokens: "sinusoidal" (§3.5),
            "sinusoidal_half", "sinusoidal_fairseq", "learned", "rope", "alibi", "relative" or
            "none".
        position_offset: Position of the first token, for the sinusoids and for "learned".
        max_position_embeddings: Longest sequence in tokens for "learned". The other types have no
            limit.
        relative_attention_num_buckets: Number of ranges of distances for "relative".
        relative_attention_max_distance: Distance in tokens from which on "relative" does not tell
            distances apart.
        rope_parameters: Parameters of "rope": `rope_theta` (10000 by default) and
            `partial_rotary_factor`, the rotated share of a head.
        scale_embedding: Whether embeddings are multiplied by sqrt(d_model) (§3.4).
        attention_bias, ffn_bias, lm_head_bias: Whether the attention projections, the feed-forward
            projections and the output projection have a bias.
        logit_scale: Positive factor on the logits, before a bias. T5 with tied embeddings uses
            1/sqrt(d_model).
        residual_scale: Positive factor on each sublayer's output before the residual sum. A factor
            of 1/sqrt(layers) keeps the residual stream of a deep stack from growing.
        initializer: How the weights of a new model are drawn: "half_xavier", "xavier" (Glorot and
            Bengio 2010), "normal" (BERT, BART), or "t_fixup" for models without norms (Huang et al.
            2020).
        dropout: Dropout probability on each sublayer's output and on the sum of embeddings and
            positions (§5.4).
        attention_dropout: Dropout probability on the attention weights.
        activation_dropout: Dropout probability after the feed-forward activation.
        ffn_dropout: Dropout probability after the last feed-forward projection, in addition to
            `dropout` on the sublayer's output.
        final_dropout: Dropout probability on the output of each stack, after its norm (T5).
        encoder_layerdrop, decoder_layerdrop: Probability of skipping a layer in a training step
            (Fan et al. 2020).
        label_smoothing: Label smoothing of the model's own loss, in training and evaluation (§5.4).
        alignment_heads: Heads of cross-attention that align target with source tokens, as pairs
            [layer of the decoder, head] from 0. None: all heads of the last layer, or
            of the last but one of six or more.
        classifier_pooling: Which vector represents a sequence for classification: the "mean" over
            its tokens, or its "first" token (Devlin et al. 2019).
        classifier_dropout: Dropout probability before the classifier. None: equal to `dropout`.
        use_cache: Whether decoding keeps the keys and values of past tokens.
        pad_token_id, bos_token_id, eos_token_id: Special tokens of both vocabularies. Each may be
            None, and `eos_token_id` may be a list.
        decoder_start_token_id: First input token of the decoder.
        forced_eos_token_id: Token, or list of tokens, that ends a sequence at the maximum length.
            None: no such token.
        **kwargs: Fields of `PreTrainedConfig` and custom attributes.

    Raises:
        ValueError: If a value is illegal or does not fit another one, or a name looks misspelt.
    """

    model_type = "vanilla_transformer"
    keys_to_ignore_at_inference = ["past_key_values", "cache"]  # noqa: RUF012 - as in the base class

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
    head_dim: int | None = field(default_factory=lambda: None)  # `del` leaves no default behind
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

    def __post_init__(self, **kwargs: Any) -> None:
        """Resolves other names of fields, fills in dependent defaults and checks every field."""
        for name in self.attribute_map.keys() & kwargs.keys():
            setattr(self, name, kwargs.pop(name))
        self.check()
        if self.transformers_version is None:  # a saved config may hold attributes of any name
            self._refuse_misspelt_fields(kwargs.keys() - OTHER_TOKEN_IDS)
        self.auto_map = {**AUTO_MAP, **(kwargs.pop("auto_map", None) or {})}
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]  # the base class is untyped
        self.update_bare_model()

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> "VanillaTransformerConfig":
        """Returns the config of a published system, with some fields changed.

        The names are "vaswani-base" and "vaswani-big" (table 3 of the paper), "iwslt" (fairseq's
        transformer_iwslt_de_en), "system-a" to "system-e" (five tutorials; sizes that a tutorial
        leaves open are those of the paper), and "modern" (pre-norm, RMSNorm, SwiGLU, RoPE, grouped
        queries, no biases).
        """
        return cls(**{**PRESETS[name], **changes})

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets a field; when transformers resizes a shared matrix, it sets `vocab_size` alone."""
        super().__setattr__(name, value)  # type: ignore[no-untyped-call]  # the base class is untyped
        if name == "vocab_size" and self.share_encoder_decoder_embeddings:
            self.decoder_vocab_size = value

    __eq__ = PreTrainedConfig.__eq__  # a dataclass would read fields that this config lacks

    def head_dim_with(self, num_heads: int) -> int:
        """Returns the width of an attention head of a stack that has this many heads."""
        return getattr(self, "head_dim", None) or self.d_model // num_heads

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> "VanillaTransformerConfig":
        """Creates a config from the content of a config file; `kwargs` override fields."""
        kind = config_dict.get("model_type", cls.model_type)
        if kind != cls.model_type:
            raise ValueError(
                f"`model_type` is {kind!r}, not {cls.model_type!r}: the directory holds another "
                "model. Load it with transformers' Auto classes, or give another directory."
            )
        return super().from_dict(config_dict, **kwargs)

    def get_text_config(
        self, decoder: bool | None = None, encoder: bool | None = None
    ) -> PreTrainedConfig:
        """Returns the config of one stack, which transformers uses to size a cache."""
        config: PreTrainedConfig = super().get_text_config(decoder, encoder)
        if config is not self:  # a copy; only the whole config holds `rope_parameters`
            config.__dict__.pop("rope_parameters", None)
            config.decoder_start_token_id = self.decoder_start_token_id  # it has lost its prefix
        return config

    # --- checks ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Fills in the dependent defaults, then checks every field.

        The constructor calls it, and so does every model: fields can change in between.
        """
        for name, kind in VanillaTransformerConfig.__annotations__.items():
            value = getattr(self, name, None)
            is_bool_as_number = isinstance(value, bool) and kind not in (bool, bool | None)
            if is_bool_as_number or not isinstance(value, kind):
                expected = getattr(kind, "__name__", str(kind))
                raise ValueError(f"`{name}` must be of type {expected}, got {value!r}.")
        self._fill_in_defaults()
        for find_problems in (self._values_out_of_range, self._fields_that_do_not_fit):
            if problems := list(find_problems()):
                raise ValueError(" ".join(problems))

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
            # Nothing else normalises the residual stream of a pre-norm model.
            self.final_layer_norm = self.norm_placement == "pre"
        # transformers reads these two attributes of each config that has them, even as None.
        if "head_dim" in self.__dict__ and self.head_dim is None:
            del self.head_dim
        if self.position_embedding_type == "rope":
            plain = {"rope_type": "default", "rope_theta": 10000.0}
            self.rope_parameters = plain | (getattr(self, "rope_parameters", None) or {})
        else:
            self.__dict__.pop("rope_parameters", None)

    def _values_out_of_range(self) -> Iterator[str]:
        """Yields a sentence for each field that has an illegal value."""
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                yield f"`{name}` must be one of {choices}, got {getattr(self, name)!r}."
        for name in VanillaTransformerConfig.__annotations__:
            value = getattr(self, name, None)
            if name.endswith("_token_id"):
                size = cast(int, self.decoder_vocab_size)
                if name == "pad_token_id":  # of both sides
                    size = min(size, self.vocab_size)
                ids = value if isinstance(value, list) else [value]
                is_legal = all(token is None or token in range(size) for token in ids)
                demand = f"be an id of the vocabulary, 0 to {size - 1}"
            elif value is None:
                continue
            elif name in SIZES:
                is_legal, demand = value >= 1, "be at least 1"
            elif name in PROBABILITIES:
                is_legal, demand = 0 <= value < 1, "lie in [0, 1)"
            elif name in POSITIVE_NUMBERS:
                is_legal, demand = 0 < value < math.inf, "be above 0 and finite"
            else:
                continue
            if not is_legal:
                yield f"`{name}` must {demand}, got {value!r}."

    def _fields_that_do_not_fit(self) -> Iterator[str]:
        """Yields a sentence for each pair of fields that exclude each other."""
        for stack in ("encoder", "decoder"):
            name = f"{stack}_attention_heads"
            heads, width = getattr(self, name), getattr(self, "head_dim", None)
            if width is None and self.d_model % heads:
                yield f"`d_model` ({self.d_model}) must be divisible by `{name}` ({heads})."
            key_value_heads = getattr(self, f"{stack}_num_key_value_heads")
            if heads % key_value_heads:
                yield (
                    f"`{name}` ({heads}) must be divisible by `{stack}_num_key_value_heads` "
                    f"({key_value_heads})."
                )
            if self.position_embedding_type == "rope":
                yield from self._rope_that_does_not_fit(width or self.d_model // heads)
        if self.share_encoder_decoder_embeddings and self.vocab_size != self.decoder_vocab_size:
            yield (
                f"`vocab_size` ({self.vocab_size}) and `decoder_vocab_size` "
                f"({self.decoder_vocab_size}) differ: make them equal or set "
                "`share_encoder_decoder_embeddings=False`."
            )
        if self.qk_norm != "none" and self.norm_type == "unbiased_std":
            yield f"`qk_norm` {self.qk_norm!r} needs `norm_type` 'layer_norm' or 'rms_norm'."
        buckets = self.relative_attention_num_buckets
        distance = self.relative_attention_max_distance
        if self.position_embedding_type == "relative" and not 2 <= buckets // 2 < distance:
            yield (
                "`relative_attention_num_buckets` must be at least 4, and "
                "`relative_attention_max_distance` more than half of it, got "
                f"{buckets} and {distance}."
            )
        layers, heads = self.decoder_layers, self.decoder_attention_heads
        pairs = {(layer, head) for layer in range(layers) for head in range(heads)}
        aligned = self.alignment_heads
        if aligned is not None and not (aligned and {tuple(pair) for pair in aligned} <= pairs):
            yield (
                f"`alignment_heads` must be pairs [layer, head] with layers below {layers} and "
                f"heads below {heads}, or None, got {aligned!r}."
            )

    def _rope_that_does_not_fit(self, head_dim: int) -> Iterator[str]:
        parameters = self.rope_parameters or {}
        known = {"rope_type", "rope_theta", "partial_rotary_factor"}
        if not parameters.keys() <= known or parameters["rope_type"] != "default":
            yield (
                f"`rope_parameters` {parameters!r} may hold `rope_theta` and "
                "`partial_rotary_factor` only: the `rope_type` is 'default'."
            )
        rotated_dim = int(head_dim * parameters.get("partial_rotary_factor", 1.0))
        if rotated_dim % 2 or not 0 < rotated_dim <= head_dim:
            yield (
                f"`position_embedding_type` 'rope' would rotate {rotated_dim} of the {head_dim} "
                "dimensions of a head, but needs an even number: change `d_model`, the number of "
                "heads or `partial_rotary_factor`."
            )

    def _refuse_misspelt_fields(self, names: Iterable[str]) -> None:
        """Raises for a name that resembles a field: it would silently have no effect."""
        known = {name: name for name in (*self.__annotations__, *self.attribute_map)}
        known |= dict.fromkeys(("rope_theta", "rope_scaling"), "rope_parameters")
        for name in names:
            if close := difflib.get_close_matches(name, known.keys(), n=1, cutoff=0.8):
                raise ValueError(
                    f"Unknown field `{name}`: did you mean `{known[close[0]]}`? It has no effect."
                )


# The fields that are checked alike, by their types and names.
_KINDS = VanillaTransformerConfig.__annotations__.items()
_INTEGERS = [name for name, kind in _KINDS if kind in (int, int | None)]
SIZES = tuple(name for name in _INTEGERS if not name.endswith(("_token_id", "_offset")))
PROBABILITIES = tuple(name for name, _ in _KINDS if "drop" in name or name == "label_smoothing")


def aligning_layer(layers: int) -> int:
    """Returns the number, from 0, of a decoder's layer whose cross-attention aligns best.

    It is the last but one of six or more (Garg et al. 2019, "Jointly Learning to Align and
    Translate"), and the last one of fewer.
    """
    return layers - (2 if layers >= 6 else 1)
