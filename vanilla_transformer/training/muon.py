"""Muon for the matrices of the layers and AdamW for all else, as one optimizer of torch.

`torch.optim.Muon` updates one matrix at a time, and iterates in bfloat16 alone: with it, a whole
training step takes 14% longer at width 96, 4% longer at width 192, and several times as long on a
CPU without instructions for bfloat16.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

import torch
from torch import nn
from torch.optim.adamw import adamw

from vanilla_transformer.model.initialization import StackedLinear
from vanilla_transformer.names import ADAMW, MUON

MUON_LEARNING_RATE = 0.01  # as the table of run/defaults.py has it for wide models
MUON_MOMENTUM = 0.95  # of Jordan et al. 2024, as the iterations and their coefficients

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of Jordan et al. 2024: the largest slope at zero
_ITERATIONS = 5
_SMALLEST_NORM = 1e-7  # as in `torch.optim.Muon`
_NUMBERS_AT_ONCE = {"cpu": 2**18}  # a core's cache holds them; elsewhere the number below
_MOST_NUMBERS_AT_ONCE = 2**26  # 256 MB in float32; chosen, not measured

_Group = dict[str, Any]


def orthogonalize(matrices: torch.Tensor) -> torch.Tensor:
    """Moves the singular values of matrices to about 1 and keeps their singular vectors.

    Five Newton-Schulz iterations X <- aX + (bA + cA²)X with A = XXᵀ, after a division by the
    Frobenius norm (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks").
    They end with singular values of about 0.7 to 1.2. They run in bfloat16, as in
    `torch.optim.Muon`, or in float32 on processors that lack instructions for bfloat16, where
    bfloat16 would take many times as long; the result has their type.

    Args:
        matrices: Of shape (count, rows, columns).
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    is_slow = matrices.device.type == "cpu" and not torch.cpu._is_avx512_bf16_supported()
    states = (matrices.mT if is_tall else matrices).to(torch.float32 if is_slow else torch.bfloat16)
    norms = torch.linalg.vector_norm(states, dim=(1, 2), keepdim=True)
    states = states / norms.clamp(min=_SMALLEST_NORM)
    if len(states) == 1:
        states = states[0]  # (rows, columns): twice as fast on a CPU
    a, b, c = _COEFFICIENTS
    if is_slow and states.shape[-2] < states.shape[-1]:
        states = _product_of_factors(states @ states.mT) @ states
    else:
        for _ in range(_ITERATIONS):
            gram = states @ states.mT  # ([count,] rows, rows)
            factor = _add_product(gram, gram, gram, beta=b, alpha=c)
            states = _add_product(states, factor, states, beta=a, alpha=1)
    return (states.mT if is_tall else states).reshape(matrices.shape)


def _add_product(
    summand: torch.Tensor, left: torch.Tensor, right: torch.Tensor, beta: float, alpha: float
) -> torch.Tensor:
    """Returns beta · summand + alpha · left · right, for one matrix or for a stack of them."""
    add = torch.addmm if left.ndim == 2 else torch.baddbmm
    return add(summand, left, right, beta=beta, alpha=alpha)


def _product_of_factors(gram: torch.Tensor) -> torch.Tensor:
    """Returns the product of the factors of all iterations, from A = XXᵀ alone.

    An iteration is X <- FX with F = aI + bA + cA², so that A <- FAF. These products are smaller
    than products with an oblong X; the powers of A need float32.
    """
    a, b, c = _COEFFICIENTS
    product = None
    for _ in range(_ITERATIONS):
        factor = _add_product(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=-2, dim2=-1).add_(a)
        product = factor if product is None else factor @ product
        gram = factor @ gram @ factor
    return cast(torch.Tensor, product)


class Muon(torch.optim.Optimizer):
    """Updates each parameter group with Muon or with AdamW.

    Muon (Jordan et al. 2024) adds up the gradients of a matrix with a momentum and takes a step in
    their direction with all singular values at about 1. The results equal `torch.optim.Muon`'s
    within the rounding of the iterations, and `torch.optim.AdamW`'s exactly. Matrices of one shape
    are computed together, which takes less time if they are small.

    `make_muon` makes the groups for a model.

    Args:
        groups: Parameter groups, each with "params" and all its settings. "algorithm" is "muon",
            with "lr", "momentum", "weight_decay" and "part_sizes" (see `StackedLinear`; None: each
            parameter is one matrix), or "adamw", with "lr", "betas", "eps" and "weight_decay".
        lr: The rate that schedules take for the optimizer's.
    """

    def __init__(self, groups: Sequence[_Group], lr: float) -> None:
        super().__init__(groups, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Updates all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            updated = [parameter for parameter in group["params"] if parameter.grad is not None]
            if updated and group["algorithm"] == MUON:
                self._step_with_muon(updated, group)
            elif updated:
                self._step_with_adamw(updated, group)
        return loss

    def _step_with_adamw(self, parameters: list[nn.Parameter], group: _Group) -> None:
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        states = [self.state[parameter] for parameter in parameters]
        adamw(
            list(parameters),
            [cast(torch.Tensor, parameter.grad) for parameter in parameters],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )

    def _step_with_muon(self, parameters: list[nn.Parameter], group: _Group) -> None:
        rate, momentum = float(group["lr"]), group["momentum"]
        gradients = [cast(torch.Tensor, parameter.grad) for parameter in parameters]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if not self.state[parameter]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(gradient)
        # `_foreach` functions, as torch's own optimizers: few kernels on a GPU.
        means = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        torch._foreach_lerp_(means, gradients, 1 - momentum)
        directions = torch._foreach_lerp(gradients, means, momentum)  # Nesterov's
        if group["weight_decay"]:
            torch._foreach_mul_(list[torch.Tensor](parameters), 1 - rate * group["weight_decay"])
        pairs = list[tuple[torch.Tensor, torch.Tensor]]()
        for parameter, direction in zip(parameters, directions, strict=True):
            rows = group["part_sizes"] or len(parameter)
            pairs += zip(parameter.split(rows), direction.split(rows), strict=True)
        for matrices, stacked in _batches_of_one_shape(pairs):
            rows, columns = matrices[0].shape
            step = -rate * max(1.0, rows / columns) ** 0.5
            updates = orthogonalize(stacked).to(matrices[0].dtype).unbind()
            torch._foreach_add_(matrices, updates, alpha=step)


def _batches_of_one_shape(
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]],
) -> Iterator[tuple[list[torch.Tensor], torch.Tensor]]:
    """Yields matrices of one shape, device and type with their directions, stacked."""
    alike = defaultdict(list)
    for matrix, direction in pairs:
        alike[direction.shape, direction.device, direction.dtype].append((matrix, direction))
    for (shape, device, _), members in alike.items():
        limit = _NUMBERS_AT_ONCE.get(device.type, _MOST_NUMBERS_AT_ONCE)
        size = max(1, limit // max(1, shape.numel()))
        for start in range(0, len(members), size):
            matrices, directions = zip(*members[start : start + size], strict=True)
            yield list(matrices), torch.stack(directions)


def layer_matrices(model: nn.Module) -> dict[str, tuple[int, ...] | None]:
    """Finds the matrices that Muon is made for, of linear maps within layers.

    They are the weights of each `nn.Linear` in an `nn.ModuleList`, but for the output embeddings.

    Returns:
        The sizes of the parts of each matrix, by the parameter's name; None: it is one matrix.
    """
    sizes: dict[str, tuple[int, ...] | None] = {}
    has_outputs = hasattr(model, "get_output_embeddings")
    outputs = cast(Any, model).get_output_embeddings() if has_outputs else None
    for path, layers in model.named_modules():
        if not isinstance(layers, nn.ModuleList):
            continue
        for name, module in layers.named_modules(prefix=path):
            if isinstance(module, nn.Linear) and module is not outputs and module.weight.ndim == 2:
                parts = module.part_sizes if isinstance(module, StackedLinear) else None
                sizes[f"{name}.weight"] = parts
    return sizes


def make_muon(
    model: nn.Module,
    lr: float = 1e-3,
    muon_lr: float = MUON_LEARNING_RATE,
    momentum: float = MUON_MOMENTUM,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decayed: Collection[str] | None = None,
) -> Muon:
    """Makes the optimizer of a model: Muon for the matrices of its layers, AdamW for all else.

    Parts of a stacked matrix are matrices of their own. Frozen parameters are left out.

    Args:
        model: Any model whose layers are in a `ModuleList`.
        muon_lr: Learning rate of Muon. A tall matrix takes a step that is larger by the root of
            rows/columns, as in `torch.optim.Muon`.
        decayed: Names of the parameters with weight decay. None: all but vectors.
    """
    matrices = layer_matrices(model)
    groups: dict[Any, list[nn.Parameter]] = defaultdict(list)
    for name, parameter in model.named_parameters():  # a shared parameter comes once
        if parameter.requires_grad:
            algorithm = MUON if name in matrices else ADAMW
            has_decay = parameter.ndim > 1 if decayed is None else name in decayed
            groups[algorithm, has_decay, matrices.get(name)].append(parameter)
    of_muon = [
        weight for (algorithm, *_), row in groups.items() if algorithm == MUON for weight in row
    ]
    if not of_muon:
        raise ValueError(
            f"No layer of {type(model).__name__} has a matrix to train, and Muon updates nothing "
            "else: use another `--optim`."
        )
    if any(hasattr(weight, "placements") for weight in of_muon):
        raise ValueError(
            "Muon updates whole matrices, but a parameter is a shard: use another `--optim` with "
            "FSDP, DeepSpeed or tensor parallelism."
        )
    settings: dict[str, _Group] = {
        ADAMW: {"lr": lr, "betas": betas, "eps": eps, "fused": True},
        MUON: {"lr": muon_lr, "momentum": momentum},
    }
    listed = []
    for key in sorted(groups, key=repr):  # AdamW first: schedules log the rate of the first group
        algorithm, has_decay, part_sizes = key
        group = {"params": groups[key], "algorithm": algorithm, **settings[algorithm]}
        group["weight_decay"] = weight_decay if has_decay else 0.0
        if algorithm == MUON:
            group["part_sizes"] = part_sizes
        listed.append(group)
    return Muon(listed, lr)
