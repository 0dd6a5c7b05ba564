"""What is compared: the usual training, ⊥Grad, and what people otherwise do against overconfidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.optim import SGD, AdamW, Optimizer

from ..optimizer import attach
from .config import Config

Loss = Callable[[Tensor, Tensor], Tensor]
"""Of logits and of the probabilities of the classes that are to be learned: one-hot, or mixed."""


@dataclass(frozen=True)
class Arm:
    """How training departs from the usual: options of ⊥Grad (None: without), a loss, and how strongly images mix."""

    title: str
    orthogonal: Mapping[str, Any] | None = None
    smoothing: float = 0.0
    focus: float = 0.0
    mixing: float = 0.0
    details: str = field(default="", compare=False)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy, with smoothed targets, or with sure samples counting (1 − p)^focus less.

        References: Szegedy et al., "Rethinking the Inception Architecture", 2016; Lin et al., "Focal Loss", 2017,
        and Mukhoti et al., "Calibrating Deep Neural Networks using Focal Loss", 2020.
        """
        if self.focus:
            log_p = logits.log_softmax(1)
            return -(targets * (1 - log_p.exp()).pow(self.focus) * log_p).sum(1).mean()
        return functional.cross_entropy(logits, targets, label_smoothing=self.smoothing)


ARMS = {
    "baseline": Arm("baseline", details="the optimizer as it is"),
    "orthograd": Arm("⊥Grad", orthogonal={}, details="the gradient orthogonal to each weight, its length kept"),
    "orthograd_plain": Arm("⊥Grad, plain", orthogonal={"renormalize": False}, details="not renormalised"),
    "label_smoothing": Arm("label smoothing", smoothing=0.05, details="a twentieth of the truth spread evenly"),
    "focal": Arm("focal loss", focus=3.0, details="sure samples count less"),
    "mixup": Arm("mixup", mixing=0.2, details="pairs of images and their labels mixed"),
}


def arm_of(config: Config) -> Arm:
    """The arm that a config names."""
    if config.arm not in ARMS:
        raise ValueError(f"expected an arm among {', '.join(ARMS)}, got {config.arm}")
    return ARMS[config.arm]


def optimizer_of(config: Config, model: torch.nn.Module) -> Optimizer:
    """The base optimizer, made orthogonal where the arm says so."""
    makers: dict[str, Callable[[], Optimizer]] = {
        "sgd": lambda: SGD(
            model.parameters(), lr=config.learning_rate, momentum=config.momentum, weight_decay=config.weight_decay
        ),
        "adamw": lambda: AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay),
    }
    if config.optimizer not in makers:
        raise ValueError(f"expected an optimizer among {', '.join(makers)}, got {config.optimizer}")
    optimizer = makers[config.optimizer]()
    options = arm_of(config).orthogonal
    if options is not None:
        attach(optimizer, **options)
    return optimizer


def mixed(images: Tensor, targets: Tensor, strength: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """λx + (1 − λ)x′ and the same of the targets, λ from Beta(strength, strength), x′ another image of the batch.

    Reference: Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018.
    """
    gammas = torch._standard_gamma(torch.full((2,), strength, dtype=torch.float64), generator=generator)
    share = float(gammas[0] / gammas.sum())
    other = torch.randperm(len(images), generator=generator)
    return share * images + (1 - share) * images[other], share * targets + (1 - share) * targets[other]
