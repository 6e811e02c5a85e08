"""`pipeline("seq2seq-generation", model=...)`: texts in, generated texts out.

The module is flat: it is copied beside every saved model, so that
`pipeline(model=directory, trust_remote_code=True)` works where this package is not installed.
"""

from collections.abc import Iterable
from io import TextIOBase
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import Pipeline

from .evaluation_mode import evaluation_mode
from .sharing import push_card

NO_LIMIT = 10**9
"""A tokenizer without a limit has a larger `model_max_length`."""


@torch.no_grad()
def sequence_scores(
    model: Any,
    inputs: dict[str, torch.Tensor],
    sequences: torch.Tensor,
    *,
    eos_token_id: int | list[int] | None,
    length_penalty: float = 1.0,
) -> torch.Tensor:
    """Scores generated sequences by one pass of the model, however they were found.

    The score of a sequence of T tokens is log p(sequence | source) / T^length_penalty, the score
    that beam search ranks by (Wu et al. 2016, section 7, without its coverage term). The
    probabilities are the model's own, before any temperature or penalty.

    Args:
        model: A sequence-to-sequence model in eval mode.
        inputs: `input_ids` and `attention_mask` of the sources, (batch, source_len).
        sequences: What `generate` returned, (batch · sequences per source, target_len), with the
            start token in front.
        eos_token_id: The tokens that end a sequence; what follows one is padding.
        length_penalty: Exponent of the length: 1 for the mean per token, 0 for the sum.

    Returns:
        Scores in nats, (batch · sequences per source).
    """
    per_source = len(sequences) // len(inputs["input_ids"])
    repeated = {name: tensor.repeat_interleave(per_source, 0) for name, tensor in inputs.items()}
    targets = sequences[:, 1:]
    logits = model(**repeated, decoder_input_ids=sequences[:, :-1]).logits
    losses = F.cross_entropy(logits.transpose(1, 2).float(), targets, reduction="none")
    ends = torch.zeros_like(targets)
    for end in [eos_token_id] if isinstance(eos_token_id, int) else eos_token_id or []:
        ends |= (targets == end).long()
    counts = ends.cumsum(1) - ends == 0
    return -(losses * counts).sum(1) / counts.sum(1).clamp(min=1) ** length_penalty


class Seq2SeqGenerationPipeline(Pipeline):
    """Generates texts for texts with a sequence-to-sequence model.

    `pipe("a text")` gives a list of outputs, as many as `num_return_sequences` (1 by default): each
    a dictionary with `generated_text`, and `score` where it is asked for. `pipe([...])` gives a
    list of such lists. Any other iterable (a generator, an open file, a column of a dataset) gives
    an iterator that reads `batch_size` texts at a time. Texts longer than the tokenizer's
    `model_max_length` are cut; a blank text gives empty texts, with the score 0.

    Options, when the pipeline is made or in a call: `batch_size`; `return_scores` (see
    `sequence_scores`); `return_tensors` for `generated_token_ids` instead of texts; `truncation`;
    `skip_special_tokens` (True by default); `clean_up_tokenization_spaces`; and whatever
    `generate()` takes.

    Args:
        *args: See `transformers.Pipeline`.
        **kwargs: The same, and the options.

    Raises:
        ValueError: If the model cannot generate from a source, or there is no tokenizer.
    """

    model: Any
    tokenizer: Any
    _load_tokenizer: Any = True
    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_video_processor: Any = False
    _load_feature_extractor: Any = False
    _pipeline_calls_generate = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        model = args[0] if args else kwargs["model"]
        if not (model.can_generate() and model.config.is_encoder_decoder):
            raise ValueError(
                f"`model` is a {type(model).__name__}, which does not generate a text for a text: "
                "load the directory with AutoModelForSeq2SeqLM."
            )
        if kwargs.get("tokenizer") is None and len(args) < 2:
            raise ValueError("`tokenizer` is missing: pass it, or the directory as `model`.")
        super().__init__(*args, **kwargs)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Generates.

        Args:
            inputs: A text, a list or tuple of texts, or another iterable of texts.
            *args: Not used; see `transformers.Pipeline`.
            **kwargs: Options, over those of the pipeline; `num_workers`.

        Returns:
            As the class says: a list, a list of lists, or an iterator over lists.

        Raises:
            ValueError: If something in `inputs` is no text, or `generate()` refuses an option.
        """
        if isinstance(inputs, list | tuple):
            if not inputs:
                return []
            for index, text in enumerate(inputs):
                _check_text(text, f"inputs[{index}]")
            inputs = list(inputs)
        elif isinstance(inputs, bytes | dict) or not isinstance(inputs, str | Iterable | Dataset):
            _check_text(inputs, "inputs")
        elif isinstance(inputs, TextIOBase):
            inputs = (line.rstrip("\r\n") for line in inputs)
        elif not isinstance(inputs, str | Dataset):
            inputs = (text for text in inputs)
        return super().__call__(inputs, *args, **kwargs)  # type: ignore[no-untyped-call]  # it has no types

    def push_to_hub(self, repo_id: str, **kwargs: Any) -> Any:
        """Pushes model, tokenizer and code, and the card of the directory they were loaded from.

        Args:
            repo_id: Name of the repository; it is made if it does not exist.
            **kwargs: See `Pipeline.push_to_hub`.

        Returns:
            What the Hub says of the commit of the weights.
        """
        pushed = super().push_to_hub(repo_id, **kwargs)
        options = {name: kwargs.get(name) for name in ("token", "revision")}
        push_card(self.model.name_or_path, pushed, **options)
        return pushed

    def _sanitize_parameters(
        self,
        truncation: bool | None = None,
        return_scores: bool | None = None,
        return_tensors: bool | None = None,
        skip_special_tokens: bool | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        **generate_kwargs: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        for name in ("assistant_model", "assistant_tokenizer"):
            if getattr(self, name, None) is not None:
                generate_kwargs[name] = getattr(self, name)
        options: tuple[dict[str, Any], ...] = (
            {"truncation": truncation},
            {"return_scores": return_scores},
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
        self, input_: Any, truncation: bool | None = None
    ) -> dict[str, Any]:
        """Encodes a text with the source vocabulary.

        Args:
            input_: The text.
            truncation: Whether it is cut to the tokenizer's limit. None: if there is a limit.

        Returns:
            What the tokenizer gives, of shape (1, source_len), and `blank`, (1).

        Raises:
            ValueError: If it is no text.
        """
        _check_text(input_, "An input")
        if truncation is None:
            truncation = self.tokenizer.model_max_length < NO_LIMIT
        encoded = self.tokenizer(input_, return_tensors="pt", truncation=truncation)
        return {**encoded, "blank": torch.tensor([not input_.strip()])}

    def _forward(  # type: ignore[override]  # as preprocess
        self, input_tensors: dict[str, Any], return_scores: bool = False, **generate_kwargs: Any
    ) -> dict[str, Any]:
        blank = input_tensors.pop("blank")
        options = self._prepare_generate_kwargs(generate_kwargs)
        with evaluation_mode(self.model):
            sequences = self._generate(input_tensors, options)
            shape = (len(blank), len(sequences) // len(blank))
            outputs = {"blank": blank, "sequences": sequences.unflatten(0, shape)}
            if return_scores:
                search = self._get_set_generation_params(options)
                scores = sequence_scores(
                    self.model,
                    input_tensors,
                    sequences,
                    eos_token_id=search.get("eos_token_id"),
                    length_penalty=_or_default(search.get("length_penalty"), 1.0),
                )
                outputs["scores"] = scores.unflatten(0, shape)
        return outputs

    def _generate(self, inputs: dict[str, Any], options: dict[str, Any]) -> torch.Tensor:
        """Generates; strings that stop it are looked up among the tokens of the target."""
        if self._get_set_generation_params(options).get("stop_strings") is not None:
            target_alone = getattr(self.tokenizer, "target_alone", lambda: self.tokenizer)
            options = {"tokenizer": target_alone(), **options}
        output = self.model.generate(**inputs, **options)
        sequences: torch.Tensor = getattr(output, "sequences", output)
        return sequences

    def postprocess(  # type: ignore[override]  # as preprocess
        self,
        model_outputs: dict[str, Any],
        return_tensors: bool = False,
        skip_special_tokens: bool = True,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> list[dict[str, Any]]:
        """Decodes the sequences of one source with the target vocabulary.

        Args:
            model_outputs: `sequences` (1, sequences per source, target_len), `blank` (1) and, where
                asked for, `scores` (1, sequences per source).
            return_tensors: Whether to give ids, as lists, instead of texts.
            skip_special_tokens: Whether special tokens are left out of the texts.
            clean_up_tokenization_spaces: See the tokenizer's `decode`.

        Returns:
            A dictionary per sequence.
        """
        sequences = model_outputs["sequences"][0].tolist()
        scores = model_outputs["scores"][0].tolist() if "scores" in model_outputs else []
        if model_outputs["blank"][0]:
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
            outputs = [{"generated_text": text} for text in texts]
        for output, score in zip(outputs, scores, strict=bool(scores)):
            output["score"] = score
        return outputs


def _or_default(value: float | None, default: float) -> float:
    return default if value is None else value


def _check_text(text: Any, name: str) -> None:
    if isinstance(text, str):
        return
    remedy = "pass a text, or an iterable of texts"
    if isinstance(text, dict):
        remedy = "pass the texts alone, for a dataset one column: pipe(data['source'])"
    elif isinstance(text, bytes):
        remedy = "decode the bytes to a text"
    raise ValueError(f"{name} is {text!r}, which is no text: {remedy}.")
