"""The methods to compare: plain training, ⊥Grad and its variants, and other remedies for overconfidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

LAYER_TYPES = ("head", "norm_weight", "norm_bias", "convolution")
"""Layer types that ⊥Grad can be limited to: see `orthograd.lab.training.layers`."""
SELECTIONS = (*LAYER_TYPES, "head_weight", "weight")
"""And the head without its bias, and "weight": all parameters with two dimensions or more, so no biases and norms."""


@dataclass(frozen=True)
class Method:
    """A way of training: options of ⊥Grad (None: without it), label smoothing, focal loss, mixup.

    ``only`` names the layer type that ⊥Grad acts on, ``decayed`` the one that weight decay acts on. Empty means all.
    ``start`` is the number of epochs before ⊥Grad begins. ``limited`` is instead of ⊥Grad: see `limit_growth_`.
    """

    title: str
    details: str
    orthogonal: Mapping[str, Any] | None = None
    smoothing: float = 0.0
    focus: float = 0.0
    mixing: float = 0.0
    only: str = ""
    decayed: str = ""
    start: int = 0
    limited: bool = False

    def __post_init__(self) -> None:
        if self.decayed and self.decayed not in SELECTIONS:
            raise ValueError(f"expected decayed among {', '.join(SELECTIONS)}, got {self.decayed}")
        if self.only and (self.only not in SELECTIONS or self.orthogonal is None):
            raise ValueError(f"expected only among {', '.join(SELECTIONS)}, of a method with ⊥Grad, got {self.only}")
        if self.start and self.orthogonal is None:
            raise ValueError(f"expected a start of 0 for a method without ⊥Grad, got {self.start}")


def _with_orthograd(method: Method) -> Method:
    return replace(method, title=f"{method.title} and ⊥Grad", details=f"{method.details}, and ⊥Grad", orthogonal={})


_RIVALS = {
    "label_smoothing": Method("label smoothing", "label smoothing of 0.05", smoothing=0.05),
    "focal": Method("focal loss", "focal loss with γ = 3", focus=3.0),
    "mixup": Method("mixup", "mixup with α = 0.2", mixing=0.2),
}
_DECAY_CONV_ONLY = Method("decay on convolutions only", "weight decay on convolutions only", decayed="convolution")

METHODS = {
    "baseline": Method("baseline", "the optimizer as it is"),
    "orthograd": Method("⊥Grad", "the paper's: one projection a parameter, the gradient's norm kept", orthogonal={}),
    "orthograd_plain": Method("⊥Grad, plain", "the gradient's norm is not restored", orthogonal={"renormalize": False}),
    **_RIVALS,
    **{f"{name}_orthograd": _with_orthograd(method) for name, method in _RIVALS.items()},
    "orthograd_update": Method("⊥Grad of the update", "projects the optimizer's update", {"project": "update"}),
    "orthograd_row": Method("⊥Grad by rows", "one projection a neuron or filter", {"granularity": "row"}),
    "orthograd_model": Method("⊥Grad of the model", "one projection for all parameters", {"granularity": "model"}),
    "orthograd_head": Method("⊥Grad, head", "the last linear layer only", {}, only="head"),
    "orthograd_head_weight": Method("⊥Grad, head weight", "the last layer without its bias", {}, only="head_weight"),
    "orthograd_norm_weight": Method("⊥Grad, norm weights", "BatchNorm weights only", {}, only="norm_weight"),
    "orthograd_norm_bias": Method("⊥Grad, norm biases", "BatchNorm biases only", {}, only="norm_bias"),
    "orthograd_convolution": Method("⊥Grad, convolutions", "convolution weights only", {}, only="convolution"),
    "orthograd_skip_1d": Method("⊥Grad, skip 1-D", "skips 1-D parameters: biases and norms", {}, only="weight"),
    "orthograd_update_skip_1d": Method(
        "⊥Grad of the update, skip 1-D",
        "projects the optimizer's update and skips 1-D parameters",
        {"project": "update"},
        only="weight",
    ),
    "orthograd_after_5": Method("⊥Grad after 5 epochs", "five epochs without ⊥Grad, then with it", {}, start=5),
    "orthograd_after_10": Method("⊥Grad after 10 epochs", "ten epochs without ⊥Grad, then with it", {}, start=10),
    "limited_growth": Method(
        "limited growth", "the radial gradient may cancel weight decay and not outgrow it", limited=True
    ),
    "decay_conv_only": _DECAY_CONV_ONLY,
    "decay_conv_only_orthograd": _with_orthograd(_DECAY_CONV_ONLY),
}


def method_named(name: str) -> Method:
    """The method of this name; ValueError for an unknown one."""
    if name not in METHODS:
        raise ValueError(f"expected a method among {', '.join(METHODS)}, got {name}")
    return METHODS[name]
