"""Fits renamed weights to a config: reads sizes, fills in tied weights, and lists all misfits."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from vanilla_transformer.interop.renaming import RenamedWeights, Weights
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

TABLES = {
    "encoder": ("model.encoder.embed_tokens.weight", "model.shared.weight"),
    "decoder": ("model.decoder.embed_tokens.weight", "model.shared.weight", "lm_head.weight"),
}
"""The matrices that tell the size of each vocabulary, the first that is there."""


def fit_weights(
    renamed: RenamedWeights, fields: Mapping[str, Any], zeros: Sequence[str] = ()
) -> tuple[VanillaTransformerConfig, Weights]:
    """Makes the config, and checks that the weights are all that it asks for.

    Args:
        renamed: Weights under the names of this package. Of weights that the config ties, one name
            is enough.
        fields: Fields of the config. Sizes that it does not name are read from the weights.
        zeros: Expressions for names whose missing weights are zero.

    Returns:
        The config, and weights for a `VanillaTransformerForConditionalGeneration`.

    Raises:
        ValueError: If a field is wrong. One error lists all weights that are missing, left over or
            of another shape, or that differ although the config ties them.
    """
    sizes = read_sizes(renamed)
    if "max_position_embeddings" in sizes:
        sizes["max_position_embeddings"] -= fields.get("position_offset", 0)
    config = VanillaTransformerConfig(**{**sizes, **fields})
    shapes, tied = expected_weights(config)
    weights = {**renamed.weights}
    for name in _zero_weights(shapes, weights, tied, zeros):
        weights[name] = torch.zeros(shapes[name])
    problems = [*renamed.problems, *find_untied(renamed, tied)]
    for target, source in tied.items():
        aliases = [source, *(name for name, of in tied.items() if of == source)]
        found = next((weights[name] for name in aliases if name in weights), None)
        if found is not None:
            weights.setdefault(target, found)
            weights.setdefault(source, found)
    problems += find_misfits(shapes, RenamedWeights(weights, renamed.origins))
    raise_problems("The weights do not fit the config", problems)
    return config, weights


def read_sizes(renamed: RenamedWeights) -> dict[str, Any]:
    """Reads the fields of the config that the weights show.

    Args:
        renamed: Weights under the names of this package.

    Returns:
        Sizes by field.

    Raises:
        ValueError: If weights that tell sizes are missing. The error also lists unknown names.
    """
    sizes: dict[str, Any] = {}
    lost = []
    for stack, size in (("encoder", "vocab_size"), ("decoder", "decoder_vocab_size")):
        matrix = _find_matrix(renamed, TABLES[stack])
        inner = _find_matrix(renamed, (f"model.{stack}.layers.0.feed_forward.fc1.weight",))
        if matrix is None or inner is None:
            names = (TABLES[stack][0], f"model.{stack}.layers.0.feed_forward.fc1.weight")
            found = zip(names, (matrix, inner), strict=True)
            lost += [name for name, tensor in found if tensor is None]
            continue
        sizes[size], sizes["d_model"] = matrix.shape
        sizes[f"{stack}_ffn_dim"] = len(inner)
        sizes[f"{stack}_layers"] = count_layers(renamed, stack)
    learned = _find_matrix(renamed, ("model.encoder.embed_positions.weight",))
    if learned is not None:
        sizes["max_position_embeddings"] = len(learned)  # if the first position is 0
    if lost:
        known = ("model.", "lm_head.")
        strange = [f"`{old}` is not known" for new, old in renamed.origins.items()
                   if not new.startswith(known)]  # fmt: skip
        missing = [f"`{name}`, a matrix that tells sizes, is missing" for name in lost]
        raise_problems("The weights show no sizes", [*renamed.problems, *strange, *missing])
    return sizes


def count_layers(renamed: RenamedWeights, stack: str) -> int:
    """Returns one more than the highest number of a layer of "encoder" or "decoder"."""
    layers = re.compile(rf"model\.{stack}\.layers\.(\d+)\..*")
    return 1 + max(int(match[1]) for name in renamed.weights if (match := layers.fullmatch(name)))


def _find_matrix(renamed: RenamedWeights, names: Sequence[str]) -> torch.Tensor | None:
    found = (renamed.weights[name] for name in names if name in renamed.weights)
    return next((tensor for tensor in found if tensor.dim() == 2), None)


def expected_weights(
    config: VanillaTransformerConfig,
) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Returns the shape of each weight of a model, and its tied weights as {target: source}.

    Args:
        config: Config of a `VanillaTransformerForConditionalGeneration`.
    """
    with torch.device("meta"):
        model = VanillaTransformerForConditionalGeneration(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    return shapes, model._tied_weights_keys


def _zero_weights(
    shapes: Mapping[str, tuple[int, ...]],
    weights: Mapping[str, torch.Tensor],
    tied: Mapping[str, str],
    zeros: Sequence[str],
) -> list[str]:
    """Returns the missing weights that an expression of `zeros` allows to be zero."""
    missing = shapes.keys() - weights.keys() - tied.keys() - set(tied.values())
    return sorted(n for n in missing if any(re.fullmatch(pattern, n) for pattern in zeros))


def find_untied(renamed: RenamedWeights, tied: Mapping[str, str]) -> Iterator[str]:
    """Yields a sentence for each pair of weights that differ although the config ties them.

    Args:
        renamed: The weights.
        tied: Tied weights as {target: source}.
    """
    weights, origins = renamed.weights, renamed.origins
    groups: dict[str, list[str]] = {}
    for target, source in tied.items():
        groups.setdefault(source, [source]).append(target)
    for names in groups.values():
        first, *others = [name for name in names if name in weights] or [""]
        for name in others:
            if not torch.equal(weights[name], weights[first]):
                yield (f"`{origins[name]}` and `{origins[first]}` differ, but the config ties them")


def find_misfits(shapes: Mapping[str, tuple[int, ...]], renamed: RenamedWeights) -> Iterator[str]:
    """Yields a sentence for each weight that is left over, missing or of another shape.

    Args:
        shapes: Shape of each weight that is expected.
        renamed: The weights.
    """
    weights, origins = renamed.weights, renamed.origins
    for name, tensor in weights.items():
        origin = origins.get(name, name)
        if name not in shapes:
            yield f"`{origin}` is not known"
        elif tuple(tensor.shape) != shapes[name]:
            found = tuple(tensor.shape)
            yield f"`{origin}` has shape {found}, but `{name}` has {shapes[name]}"
    for name in sorted(shapes.keys() - weights.keys()):
        yield f"`{name}` is missing"


def raise_problems(summary: str, problems: Sequence[str], remedy: str = "") -> None:
    """Raises one error that lists all problems, if there are any.

    Args:
        summary: What is wrong, without a full stop.
        problems: One sentence for each problem, without a full stop.
        remedy: A sentence on what to do.

    Raises:
        ValueError: If there is a problem.
    """
    if problems:
        listed = "".join(f"\n- {problem}" for problem in problems)
        raise ValueError(f"{summary}: {len(problems)} problem(s). {remedy}".rstrip() + listed)
