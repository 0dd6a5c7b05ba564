"""What a step of training makes small, and by which optimizer."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, AdamW, Optimizer

from ..optimizer import attach
from .arms import Arm, arm_named
from .config import Config
from .layers import confined_to


def loss(arm: Arm, logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy with the targets' probabilities, these smoothed, or with sure samples counting (1 − p)^focus less.

    References: Szegedy et al., "Rethinking the Inception Architecture", 2016; Lin et al., "Focal Loss", 2017,
    and Mukhoti et al., "Calibrating Deep Neural Networks using Focal Loss", 2020.
    """
    if arm.focus:
        log_p = logits.log_softmax(1)
        return -(targets * (1 - log_p.exp()).pow(arm.focus) * log_p).sum(1).mean()
    return functional.cross_entropy(logits, targets, label_smoothing=arm.smoothing)


def optimizer_of(config: Config, model: nn.Module) -> Optimizer:
    """The base optimizer, made orthogonal where the arm says so."""
    on_gpu, rate, decay = config.device == "cuda", config.learning_rate, config.weight_decay
    if config.optimizer == "sgd":
        optimizer: Optimizer = SGD(model.parameters(), rate, config.momentum, weight_decay=decay, fused=on_gpu or None)
    else:
        optimizer = AdamW(model.parameters(), rate, weight_decay=decay, fused=on_gpu or None, capturable=on_gpu)
    arm = arm_named(config.arm)
    if arm.orthogonal is not None:
        attach(optimizer, **arm.orthogonal, where=confined_to(model, arm.only) if arm.only else None)
    return optimizer
