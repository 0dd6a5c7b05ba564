"""What is compared: the usual training, ⊥Grad, and what people otherwise do against overconfidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Arm:
    """How training departs from the usual: options of ⊥Grad (None: without), a loss, and how strongly images mix."""

    title: str
    details: str
    orthogonal: Mapping[str, Any] | None = None
    smoothing: float = 0.0
    focus: float = 0.0
    mixing: float = 0.0


ARMS = {
    "baseline": Arm("baseline", "the optimizer as it is"),
    "orthograd": Arm("⊥Grad", "the gradient orthogonal to each weight, its length kept", orthogonal={}),
    "orthograd_plain": Arm("⊥Grad, plain", "not renormalised", orthogonal={"renormalize": False}),
    "label_smoothing": Arm("label smoothing", "a twentieth of the truth spread evenly", smoothing=0.05),
    "focal": Arm("focal loss", "sure samples count less", focus=3.0),
    "mixup": Arm("mixup", "pairs of images and their labels mixed", mixing=0.2),
}


def arm_named(name: str) -> Arm:
    """The arm of that name."""
    if name not in ARMS:
        raise ValueError(f"expected an arm among {', '.join(ARMS)}, got {name}")
    return ARMS[name]
