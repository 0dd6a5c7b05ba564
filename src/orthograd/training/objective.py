"""What a step of training makes small, and by which optimizer."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, AdamW, Optimizer

from ..fused_sgd import FusedSGD
from ..optimizer import attach
from ..options import Options
from .arms import Arm, arm_named
from .config import Config
from .layers import confined_to, decay_groups


def loss(arm: Arm, logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy with the targets' probabilities, these smoothed, or with sure samples counting (1 − p)^focus less.

    References: Szegedy et al., "Rethinking the Inception Architecture", 2016; Lin et al., "Focal Loss", 2017,
    and Mukhoti et al., "Calibrating Deep Neural Networks using Focal Loss", 2020.
    """
    if arm.focus:
        log_p = logits.log_softmax(1)
        return -(targets * (1 - log_p.exp()).pow(arm.focus) * log_p).sum(1).mean()
    return functional.cross_entropy(logits, targets, label_smoothing=arm.smoothing)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Go on at another rate; one that CUDA graphs read stays in its place."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def optimizer_of(config: Config, model: nn.Module, copies: Mapping[Tensor, Tensor] | None = None) -> Optimizer:
    """The base optimizer, made orthogonal where the arm says so. On a GPU in one piece, if it can be.

    ``copies`` are weights in fewer bits, which only an optimizer in one piece takes care of. On a GPU a rate that is to
    change lies in its memory, where graphs find it.
    """
    on_gpu, decay = config.device == "cuda", config.weight_decay
    is_read = on_gpu and config.schedule != "constant"
    rate = torch.tensor(config.learning_rate, device="cuda") if is_read else config.learning_rate
    arm, parameters = arm_named(config.arm), [*model.parameters()]
    where = confined_to(model, arm.only) if arm.only else None
    groups = decay_groups(model, arm.decayed) if arm.decayed else parameters
    if config.optimizer == "sgd":
        options = None if arm.orthogonal is None else Options(**arm.orthogonal)
        is_dense = not any(getattr(layer, "sparse", False) for layer in model.modules())
        if on_gpu and is_dense and not arm.decayed and FusedSGD.serves(parameters, options, config.momentum):
            return FusedSGD(parameters, rate, config.momentum, decay, options=options, where=where, copies=copies)
        optimizer: Optimizer = SGD(groups, rate, config.momentum, weight_decay=decay, fused=on_gpu or None)
    else:
        optimizer = AdamW(groups, rate, weight_decay=decay, fused=on_gpu or None, capturable=on_gpu)
    if arm.orthogonal is not None:
        attach(optimizer, **arm.orthogonal, where=where)
    return optimizer
