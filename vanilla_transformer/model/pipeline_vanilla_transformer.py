"""The pipeline "seq2seq-generation": generates texts from texts.

A copy of this file is saved beside every model. `pipeline(model=directory, trust_remote_code=True)`
therefore works where this package is not installed.
"""

from collections.abc import Collection, Iterable
from io import TextIOBase
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import Pipeline, PreTrainedModel
from transformers.utils import logging

from .directions import Direction, begun_by, in_language, tags_of_sources
from .modes import evaluation_mode
from .tokenization_vanilla_transformer import WHITE_SPACE

logger = logging.get_logger(__name__)

_NAMING_TARGETS = ("generation_config", "forced_bos_token_id")  # options of `generate()`
NO_LIMIT = 10**9
"""Tokenizers without a length limit have a `model_max_length` of at least this."""


@torch.no_grad()
def sequence_scores(
    model: PreTrainedModel,
    inputs: dict[str, torch.Tensor],
    sequences: torch.Tensor,
    *,
    eos_token_id: int | list[int] | None,
    length_penalty: float = 1.0,
    pad_token_id: int | None = None,
    prompt_length: int = 1,
    forced: Collection[int] = (),
) -> torch.Tensor:
    """Scores generated sequences with one forward pass, for any search method.

    The score of a sequence of T tokens is log p(sequence | source) / T^length_penalty, by which
    beam search ranks (Wu et al. 2016, section 7, without the coverage term). The probabilities are
    those of the model, before any temperature or penalty. Only what the search chose counts: not a
    prompt, and a token that the settings force has the probability 1.

    Args:
        model: A sequence-to-sequence model in eval mode.
        inputs: `input_ids` and `attention_mask` of the sources, of shape (batch, source_len).
        sequences: The output of `generate`, which begins with the start token, of shape
            (batch · sequences per source, target_len).
        eos_token_id: One or more tokens that end a sequence. Tokens after the end are padding.
        length_penalty: Exponent of the length: 1 gives the mean per token, 0 the sum.
        pad_token_id: Padding, which also follows a row that `stop_strings` has ended.
        prompt_length: Tokens that `generate` began with, the start included.
        forced: Positions in the sequences whose tokens the settings forced.

    Returns:
        Scores in nats, of shape (batch · sequences per source).
    """
    per_source = len(sequences) // len(inputs["input_ids"])
    repeated = {name: tensor.repeat_interleave(per_source, 0) for name, tensor in inputs.items()}
    targets = sequences[:, 1:]
    logits = model(**repeated, decoder_input_ids=sequences[:, :-1]).logits
    losses = F.cross_entropy(logits.transpose(1, 2).float(), targets, reduction="none")
    losses[:, [position - 1 for position in forced if position < sequences.shape[1]]] = 0
    losses, targets = losses[:, prompt_length - 1 :], targets[:, prompt_length - 1 :]
    ends = torch.zeros_like(targets)
    for end in [eos_token_id] if isinstance(eos_token_id, int) else eos_token_id or []:
        ends |= (targets == end).long()
    counts = ends.cumsum(1) - ends == 0
    if pad_token_id is not None:
        follows = (targets == pad_token_id).flip(1).cumprod(1).flip(1) == 1
        counts &= ~follows | (ends == 1)  # the end may be the same token
    return -(losses * counts).sum(1) / counts.sum(1).clamp(min=1) ** length_penalty


def _prompt_length(prompt: torch.Tensor | None, sequences: torch.Tensor) -> int:
    """Returns the tokens before the generated ones; `generate()` puts a missing start before."""
    if prompt is None:
        return 1
    return prompt.shape[1] + int(prompt[0, 0] != sequences[0, 0])


def _forced_positions(search: dict[str, Any], prompt_length: int) -> set[int]:
    """Returns the positions, in sequences of `generate()`, of tokens that settings force."""
    positions = set()
    if search.get("forced_bos_token_id") is not None and prompt_length == 1:
        positions.add(1)
    if search.get("forced_eos_token_id") is not None:
        longest = search.get("max_new_tokens")
        total = search["max_length"] if longest is None else prompt_length + longest
        positions.add(total - 1)
    return positions


class Seq2SeqGenerationPipeline(Pipeline):
    """Generates texts from texts with a sequence-to-sequence model.

    The input decides what a call returns:

    - One text: a list of `num_return_sequences` outputs (1 by default). Each output is a dictionary
      with `generated_text`, and with `score` if `return_scores=True`, best first.
    - A list or tuple of texts: a list of such lists.
    - Another iterable of texts, such as a generator, an open file or a column of a dataset: an
      iterator over such lists, which reads `batch_size` texts at a time.

    Texts longer than the tokenizer's `model_max_length` are truncated. White space around a text
    comes back around its outputs; a blank text gives itself, with the score 0. A warning tells of
    characters that the vocabulary does not know.

    These options can be set at construction or in a call: `batch_size`; `return_scores` (see
    `sequence_scores`); `return_tensors`, which returns `generated_token_ids` instead of texts;
    `truncation`; `skip_special_tokens` (True by default); `clean_up_tokenization_spaces`;
    `src_lang` and `tgt_lang`, languages as the model spells them; and all options of `generate()`.

    Args:
        **kwargs: See `transformers.Pipeline`; also the options above.
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
        """Generates texts.

        Args:
            inputs: A text, a list or tuple of texts, or another iterable of texts.
            **kwargs: `num_workers`, and options that override those of the pipeline.
        """
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
        return_scores: bool | None = None,
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
        languages = {"src_lang": src_lang, "tgt_lang": tgt_lang}
        settings = {name: generate_kwargs.get(name) for name in _NAMING_TARGETS}
        options: tuple[dict[str, Any], ...] = (
            {"truncation": truncation, **languages, **settings},
            {"return_scores": return_scores, **languages},
            {
                "return_tensors": return_tensors,
                "skip_special_tokens": skip_special_tokens,
                "clean_up_tokenization_spaces": clean_up_tokenization_spaces,
            },
        )
        before, run, after = (
            {name: value for name, value in part.items() if value is not None} for part in options
        )
        return before, {**run, **generate_kwargs}, after

    def preprocess(  # type: ignore[override]  # every pipeline names its own parameters
        self, input_: Any, truncation: bool | None = None, **languages: Any
    ) -> dict[str, Any]:
        """Encodes a text with the source vocabulary.

        Args:
            truncation: Whether to truncate the text to the tokenizer's limit. None: True if the
                tokenizer has a limit.
            **languages: See `_direction`.

        Returns:
            The output of the tokenizer, of shape (1, source_len), and `text`.
        """
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
        """Decides how the model is asked for its language; see `Direction.resolve`.

        Args:
            generation_config: Settings that may name the target. None: those of the model.
            forced_bos_token_id: The token of the target's language, in place of its name.
        """
        settings = generation_config or self.model.generation_config
        if forced_bos_token_id is not None:
            settings = begun_by(settings, (("forced_bos_token_id", forced_bos_token_id),))
        return Direction.resolve(self.tokenizer, settings, src_lang, tgt_lang)

    def _forward(  # type: ignore[override]  # as preprocess
        self,
        input_tensors: dict[str, Any],
        return_scores: bool = False,
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
            outputs = {"text": input_tensors["text"], "sequences": sequences.unflatten(0, shape)}
            if return_scores:
                penalty = search.get("length_penalty")
                prompt_length = _prompt_length(options.get("decoder_input_ids"), sequences)
                scores = sequence_scores(
                    self.model,
                    inputs,
                    sequences,
                    eos_token_id=search.get("eos_token_id"),
                    length_penalty=1.0 if penalty is None else penalty,
                    pad_token_id=search.get("pad_token_id"),
                    prompt_length=prompt_length,
                    forced=_forced_positions(search, prompt_length),
                )
                outputs["scores"] = scores.unflatten(0, shape)
        return outputs

    def postprocess(  # type: ignore[override]  # as preprocess
        self,
        model_outputs: dict[str, Any],
        return_tensors: bool = False,
        skip_special_tokens: bool = True,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> list[dict[str, Any]]:
        """Decodes the sequences of one source with the target vocabulary.

        Args:
            model_outputs: `sequences` of shape (1, sequences per source, target_len), `text`, and
                optionally `scores` of shape (1, sequences per source).
            return_tensors: Whether to return lists of ids instead of texts.
        """
        sequences = model_outputs["sequences"][0].tolist()
        scores = model_outputs["scores"][0].tolist() if "scores" in model_outputs else []
        source = model_outputs["text"]
        begin = source[: len(source) - len(source.lstrip(WHITE_SPACE))]
        end = source[len(begin) :][len(source.strip(WHITE_SPACE)) :]
        if begin == source:
            sequences, scores = [[] for _ in sequences], [0.0 for _ in scores]
        outputs: list[dict[str, Any]]
        if return_tensors:
            outputs = [{"generated_token_ids": ids} for ids in sequences]
        else:
            texts = self.tokenizer.batch_decode(
                sequences,
                skip_special_tokens=skip_special_tokens,
                clean_up_tokenization_spaces=clean_up_tokenization_spaces,
            )
            outputs = [{"generated_text": f"{begin}{text}{end}"} for text in texts]
        for output, score in zip(outputs, scores, strict=bool(scores)):
            output["score"] = score
        if scores:
            outputs.sort(key=lambda output: -output["score"])
        return outputs
