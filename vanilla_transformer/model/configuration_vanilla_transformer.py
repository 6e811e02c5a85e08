"""Every choice of architecture: its name, meaning, legal values and source."""

import copy
import difflib
import math
import os
import shutil
from dataclasses import field
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.utils import logging

logger = logging.get_logger(__name__)

_ENCODER_MODEL = "VanillaTransformerEncoderModel"
_ENCODER_AUTO = "AutoModelForTextEncoding"
_ON_THE_ENCODER = (
    _ENCODER_MODEL,
    "VanillaTransformerForSequenceClassification",
    "VanillaTransformerForTokenClassification",
)
_AUTO_MAP = {
    "AutoConfig": "configuration_vanilla_transformer.VanillaTransformerConfig",
    "AutoModel": "modeling_vanilla_transformer.VanillaTransformerModel",
    "AutoModelForSeq2SeqLM": (
        "modeling_vanilla_transformer.VanillaTransformerForConditionalGeneration"
    ),
    "AutoModelForTextEncoding": "modeling_vanilla_transformer.VanillaTransformerEncoderModel",
    "AutoModelForSequenceClassification": (
        "modeling_vanilla_transformer.VanillaTransformerForSequenceClassification"
    ),
    "AutoModelForTokenClassification": (
        "modeling_vanilla_transformer.VanillaTransformerForTokenClassification"
    ),
    "AutoModelForCausalLM": "modeling_vanilla_transformer.VanillaTransformerForCausalLM",
}
GENERATION_TASK = "seq2seq-generation"
"""Name of the pipeline of models that generate a text for a text."""

_PIPELINES = {
    "VanillaTransformerForConditionalGeneration": {
        GENERATION_TASK: {
            "impl": "pipeline_vanilla_transformer.Seq2SeqGenerationPipeline",
            "pt": ["AutoModelForSeq2SeqLM"],
        }
    },
}
_CHOICES = {
    "classifier_pooling": ("mean", "first"),
    "norm_placement": ("post", "pre", "none"),
    "norm_type": ("layer_norm", "rms_norm", "unbiased_std"),
    "position_embedding_type": (
        "sinusoidal",
        "sinusoidal_half",
        "learned",
        "rope",
        "alibi",
        "none",
    ),
}
_ROPE_NEEDS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "proportional": (),
}
_ROPE_WITH_TRAINED_LENGTH = ("yarn", "longrope", "llama3")
_ROPE_TAKES: dict[str, tuple[str, ...]] = {
    "yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    "longrope": ("attention_factor", "factor"),
    "proportional": ("factor",),
}
_ROPE_ABOVE = {
    **dict.fromkeys(("rope_theta", "original_max_position_embeddings"), 1),
    **dict.fromkeys(("partial_rotary_factor", "factor", "attention_factor"), 0),
    **dict.fromkeys(("low_freq_factor", "high_freq_factor", "beta_slow", "beta_fast"), 0),
    **dict.fromkeys(("mscale", "mscale_all_dim"), 0),
}
_ROPE_LISTS = ("short_factor", "long_factor")
_OWN_EMBEDDINGS = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}
_PRESETS: dict[str, dict[str, Any]] = {
    # Vaswani et al. 2017, table 3: 65M parameters with the 37,000 tokens of §5.1.
    "vaswani-base": {"vocab_size": 37000, "label_smoothing": 0.1},
    # Vaswani et al. 2017, table 3: 213M parameters; dropout of the English-German model.
    "vaswani-big": {
        "vocab_size": 37000,
        "d_model": 1024,
        "encoder_attention_heads": 16,
        "decoder_attention_heads": 16,
        "encoder_ffn_dim": 4096,
        "decoder_ffn_dim": 4096,
        "dropout": 0.3,
        "label_smoothing": 0.1,
    },
    # fairseq's transformer_iwslt_de_en and the options of its example; sizes of its vocabularies.
    "iwslt": {
        "vocab_size": 8848,
        "decoder_vocab_size": 6632,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 1024,
        "decoder_ffn_dim": 1024,
        "position_embedding_type": "sinusoidal_half",
        "dropout": 0.3,
        "label_smoothing": 0.1,
        "share_encoder_decoder_embeddings": False,
    },
    # A tutorial's model after the paper: embeddings not scaled, untied, two vocabularies.
    "system-a": {
        **_OWN_EMBEDDINGS,
        "vocab_size": 1000,
        "decoder_vocab_size": 1200,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "scale_embedding": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "decoder_start_token_id": 1,
    },
    # A tutorial's encoder, whose input is embedded already: its decoder is not part of the system.
    "system-b": {
        "encoder_layers": 5,
        "fused_qkv": True,
        "norm_type": "unbiased_std",
        "layer_norm_eps": 1e-6,
        "final_layer_norm": True,
        "position_embedding_type": "none",
        "scale_embedding": False,
        "dropout": 0.0,
        "activation_dropout": 0.1,
    },
    # A tutorial's translator on characters; its vocabularies follow from the data.
    "system-c": {
        **_OWN_EMBEDDINGS,
        "fused_qkv": True,
        "scale_embedding": False,
        "lm_head_bias": True,
        "activation_dropout": 0.1,
    },
    # A tutorial's pre-norm model, which drops out four times and has no norm after its stacks.
    "system-d": {
        **_OWN_EMBEDDINGS,
        "activation_function": "gelu",
        "norm_placement": "pre",
        "final_layer_norm": False,
        "lm_head_bias": True,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
        "ffn_dropout": 0.1,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "decoder_start_token_id": 1,
    },
    # A tutorial's composable model: residual sums without any norm or dropout.
    "system-e": {
        **_OWN_EMBEDDINGS,
        "norm_placement": "none",
        "lm_head_bias": True,
        "dropout": 0.0,
    },
    # The choices of LLaMA (Touvron et al. 2023) with the grouped queries of Ainslie et al. 2023;
    # about 2/3 of the base model's inner width, so that three matrices weigh what two did.
    "modern": {
        "encoder_num_key_value_heads": 2,
        "decoder_num_key_value_heads": 2,
        "encoder_ffn_dim": 1408,
        "decoder_ffn_dim": 1408,
        "activation_function": "silu",
        "gated_ffn": True,
        "norm_placement": "pre",
        "norm_type": "rms_norm",
        "layer_norm_eps": 1e-6,
        "position_embedding_type": "rope",
        "attention_bias": False,
        "ffn_bias": False,
        "label_smoothing": 0.1,
    },
}
_ATTENTION_TP_PLAN = {
    "q_proj": "colwise",
    "k_proj": "colwise",
    "v_proj": "colwise",
    "out_proj": "rowwise",
}
_SIZES = (
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
)
_PROBABILITIES = (
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "ffn_dropout",
    "encoder_layerdrop",
    "decoder_layerdrop",
    "label_smoothing",
    "classifier_dropout",
)
_POSITIVE = ("layer_norm_eps", "residual_scale")
_TARGET_TOKENS = ("bos_token_id", "eos_token_id", "decoder_start_token_id", "forced_eos_token_id")
_TOKENIZER_FIELDS = ("unk_token_id", "sep_token_id", "cls_token_id", "mask_token_id")


class CustomPipelines(dict[str, Any]):
    """Tasks and the code beside the weights that does them, where transformers has none itself.

    `pipeline` demands `trust_remote_code=True` for a task that is `in` here. A task that is
    registered in this process needs no code from the directory, so it is not; it can be listed and
    read all the same, which is how `pipeline` finds the task of a model.
    """

    def __contains__(self, task: object) -> bool:
        return super().__contains__(task) and task not in PIPELINE_REGISTRY.supported_tasks


class VanillaTransformerConfig(PreTrainedConfig):
    """Configuration of a vanilla encoder-decoder Transformer.

    The defaults are the base model of "Attention Is All You Need" (Vaswani et al. 2017; section
    numbers below refer to it).

    Args:
        vocab_size: Rows of the encoder's embedding matrix (and of the shared one).
        decoder_vocab_size: Rows of the decoder's embedding matrix and of the output; None: the
            same as `vocab_size`.
        share_encoder_decoder_embeddings: One embedding matrix for source and target (§3.4). None:
            share where both vocabularies have one size. While it is shared, setting `vocab_size`
            sets `decoder_vocab_size` too.
        tie_word_embeddings: The output projection is the decoder's embedding matrix (§3.4).
        d_model: Width of the residual stream (§3.1).
        encoder_layers, decoder_layers: Number of layers of each stack (§3.1).
        encoder_attention_heads, decoder_attention_heads: Heads; each divides `d_model` (§3.2.2).
        encoder_num_key_value_heads, decoder_num_key_value_heads: Heads of keys and values, in self-
            and cross-attention; a divisor of the heads. Fewer: grouped-query attention (Ainslie et
            al. 2023); 1: multi-query attention (Shazeer 2019); None: as many as heads.
        fused_qkv: One matrix for the three projections of self-attention, `self_attn.qkv_proj`
            (`interop.qkv` converts); cross-attention, whose inputs are two, keeps its own.
        encoder_ffn_dim, decoder_ffn_dim: Width inside the feed-forward sublayer (§3.3).
        activation_function: Any name in transformers' `ACT2FN`; "relu" in §3.3.
        gated_ffn: fc2(act(gate(x)) * fc1(x)) instead of fc2(act(fc1(x))); with "silu" it is SwiGLU,
            with "gelu" GEGLU, with "relu" ReGLU (Shazeer 2020). `encoder_ffn_dim` stays the width
            inside; two thirds of it make as many parameters.
        norm_placement: "post": norm(x + f(x)) (§3.1); "pre": x + f(norm(x)) (Xiong et al. 2020);
            "none": x + f(x).
        norm_type: "layer_norm" (Ba et al. 2016), "rms_norm" (Zhang and Sennrich 2019), or
            "unbiased_std": gain * (x - mean) / (std + eps) + bias with the sample standard
            deviation (The Annotated Transformer).
        layer_norm_eps: Added to the variance inside the root ("unbiased_std": to the standard
            deviation).
        final_layer_norm: A norm after each stack. None: only for "pre", whose residual stream
            is otherwise never normalised.
        normalize_embedding: A norm after embeddings and positions are added (BART, Lewis et al.
            2020).
        position_embedding_type: "sinusoidal" (sin, cos interleaved, §3.5), "sinusoidal_half"
            (sines, then cosines: Marian, fairseq), "learned", "rope" (rotates queries and keys of
            self-attention; Su et al. 2021), "alibi" (a bias on the scores of self-attention that
            grows with the distance, symmetric in the encoder; Press et al. 2022), or "none".
        max_position_embeddings: Longest sequence, in tokens, for "learned", and the trained length
            for the kinds of "rope" that scale; the others have no limit and ignore it.
        rope_parameters: For "rope": `rope_type` ("default", "linear", "dynamic", "yarn",
            "longrope", "llama3" or "proportional"), `rope_theta` (10000), and what the type needs,
            by the names of transformers' `RopeParameters`. None: "default". Other positions have
            no such attribute.
        scale_embedding: Multiply the embeddings by sqrt(d_model) (§3.4).
        attention_bias, ffn_bias, lm_head_bias: Whether these projections have a bias.
        residual_scale: Factor on each sublayer's output before the sum; 1/sqrt(layers) keeps the
            residual stream of a deep stack from growing.
        dropout: On each sublayer's output and on embedding + position (§5.4).
        attention_dropout: On the attention weights.
        activation_dropout: After the feed-forward activation.
        ffn_dropout: After the feed-forward's last map, besides `dropout` on the sublayer's output.
        encoder_layerdrop, decoder_layerdrop: Probability of leaving a layer out of a training step
            (Fan et al. 2020); a call with a cache keeps all. A layer that is left out has no
            gradient, so several devices need DDP's `find_unused_parameters`, which Trainer turns on
            unless gradient checkpointing is on.
        label_smoothing: Of the model's own loss, at training and at evaluation (§5.4).
        classifier_pooling: What stands for a sequence that is classified: the "mean" of the states
            of its real tokens, or that of its "first" real token (Devlin et al. 2019).
        classifier_dropout: Before the map to the labels of sequences and tokens; None: `dropout`.
        use_cache: Keep keys and values of past tokens while decoding.
        pad_token_id, bos_token_id, eos_token_id: Special tokens of both vocabularies.
        decoder_start_token_id: First input of the decoder.
        forced_eos_token_id: Token that ends a sequence cut at the maximum length, or None.
        **kwargs: Fields of `PreTrainedConfig`, and attributes of your own.

    Raises:
        ValueError: If a value has the wrong type or is illegal, if sizes do not divide, or if an
            unknown field looks like a misspelt one. The message names field, value and remedy.
    """

    model_type = "vanilla_transformer"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012 - the base class's own form
    attribute_map = {  # noqa: RUF012 - the base class's own form
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }

    # Names as a stack sees them; each model keeps the rules that name something in it.
    base_model_tp_plan = {  # noqa: RUF012 - the base class's own form
        "shared": "embedding_rowwise",
        **{f"layers.*.self_attn.{name}": style for name, style in _ATTENTION_TP_PLAN.items()},
        **{f"layers.*.encoder_attn.{name}": style for name, style in _ATTENTION_TP_PLAN.items()},
        "layers.*.feed_forward.fc1": "colwise",
        "layers.*.feed_forward.gate": "colwise",
        "layers.*.feed_forward.fc2": "rowwise",
    }
    # The embeddings stay in the root's group, the only one in which shared matrices stay shared.
    base_model_fsdp_plan = {  # noqa: RUF012 - the base class's own form
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
    max_position_embeddings: int = 1024
    rope_parameters: dict | None = field(default_factory=lambda: None)  # type: ignore[type-arg]
    scale_embedding: bool = True
    attention_bias: bool = True
    ffn_bias: bool = True
    lm_head_bias: bool = False
    residual_scale: float | int = 1.0
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    ffn_dropout: float | int = 0.0
    encoder_layerdrop: float | int = 0.0
    decoder_layerdrop: float | int = 0.0
    label_smoothing: float | int = 0.0
    classifier_pooling: str = "mean"
    classifier_dropout: float | int | None = None
    is_encoder_decoder: bool = True
    use_cache: bool = True
    pad_token_id: int | None = 1
    bos_token_id: int | None = 0
    eos_token_id: int | list | None = 2  # type: ignore[type-arg]  # isinstance takes none
    decoder_start_token_id: int | None = 0
    forced_eos_token_id: int | list | None = None  # type: ignore[type-arg]  # isinstance takes none

    def __post_init__(self, **kwargs: Any) -> None:
        """Take other names of fields, then fill in dependent defaults and check every field."""
        for name in self.attribute_map.keys() & kwargs.keys():
            setattr(self, name, kwargs.pop(name))
        self.check()
        self._refuse_misspelt(kwargs)
        self.auto_map = {**_AUTO_MAP, **kwargs.pop("auto_map", {})}
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]  # it has no types
        self._choose_bare_model()

    def _choose_bare_model(self) -> None:
        """Has AutoModel load a saved encoder, also one under a classifier, as the bare encoder.

        It takes the first class that it knows of `architectures`, which must be a list for that, or
        the one in `auto_map` where the code comes from the directory.
        """
        names = self.architectures or []
        alone = any(name in _ON_THE_ENCODER for name in names) and not self.is_encoder_decoder
        extra = [_ENCODER_MODEL] if alone and _ENCODER_MODEL not in names else []
        self.__dict__["architectures"] = [*names, *extra]
        if self.auto_map["AutoModel"] in (_AUTO_MAP["AutoModel"], _AUTO_MAP[_ENCODER_AUTO]):
            self.auto_map["AutoModel"] = _AUTO_MAP[_ENCODER_AUTO if alone else "AutoModel"]

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> "VanillaTransformerConfig":
        """Makes the config of a published system.

        Args:
            name: "vaswani-base" or "vaswani-big" (the paper's table 3), "iwslt" (fairseq's
                transformer_iwslt_de_en), "system-a" to "system-e" (five tutorials' systems; a size
                that one leaves open is the paper's), or "modern" (pre-norm, RMSNorm, SwiGLU, RoPE,
                grouped queries, no biases).
            **changes: Fields that differ from the preset.

        Returns:
            The config.

        Raises:
            ValueError: If no preset has that name, and as the constructor.
        """
        if name not in _PRESETS:
            raise ValueError(f"There is no preset `name` {name!r}: choose one of {list(_PRESETS)}.")
        return cls(**{**_PRESETS[name], **changes})

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets a field; a shared embedding matrix has one size, so both vocabularies change."""
        super().__setattr__(name, value)  # type: ignore[no-untyped-call]  # it has no types
        if name == "vocab_size" and self.share_encoder_decoder_embeddings:
            self.decoder_vocab_size = value
        elif name == "architectures" and hasattr(self, "auto_map"):
            self._choose_bare_model()

    def __eq__(self, other: object) -> bool:
        """Compares what is there: the base class would read fields that this config lacks."""
        return isinstance(other, PreTrainedConfig) and self.__dict__ == other.__dict__

    @property
    def custom_pipelines(self) -> CustomPipelines:
        """Pipelines of the architecture that was saved, and others that were set.

        Each reading gives a copy: `pipeline` puts classes into what it reads, which no file can
        hold.
        """
        found: dict[str, Any] = {}
        for architecture in self.architectures or []:
            found |= _PIPELINES.get(architecture, {})
        return CustomPipelines(
            copy.deepcopy({**found, **self.__dict__.get("custom_pipelines", {})})
        )

    @custom_pipelines.setter
    def custom_pipelines(self, pipelines: dict[str, Any]) -> None:
        own = {task for tasks in _PIPELINES.values() for task in tasks}
        others = {task: value for task, value in pipelines.items() if task not in own}
        self.__dict__.pop("custom_pipelines", None)
        if others:
            self.__dict__["custom_pipelines"] = others

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], push_to_hub: bool = False, **kwargs: Any
    ) -> None:
        """Writes the config, and the code of all classes that it names.

        Args:
            save_directory: A directory; it is made if it does not exist.
            push_to_hub: Whether to push it too.
            **kwargs: See `PreTrainedConfig.save_pretrained`.
        """
        super().save_pretrained(save_directory, push_to_hub, **kwargs)
        if self._auto_class is not None:
            for file in _code_files():
                shutil.copyfile(file, Path(save_directory) / file.name)

    def to_dict(self) -> dict[str, Any]:
        """Gives names and values of all fields, as they are written to a file.

        Returns:
            The fields; `custom_pipelines` only where there are some.
        """
        fields: dict[str, Any] = super().to_dict()
        fields.pop("custom_pipelines", None)
        if self.custom_pipelines:
            fields["custom_pipelines"] = dict(self.custom_pipelines)
        return fields

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> "VanillaTransformerConfig":
        """Makes a config from the content of a config file.

        Args:
            config_dict: Names and values of the fields.
            **kwargs: Fields to override; `return_unused_kwargs` to get back what is no field.

        Returns:
            The config; a pair of it and the unused arguments where these are asked for.

        Raises:
            ValueError: As the constructor, and if the file describes another kind of model.
        """
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
        """Gives the config as one stack sees it, which is how transformers sizes a cache.

        Args:
            decoder: Whether to name the decoder's sizes `num_hidden_layers` and so on.
            encoder: The same for the encoder's.

        Returns:
            A copy for one stack, without `rope_parameters`, which are read from the whole config
            alone; this config for both or neither.
        """
        config: PreTrainedConfig = super().get_text_config(decoder, encoder)
        if config is not self:
            config.__dict__.pop("rope_parameters", None)
        return config

    def check(self) -> None:
        """Fills in the dependent defaults and checks every field; so does a model when it is built.

        Fields can change after the config was made: `from_pretrained(directory, field=value)` sets
        them one by one.

        Raises:
            ValueError: As the constructor.
        """
        self._check_types()
        self._fill_in()
        self._check_values()
        self._check_sizes_fit()
        self._check_rope()
        self._check_token_ids()

    def _fill_in(self) -> None:
        if self.decoder_vocab_size is None:
            self.decoder_vocab_size = self.vocab_size
        if self.share_encoder_decoder_embeddings is None:
            self.share_encoder_decoder_embeddings = self.vocab_size == self.decoder_vocab_size
        if self.final_layer_norm is None:
            self.final_layer_norm = self.norm_placement == "pre"
        given = getattr(self, "rope_parameters", None)
        if self.position_embedding_type == "rope":
            self._fill_in_rope(given or {})
        elif not given and "rope_parameters" in self.__dict__:
            del self.rope_parameters  # its presence tells transformers that a model rotates

    def _fill_in_rope(self, given: dict[str, Any]) -> None:
        parameters = {"rope_type": "default", "rope_theta": 10000.0, **given}
        if parameters["rope_type"] in _ROPE_WITH_TRAINED_LENGTH:
            parameters.setdefault("original_max_position_embeddings", self.max_position_embeddings)
        self.rope_parameters = parameters

    def _check_types(self) -> None:
        for name, kind in _own_fields().items():
            value = getattr(self, name, None)
            is_number_of_kind_bool = isinstance(value, bool) and kind not in (bool, bool | None)
            if is_number_of_kind_bool or not isinstance(value, kind):
                expected = getattr(kind, "__name__", str(kind))
                raise ValueError(f"`{name}` must be of type {expected}, got {value!r}.")

    def _check_values(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"`{name}` must be one of {choices}, got {getattr(self, name)!r}.")
        for name in _SIZES:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}.")
        for name in _PROBABILITIES:
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"`{name}` must lie in [0, 1), got {value}.")
        for name in _POSITIVE:
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"`{name}` must be above 0 and finite, got {getattr(self, name)}.")
        if self.norm_type == "unbiased_std" and self.d_model < 2:
            raise ValueError(
                f"`d_model` ({self.d_model}) must be at least 2 for `norm_type='unbiased_std'`: "
                "one number has no sample standard deviation."
            )
        if self.activation_function not in ACT2FN:
            raise ValueError(
                f"`activation_function` {self.activation_function!r} is unknown; "
                f"choose one of {sorted(ACT2FN)}."
            )

    def _check_sizes_fit(self) -> None:
        for stack in ("encoder", "decoder"):
            name, shared_name = f"{stack}_attention_heads", f"{stack}_num_key_value_heads"
            self._check_divides("d_model", name)
            if getattr(self, shared_name) is not None:
                self._check_divides(name, shared_name)
        if self.share_encoder_decoder_embeddings and self.vocab_size != self.decoder_vocab_size:
            raise ValueError(
                f"`vocab_size` ({self.vocab_size}) and `decoder_vocab_size` "
                f"({self.decoder_vocab_size}) differ: make them equal or set "
                "`share_encoder_decoder_embeddings=False`."
            )

    def _check_rope(self) -> None:
        parameters = getattr(self, "rope_parameters", None)
        positions = self.position_embedding_type
        if positions != "rope":
            if parameters:
                raise ValueError(
                    f"`rope_parameters` {parameters!r} would have no effect with "
                    f"`position_embedding_type` {positions!r}: set that to 'rope', or this to None."
                )
            return
        problem = _rope_problem(parameters or {})
        if problem:
            raise ValueError(f"`rope_parameters` {parameters!r} {problem}.")
        for stack in ("encoder", "decoder"):
            self._check_rope_fits(f"{stack}_attention_heads")

    def _check_rope_fits(self, heads: str) -> None:
        parameters: dict[str, Any] = self.rope_parameters or {}
        head_dim = self.d_model // getattr(self, heads)
        rotated = int(head_dim * parameters.get("partial_rotary_factor", 1.0))
        least = 4 if parameters["rope_type"] == "dynamic" else 2
        if rotated % 2 or rotated < least:
            raise ValueError(
                f"`position_embedding_type` 'rope' turns pairs, but would turn {rotated} of the "
                f"{head_dim} dimensions of a head, which must be an even number from {least}: "
                f"change `d_model` ({self.d_model}), `{heads}` ({getattr(self, heads)}) or "
                "`partial_rotary_factor`."
            )
        for name in ("short_factor", "long_factor"):
            count = len(parameters.get(name, ())) if name in parameters else rotated // 2
            if count != rotated // 2:
                raise ValueError(
                    f"`rope_parameters` has {count} numbers in `{name}`, but must have "
                    f"{rotated // 2}: one for each pair of dimensions of a head, with `d_model` "
                    f"({self.d_model}) and `{heads}` ({getattr(self, heads)})."
                )

    def _check_divides(self, whole: str, part: str) -> None:
        if getattr(self, whole) % getattr(self, part):
            raise ValueError(
                f"`{whole}` ({getattr(self, whole)}) must be divisible by `{part}` "
                f"({getattr(self, part)}): change one of them."
            )

    def _check_token_ids(self) -> None:
        target_size = self.decoder_vocab_size or self.vocab_size
        sizes = dict.fromkeys(_TARGET_TOKENS, target_size)
        sizes["pad_token_id"] = min(self.vocab_size, target_size)
        for name, size in sizes.items():
            value = getattr(self, name)
            for token in value if isinstance(value, list) else [value]:
                if token is not None and token not in range(size):
                    raise ValueError(
                        f"`{name}` must lie within its vocabularies (0 to {size - 1}), got "
                        f"{value!r}: change it, `vocab_size` or `decoder_vocab_size`."
                    )

    def _refuse_misspelt(self, kwargs: dict[str, Any]) -> None:
        """A saved config only gets a warning: any attribute may have been set on it."""
        known = [*_own_fields(), *VanillaTransformerConfig.attribute_map]
        for name in kwargs.keys() - _TOKENIZER_FIELDS:
            if name in ("rope_theta", "rope_scaling"):
                raise ValueError(f"`{name}` must be given in `rope_parameters`, got it outside.")
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
            if not close:
                continue
            message = f"Unknown field `{name}`: did you mean `{close[0]}`? It would have no effect."
            if self.transformers_version is None:
                raise ValueError(message)
            logger.warning(message)


def _rope_problem(parameters: dict[str, Any]) -> str | None:
    """Says what is wrong with parameters of RoPE, taken by themselves."""
    kind = parameters["rope_type"]
    if not isinstance(kind, str) or kind not in _ROPE_NEEDS:
        return f"has an unknown `rope_type`: choose one of {sorted(_ROPE_NEEDS)}"
    known = {"rope_type", "rope_theta", "partial_rotary_factor", *_ROPE_NEEDS[kind]}
    known |= {*_ROPE_TAKES.get(kind, ())}
    known |= {"original_max_position_embeddings"} if kind in _ROPE_WITH_TRAINED_LENGTH else set()
    if unknown := [name for name in parameters if name not in known]:
        return f"has keys that {kind!r} does not know, {unknown}: choose among {sorted(known)}"
    if missing := set(_ROPE_NEEDS[kind]) - parameters.keys():
        return f"must have {sorted(missing)} for `rope_type` {kind!r}"
    return _rope_value_problem(parameters)


def _rope_value_problem(parameters: dict[str, Any]) -> str | None:
    """Says which value of RoPE's parameters is of a wrong type or out of its range."""
    for name, value in parameters.items():
        if name in _ROPE_ABOVE and not _is_above(_ROPE_ABOVE[name], value):
            return f"must have a finite number above {_ROPE_ABOVE[name]} for `{name}`"
        if name in _ROPE_LISTS and not (
            isinstance(value, list) and all(_is_above(0, number) for number in value)
        ):
            return f"must have a list of finite numbers above 0 for `{name}`"
    if parameters.get("factor", 1) < 1:
        return "must have a number from 1 for `factor`"
    if parameters.get("partial_rotary_factor", 1) > 1:
        return "must have a number up to 1 for `partial_rotary_factor`"
    if not isinstance(parameters.get("truncate", True), bool):
        return "must have True or False for `truncate`"
    for low, high, least, most in (
        ("low_freq_factor", "high_freq_factor", 1, 2),
        ("beta_slow", "beta_fast", 1, 32),
    ):
        if not parameters.get(low, least) < parameters.get(high, most):
            return f"must have a smaller number for `{low}` than for `{high}` ({most} if left out)"
    return None


def _is_above(bound: float, value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and bound < value < math.inf


def _code_files() -> list[Path]:
    """Lists the files of the models' code; there are none where the config alone was loaded."""
    modeling = Path(__file__).parent / "modeling_vanilla_transformer.py"
    if not modeling.is_file():
        return []
    return [modeling, *map(Path, get_relative_import_files(modeling))]


def _own_fields() -> dict[str, Any]:
    """Returns name and type of each field that this class declares itself."""
    return dict(VanillaTransformerConfig.__annotations__)
