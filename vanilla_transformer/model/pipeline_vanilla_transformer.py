"""The pipeline "seq2seq-generation": generates texts from texts.

A copy of this file is saved beside every model. `pipeline(model=directory, trust_remote_code=True)`
therefore works where this package is not installed.
"""

from collections.abc import Iterable
from io import TextIOBase
from typing import Any, cast

import torch
from torch.utils.data import Dataset
from transformers import Pipeline
from transformers.utils import logging

from .directions import Direction, in_language, tags_of_sources, with_first_token
from .evaluation import evaluation_mode
from .tokenization_vanilla_transformer import WHITE_SPACE

logger = logging.get_logger(__name__)

_NAMING_TARGETS = ("generation_config", "forced_bos_token_id")  # options of `generate()`
NO_LIMIT = 10**9
"""Tokenizers without a length limit have a `model_max_length` of at least this."""


class Seq2SeqGenerationPipeline(Pipeline):
    """Generates texts from texts with a sequence-to-sequence model.

    The input decides what a call returns:

    - One text: a list of `num_return_sequences` outputs (1 by default). Each output is a dictionary
      with `generated_text`, best first.
    - A list or tuple of texts: a list of such lists.
    - Another iterable of texts, such as a generator, an open file or a column of a dataset: an
      iterator over such lists, which reads `batch_size` texts at a time.

    Texts longer than the tokenizer's `model_max_length` are truncated. White space around a text
    comes back around its outputs; a blank text gives itself. A warning tells of characters that
    the vocabulary does not know. `Translator` also returns scores.

    These options can be set at construction or in a call: `batch_size`; `return_tensors`, which
    returns `generated_token_ids` instead of texts; `truncation`; `skip_special_tokens` (True by
    default); `clean_up_tokenization_spaces`; `src_lang` and `tgt_lang`, languages as the model
    spells them; and all options of `generate()`.

    """

    model: Any
    tokenizer: Any
    _load_tokenizer: Any = True
    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_video_processor: Any = False
    _load_feature_extractor: Any = False
    _pipeline_calls_generate = True

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Generates texts; the options override those of the pipeline."""
        if isinstance(inputs, list | tuple):
            if not inputs:
                return []
            inputs = list(inputs)
        elif isinstance(inputs, TextIOBase):
            inputs = (line.rstrip("\r\n") for line in inputs)
        elif isinstance(inputs, Iterable) and not isinstance(inputs, str | bytes | dict | Dataset):
            inputs = (text for text in inputs)  # the base class streams generators and data sets
        return super().__call__(inputs, *args, **kwargs)  # type: ignore[no-untyped-call]  # untyped base class

    def _sanitize_parameters(
        self,
        truncation: bool | None = None,
        return_tensors: bool | None = None,
        skip_special_tokens: bool | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        **generate_kwargs: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        for name in ("assistant_model", "assistant_tokenizer"):
            if getattr(self, name, None) is not None:
                generate_kwargs[name] = getattr(self, name)
        languages = _without_none(src_lang=src_lang, tgt_lang=tgt_lang)
        settings = {name: generate_kwargs.get(name) for name in _NAMING_TARGETS}
        before = _without_none(truncation=truncation, **settings)
        after = _without_none(
            return_tensors=return_tensors,
            skip_special_tokens=skip_special_tokens,
            clean_up_tokenization_spaces=clean_up_tokenization_spaces,
        )
        return {**before, **languages}, {**languages, **generate_kwargs}, after

    def preprocess(  # type: ignore[override]  # every pipeline names its own parameters
        self, input_: Any, truncation: bool | None = None, **languages: Any
    ) -> dict[str, Any]:
        """Encodes a text with the source vocabulary, truncated if the tokenizer has a limit."""
        if truncation is None:
            truncation = self.tokenizer.model_max_length < NO_LIMIT
        direction = self._direction(**languages)
        text = input_.strip(WHITE_SPACE) if isinstance(input_, str) else input_
        if isinstance(text, str) and text:
            text = direction.for_text(text, tags_of_sources(self.tokenizer)).read(text)
        tokenizer = in_language(self.tokenizer, direction.source)
        encoded = tokenizer(text, return_tensors="pt", truncation=truncation)
        if self.tokenizer.unk_token_id in encoded["input_ids"][0].tolist():
            logger.warning_once(
                "The vocabulary does not know some characters of the texts: the model does not see "
                "which. `unknown_share` of `Translator` tells the share of each text."
            )
        return {**encoded, "text": input_}

    def _direction(
        self,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        generation_config: Any = None,
        forced_bos_token_id: int | None = None,
    ) -> Direction:
        """Decides how the model is asked for its language; see `Direction.resolve`."""
        settings = generation_config or self.model.generation_config
        if forced_bos_token_id is not None:
            settings = with_first_token(settings, (("forced_bos_token_id", forced_bos_token_id),))
        return Direction.resolve(self.tokenizer, settings, src_lang, tgt_lang)

    def _forward(  # type: ignore[override]  # as preprocess
        self,
        input_tensors: dict[str, Any],
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        **generate_kwargs: Any,
    ) -> dict[str, Any]:
        """Generates the sequences of a batch; its texts have one direction."""
        inputs = {name: value for name, value in input_tensors.items() if name != "text"}
        settings = {name: generate_kwargs.get(name) for name in _NAMING_TARGETS}
        generate_kwargs |= self._direction(src_lang, tgt_lang, **settings).begin
        options = self._prepare_generate_kwargs(generate_kwargs)
        search = self._get_set_generation_params(options)
        if search.get("stop_strings") is not None:
            target: Any = getattr(self.tokenizer, "target_tokenizer", lambda: self.tokenizer)
            options = {"tokenizer": target(), **options}
        with evaluation_mode(self.model):
            output = self.model.generate(**inputs, **options)
        sequences = cast(torch.Tensor, getattr(output, "sequences", output))
        shape = (len(inputs["input_ids"]), -1)  # (batch, sequences per source)
        return {"text": input_tensors["text"], "sequences": sequences.unflatten(0, shape)}

    def postprocess(  # type: ignore[override]  # as preprocess
        self,
        model_outputs: dict[str, Any],
        return_tensors: bool = False,
        skip_special_tokens: bool = True,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> list[dict[str, Any]]:
        """Decodes the sequences of one source with the target vocabulary."""
        # (1, sequences per source, target_len)
        sequences = model_outputs["sequences"][0].tolist()
        source = model_outputs["text"]
        begin = source[: len(source) - len(source.lstrip(WHITE_SPACE))]
        end = source[len(begin) :][len(source.strip(WHITE_SPACE)) :]
        if begin == source:
            sequences = [[] for _ in sequences]
        if return_tensors:
            return [{"generated_token_ids": ids} for ids in sequences]
        texts = self.tokenizer.batch_decode(
            sequences,
            skip_special_tokens=skip_special_tokens,
            clean_up_tokenization_spaces=clean_up_tokenization_spaces,
        )
        return [{"generated_text": f"{begin}{text}{end}"} for text in texts]


def _without_none(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
