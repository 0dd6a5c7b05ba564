"""What is compared: the usual training, ⊥Grad, and what people otherwise do against overconfidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

LAYERS = ("head", "norm_scale", "norm_shift", "convolution")
"""Kinds of parameters that ⊥Grad can be confined to; what each is says `orthograd.lab.training.layers`."""
KINDS = (*LAYERS, "weight")
"""And all that have two dimensions or more, which spares biases, and the scales and shifts of norms."""


@dataclass(frozen=True)
class Arm:
    """How training departs from the usual: options of ⊥Grad (None: without), a loss, and how strongly images mix.

    ``only`` names the one kind of parameters that ⊥Grad acts on, ``decayed`` the one that weight decay does; empty,
    they act on all of them.
    """

    title: str
    details: str
    orthogonal: Mapping[str, Any] | None = None
    smoothing: float = 0.0
    focus: float = 0.0
    mixing: float = 0.0
    only: str = ""
    decayed: str = ""

    def __post_init__(self) -> None:
        if self.decayed and self.decayed not in KINDS:
            raise ValueError(f"expected decayed among {', '.join(KINDS)}, got {self.decayed}")
        if self.only and (self.only not in KINDS or self.orthogonal is None):
            raise ValueError(f"expected only among {', '.join(KINDS)}, of an arm with ⊥Grad, got {self.only}")


def _with_orthograd(arm: Arm) -> Arm:
    return replace(arm, title=f"{arm.title} and ⊥Grad", details=f"{arm.details}; and ⊥Grad on top", orthogonal={})


_RIVALS = {
    "label_smoothing": Arm("label smoothing", "a twentieth of the truth spread evenly", smoothing=0.05),
    "focal": Arm("focal loss", "sure samples count less", focus=3.0),
    "mixup": Arm("mixup", "pairs of images and their labels mixed", mixing=0.2),
}
_SPARED = Arm("decay spared", "weight decay for convolutions alone", decayed="convolution")

ARMS = {
    "baseline": Arm("baseline", "the optimizer as it is"),
    "orthograd": Arm("⊥Grad", "the gradient orthogonal to each weight, its length kept", orthogonal={}),
    "orthograd_plain": Arm("⊥Grad, plain", "not renormalised", orthogonal={"renormalize": False}),
    **_RIVALS,
    **{f"{name}_orthograd": _with_orthograd(arm) for name, arm in _RIVALS.items()},
    "orthograd_update": Arm("⊥Grad of the update", "what momentum makes of it", orthogonal={"project": "update"}),
    "orthograd_row": Arm("⊥Grad by rows", "each neuron and filter by itself", orthogonal={"granularity": "row"}),
    "orthograd_model": Arm("⊥Grad of the model", "all weights as one vector", orthogonal={"granularity": "model"}),
    "orthograd_head": Arm("⊥Grad, head", "the classifier's weight and bias alone", orthogonal={}, only="head"),
    "orthograd_norm_scale": Arm("⊥Grad, scales", "batch-norm scales alone", orthogonal={}, only="norm_scale"),
    "orthograd_norm_shift": Arm("⊥Grad, shifts", "batch-norm shifts alone", orthogonal={}, only="norm_shift"),
    "orthograd_convolution": Arm("⊥Grad, convolutions", "their weights alone", orthogonal={}, only="convolution"),
    "orthograd_weight": Arm("⊥Grad, vectors spared", "biases and norms left alone", orthogonal={}, only="weight"),
    "orthograd_update_weight": Arm(
        "⊥Grad of the update, vectors spared", "biases and norms left alone", {"project": "update"}, only="weight"
    ),
    "spared": _SPARED,
    "spared_orthograd": _with_orthograd(_SPARED),
}


def arm_named(name: str) -> Arm:
    """The arm of that name."""
    if name not in ARMS:
        raise ValueError(f"expected an arm among {', '.join(ARMS)}, got {name}")
    return ARMS[name]
