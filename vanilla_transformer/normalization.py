"""The norms, and how the two norm slots of a sublayer are filled."""

from collections.abc import Callable

from torch import nn


def norm_slots(placement: str, make_norm: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    """Fills the slot before a sublayer and the slot after its residual sum.

    The unused slot is an identity, so that a layer's forward is one straight line for every
    placement, and a checkpoint's keys tell the placement that it was trained with.

    Args:
        placement: "post" (Vaswani et al. 2017, §3.1), "pre" (Xiong et al. 2020) or "none".
        make_norm: Makes one norm over the last axis.

    Returns:
        (pre, post): the modules for the two slots.
    """
    pre = make_norm() if placement == "pre" else nn.Identity()
    post = make_norm() if placement == "post" else nn.Identity()
    return pre, post
