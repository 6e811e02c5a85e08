"""What training minimises: means over all labels of an optimiser step, however it is divided.

The loss per token comes with or without all logits, and logits can be made when they are read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import nn
from transformers.modeling_outputs import Seq2SeqLMOutput

from .tracing import can_be_read

IGNORE_INDEX = -100
CHUNK_ROWS = 256
ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]


def token_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Cross-entropy per token to predict.

    Args:
        logits: Of shape (batch, target_len, vocab).
        labels: Of shape (batch, target_len), already aligned with the logits; -100 is ignored.
        label_smoothing: Share of the probability spread over the whole vocabulary (§5.4).
        num_items_in_batch: What the sum is divided by: the number of tokens to predict over all
            steps of gradient accumulation. None: the number of them in `labels`.

    Returns:
        A scalar in nats per token; 0 where there is nothing to predict.
    """
    labels = labels.to(logits.device, torch.long)
    total = F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]).to(torch.promote_types(logits.dtype, torch.float32)),
        labels.flatten(),
        ignore_index=IGNORE_INDEX,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    return _per_item(total, (labels != IGNORE_INDEX).sum(), num_items_in_batch)


def next_token_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
    shift_labels: torch.Tensor | None = None,
) -> torch.Tensor:
    """Cross-entropy per token that has one before it; here, and only here, labels are shifted.

    Args:
        logits: Of shape (batch, target_len, vocab).
        labels: The tokens themselves, of shape (batch, target_len); -100 is ignored.
        label_smoothing: As `token_loss`.
        num_items_in_batch: As `token_loss`; the first label of a row does not count.
        shift_labels: Labels that are aligned with the logits already, to be used instead.

    Returns:
        A scalar in nats per token; 0 where there is nothing to predict.
    """
    if shift_labels is not None:
        return token_loss(logits, shift_labels, label_smoothing, num_items_in_batch)
    return token_loss(logits[:, :-1], labels[:, 1:], label_smoothing, num_items_in_batch)


def sequence_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    problem_type: str,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """Loss of sequences that have a class, several yes-or-no labels, or numbers.

    Args:
        logits: Of shape (batch, labels).
        labels: For "single_label_classification" a class each, of shape (batch,), -100 where there
            is none; for "multi_label_classification" 0 or 1 (or -100: not known) and for
            "regression" numbers, of shape (batch, labels).
        problem_type: One of these three.
        label_smoothing: Of "single_label_classification": share of the probability spread over all
            classes (Szegedy et al. 2016, §7).
        num_items_in_batch: What the sum is divided by: the number of labels over all steps of
            gradient accumulation. None: the number of them in `labels`.

    Returns:
        A scalar: cross-entropy per sequence or per label in nats, or the mean squared error.
    """
    if problem_type == "single_label_classification":
        return token_loss(logits, labels, label_smoothing, num_items_in_batch)
    values = labels.to(logits.device, torch.float32).reshape(logits.shape)
    logits = logits.float()
    if problem_type == "regression":
        total = F.mse_loss(logits, values, reduction="sum")
        return _per_item(total, torch.tensor(values.numel()), num_items_in_batch)
    known = values != IGNORE_INDEX
    total = F.binary_cross_entropy_with_logits(
        logits, values.masked_fill(~known, 0.0), weight=known.float(), reduction="sum"
    )
    return _per_item(total, known.sum(), num_items_in_batch)


def _per_item(
    total: torch.Tensor, count: torch.Tensor, num_items_in_batch: torch.Tensor | int | None
) -> torch.Tensor:
    if num_items_in_batch is None:
        num_items_in_batch = count.clamp(min=1)
    if isinstance(num_items_in_batch, torch.Tensor):
        num_items_in_batch = num_items_in_batch.to(total.device)
    return total / num_items_in_batch


def problem_type_of(labels: torch.Tensor, num_labels: int) -> ProblemType:
    """Tells from labels what they are labels of, as transformers does.

    Args:
        labels: As `sequence_loss`.
        num_labels: Number of outputs.

    Returns:
        "regression" for one output, "single_label_classification" for one whole number a row,
        otherwise "multi_label_classification".
    """
    if num_labels == 1:
        return "regression"
    is_whole = not labels.is_floating_point() and labels.dtype != torch.bool
    one_each = labels.numel() == labels.shape[0]
    if is_whole and one_each:
        return "single_label_classification"
    return "multi_label_classification"


def check_labels(labels: torch.Tensor, logits: torch.Tensor, problem_type: str) -> None:
    """Refuses labels that do not fit, where looking costs no device synchronisation.

    Args:
        labels: As `sequence_loss`, or of shape (batch, source_len) for tokens.
        logits: Of shape (..., labels).
        problem_type: As `sequence_loss`; for tokens "single_label_classification".

    Raises:
        ValueError: If their number differs from that of the logits, or if a class on the CPU is
            none of those that the model has.
    """
    classes = logits.shape[-1]
    single = problem_type == "single_label_classification"
    expected = logits.shape[:-1] if single else logits.shape
    if labels.numel() != expected.numel():
        raise ValueError(
            f"`labels` has the shape {tuple(labels.shape)}, but {tuple(expected)} is needed with "
            f"`problem_type` {problem_type!r} and `num_labels` {classes}: change the labels, or "
            "set these two fields of the config."
        )
    if not (single and can_be_read(labels)):
        return
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(
            f"`labels` holds {labels.dtype}, but `problem_type` {problem_type!r} needs whole "
            "numbers, one class each: convert them, or set `problem_type`."
        )
    outside = ((labels < 0) | (labels >= classes)) & (labels != IGNORE_INDEX)
    if outside.any():
        raise ValueError(
            f"`labels` holds the class {int(labels[outside][0])}, but the model has classes 0 to "
            f"{classes - 1}: set `num_labels` in the config, or use {IGNORE_INDEX} for no label."
        )


def projected_token_loss(
    hidden_states: torch.Tensor,
    head: nn.Linear,
    labels: torch.Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """The same as `token_loss` of `head(hidden_states)`, where possible without all the logits.

    A large vocabulary's logits are made, used and dropped for some rows at a time: on a CPU here,
    elsewhere by torch, from 2.13 on. Small problems, half precision on the CPU (where that is
    slow), and heads that are more than their matrix (adapters, hooks, weights split over devices)
    get them all.

    Args:
        hidden_states: Of shape (batch, target_len, d_model).
        head: The projection to the vocabulary.
        labels: Of shape (batch, target_len), already aligned; -100 is ignored.
        label_smoothing: As in `token_loss`.
        num_items_in_batch: As in `token_loss`.

    Returns:
        A scalar in nats per token; 0 where there is nothing to predict.
    """
    labels = labels.to(hidden_states.device, torch.long)
    is_large = labels.numel() > CHUNK_ROWS and head.out_features > head.in_features
    if not (is_large and _can_be_chunked(hidden_states) and _is_its_matrix(head)):
        return token_loss(head(hidden_states), labels, label_smoothing, num_items_in_batch)
    total = _chunked_loss(hidden_states.flatten(0, 1), head, labels.flatten(), label_smoothing)
    return _per_item(total, (labels != IGNORE_INDEX).sum(), num_items_in_batch)


def _can_be_chunked(states: torch.Tensor) -> bool:
    if states.device.type == "cpu":
        return _computed_dtype(states).itemsize >= 4
    return hasattr(F, "linear_cross_entropy")


def _computed_dtype(states: torch.Tensor) -> torch.dtype:
    """The type in which a matrix product of these states is computed, autocast or not."""
    if torch.is_autocast_enabled(states.device.type):
        return torch.get_autocast_dtype(states.device.type)
    return states.dtype


def _is_its_matrix(head: nn.Module) -> bool:
    """Whether a head's call is nothing but the product with its weight."""
    hooks = (head._forward_hooks, head._forward_pre_hooks, head._backward_hooks)
    wrapped = any(hooks) or bool(head._backward_pre_hooks) or "forward" in vars(head)
    return type(head) is nn.Linear and not wrapped and type(head.weight) in _PLAIN_TENSORS


_PLAIN_TENSORS = (torch.Tensor, nn.Parameter)


def _chunked_loss(
    hidden_states: torch.Tensor, head: nn.Linear, labels: torch.Tensor, label_smoothing: float
) -> torch.Tensor:
    """Sums the loss over tokens; hidden states of shape (tokens, d_model), labels (tokens,).

    In half precision the loss comes per token: the sum would be rounded to that type, too.
    """
    device, dtype = hidden_states.device.type, _computed_dtype(hidden_states)
    weight, bias = head.weight.to(dtype), head.bias
    with torch.autocast(device, enabled=False):
        if device == "cpu" and dtype.itemsize >= 4:
            total = _chunked_cross_entropy(hidden_states, weight, bias, labels)
        else:
            total = _torchs_chunked_cross_entropy(hidden_states.to(dtype), weight, bias, labels)
        if label_smoothing:
            total = total + label_smoothing * _smoothing(hidden_states, weight, bias, labels)
    return total


class _ChunkedCrossEntropy(torch.autograd.Function):
    """The sum of the cross-entropies; its gradients are made along with it, chunk by chunk.

    The gradient of a row's loss by its logits is softmax(logits) less 1 at the label. torch's own
    makes the same, and twice as many tensors of the size of the matrix.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
    ) -> torch.Tensor:
        total = hidden_states.new_zeros(())
        by_states, by_weight = torch.empty_like(hidden_states), torch.empty_like(weight)
        by_bias = None if bias is None else torch.zeros_like(bias)
        space = hidden_states.new_empty(CHUNK_ROWS, weight.shape[0])
        chunks = (tensor.split(CHUNK_ROWS) for tensor in (hidden_states, labels, by_states))
        for number, (states, targets, gradient) in enumerate(zip(*chunks, strict=True)):
            logits = torch.mm(states, weight.t(), out=space[: len(states)])
            if bias is not None:
                logits += bias
            loss, errors = _losses_and_errors(logits, targets)
            total += loss
            torch.mm(errors, weight, out=gradient)
            by_weight.addmm_(errors.t(), states, beta=min(number, 1))  # 0 overwrites
            if by_bias is not None:
                by_bias += errors.sum(0)
        ctx.save_for_backward(by_states, by_weight, by_bias)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _refuse_second_order()
        saved = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        return (*(made * gradient if needed else None for made, needed in saved), None)


_chunked_cross_entropy = cast(Callable[..., torch.Tensor], _ChunkedCrossEntropy.apply)


def _losses_and_errors(
    logits: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums the losses of some rows, and turns their logits into the gradient by them, in place."""
    ignored = labels == IGNORE_INDEX
    labels = labels.masked_fill(ignored, 0)[:, None]
    logits -= logits.amax(-1, keepdim=True)
    chosen = logits.gather(1, labels)
    sums = logits.exp_().sum(-1, keepdim=True)
    losses = (sums.log() - chosen).squeeze(1).masked_fill(ignored, 0.0)
    logits /= sums
    logits.scatter_add_(1, labels, logits.new_full(labels.shape, -1.0))
    logits[ignored] = 0.0
    return losses.sum(), logits


def _torchs_chunked_cross_entropy(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    labels: torch.Tensor,
) -> torch.Tensor:
    """The same by torch; a second backward is allowed."""
    total = F.linear_cross_entropy(
        hidden_states,
        weight,
        labels,
        linear_bias=None if bias is None else bias.to(weight.dtype),
        reduction="none" if weight.dtype.itemsize < 4 else "sum",
        ignore_index=IGNORE_INDEX,
        options=torch.nn.LinearCrossEntropyOptions(allow_retain_graph=True),
    )
    return _first_order(total.float().sum() if total.dim() else total)


class _FirstOrder(torch.autograd.Function):
    """Refuses a gradient of the gradient, which torch's chunked loss would give wrongly."""

    @staticmethod
    def forward(ctx: Any, total: torch.Tensor) -> torch.Tensor:
        return total.view_as(total)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        _refuse_second_order()
        return gradient


_first_order = cast(Callable[[torch.Tensor], torch.Tensor], _FirstOrder.apply)


def _refuse_second_order() -> None:
    if torch.is_grad_enabled():
        raise RuntimeError(
            "`create_graph=True` asks for a gradient of the gradient, which the loss without all "
            "logits does not have: call `model.set_padding_free(False)`."
        )


def _smoothing(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    labels: torch.Tensor,
) -> torch.Tensor:
    """Sum over tokens of the label's logit less the mean logit: what smoothing adds, per share.

    (1 - s) (z - logit) + s (z - mean logit) = (z - logit) + s (logit - mean logit), with z the
    logarithm of the sum of exponentials; both logits are scalar products, no others are needed.
    """
    given = labels != IGNORE_INDEX
    labels = labels.where(given, 0)
    rows = F.embedding(labels, weight).float() - weight.float().mean(0)
    difference = (hidden_states.float() * rows).sum(-1)
    if bias is not None:
        difference = difference + bias.float()[labels] - bias.float().mean()
    return difference.where(given, 0).sum()


class LogitsOnDemand:
    """Logits of a training step, made when somebody looks at them.

    Args:
        head: The projection to the vocabulary.
        hidden_states: Of shape (batch, target_len, d_model).
    """

    def __init__(self, head: nn.Module, hidden_states: torch.Tensor) -> None:
        self._head = head
        self._hidden_states = hidden_states
        self._versions = self._weight_versions()

    def _weight_versions(self) -> list[int]:
        return [parameter._version for parameter in self._head.parameters()]

    def make(self) -> torch.Tensor:
        """Projects to the vocabulary.

        Returns:
            Logits of shape (batch, target_len, vocab).

        Raises:
            RuntimeError: If the projection has been trained since: its logits would be others.
        """
        if self._weight_versions() != self._versions:
            raise RuntimeError(
                "`logits` of a training step were read after the optimizer's step, when their "
                "weights are gone: read them before it, or call `model.set_padding_free(False)`."
            )
        logits: torch.Tensor = self._head(self._hidden_states)
        return logits

    def __getattr__(self, name: str) -> Any:
        """Passes on what a tensor can do.

        Only `dtype` is kept back: Accelerate takes what has one for a tensor to convert, which
        would make the logits at every step.
        """
        if name == "dtype" or name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.make(), name)


@dataclass
class TrainingOutput(Seq2SeqLMOutput):
    """Output whose `logits` are made when they are read: by name, by index or as a tuple."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name == "logits" and isinstance(value, LogitsOnDemand):
            value = self.logits = value.make()
        return value

    def __getitem__(self, key: Any) -> Any:
        if key == "logits":
            return self.logits
        return super().__getitem__(key)  # type: ignore[no-untyped-call]  # it has no types
