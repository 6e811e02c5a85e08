"""Checks of the training arguments that transformers would find late, or not at all."""

import math


def check_length_penalty(penalty: float, num_beams: int | None, prefix: str = "") -> None:
    """Refuses a length penalty that changes nothing, or everything.

    Args:
        penalty: Exponent of the length by which a beam search divides scores.
        num_beams: Beam width of the search; None: 1.
        prefix: What the names of both options begin with.

    Raises:
        ValueError: If it is not finite, or there is one beam.
    """
    name = f"`{prefix}length_penalty`"
    if not math.isfinite(penalty):
        raise ValueError(f"{name} is {penalty}: give a finite number.")
    if (num_beams or 1) == 1:
        raise ValueError(
            f"{name} {penalty} has no effect without a beam search: give `{prefix}num_beams` of at "
            "least 2, or leave the penalty out."
        )
