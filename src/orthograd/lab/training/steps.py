"""Training steps: loss, optimizer, and an epoch of steps on the CPU.

On a GPU, `orthograd.lab.gpu.slot` replays steps from CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, AdamW, Optimizer

from ...attachment import attachment_of
from ...optimizer import attach
from .batches import Draws, prepared
from .config import Config
from .layers import confined_to, decay_groups
from .methods import Method, method_named
from .task import Task, initial_model, seeded


def loss(method: Method, logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy with class probabilities, with label smoothing or the focal loss's factor (1 − p)^focus.

    References: Szegedy et al., "Rethinking the Inception Architecture", 2016; Lin et al., "Focal Loss", 2017,
    and Mukhoti et al., "Calibrating Deep Neural Networks using Focal Loss", 2020.
    """
    if method.focus:
        log_p = logits.log_softmax(1)
        return -(targets * (1 - log_p.exp()).pow(method.focus) * log_p).sum(1).mean()
    return functional.cross_entropy(logits, targets, label_smoothing=method.smoothing)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate; a tensor, which CUDA graphs read, is changed in place."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def optimizer_of(config: Config, model: nn.Module) -> Optimizer:
    """The base optimizer, with ⊥Grad attached if the method uses it from the first epoch on."""
    on_gpu, decay, rate = config.device == "cuda", config.weight_decay, rate_of(config)
    method = method_named(config.method)
    groups = decay_groups(model, method.decayed) if method.decayed else [*model.parameters()]
    if config.optimizer == "sgd":
        optimizer: Optimizer = SGD(groups, rate, config.momentum, weight_decay=decay, fused=on_gpu or None)
    else:
        optimizer = AdamW(groups, rate, weight_decay=decay, fused=on_gpu or None, capturable=on_gpu)
    if method.limited:
        if config.optimizer != "sgd":  # AdamW's decay is no part of the gradient
            raise ValueError(f"expected optimizer sgd for the method {config.method}, got {config.optimizer}")
        optimizer.register_step_pre_hook(limit_growth_)
    if not method.start:
        start_orthograd(method, model, optimizer)
    return optimizer


def start_orthograd(method: Method, model: nn.Module, optimizer: Optimizer) -> None:
    """Attach ⊥Grad to the optimizer if the method uses it."""
    if method.orthogonal is not None:
        attach(optimizer, **method.orthogonal, where=confined_to(model, method.only) if method.only else None)


@torch.no_grad()
def limit_growth_(optimizer: Optimizer, *_: object) -> None:
    """Limit the radial part of each gradient, so that the loss can cancel weight decay λ and not outgrow it.

    With g = r w + g⊥, r becomes max(r, −λ). The gradient is not renormalized.
    """
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if weight.grad is not None:
                square = weight.square().sum()
                radial = (weight.grad * weight).sum() / torch.where(square > 0, square, 1)
                weight.grad.sub_(weight * (radial + group["weight_decay"]).clamp(max=0))


def rate_of(config: Config) -> float | Tensor:
    """Initial learning rate; on a GPU with a schedule it is a tensor there, which CUDA graphs read."""
    is_read = config.device == "cuda" and config.schedule != "constant"
    return torch.tensor(config.learning_rate, device="cuda") if is_read else config.learning_rate


class Steps(Protocol):
    """A network, its optimizer, and a way to train an epoch."""

    model: nn.Module
    optimizer: Optimizer
    seconds_between_checkpoints: float

    def epoch(self, draws: Draws, number: int = 0) -> float:
        """Train one epoch, counted from 0; return the mean training loss."""


class EagerSteps:
    """Eager steps on the CPU."""

    seconds_between_checkpoints = 0.0

    def __init__(self, config: Config, task: Task) -> None:
        if config.device != "cpu":
            raise ValueError(f"expected device cpu for a run without an open GPU, got {config.device}")
        self._config, self._task, self._method = config, task, method_named(config.method)
        self._targets = one_hot(task)
        self.model = initial_model(config, task.dataset).train()
        self.optimizer = optimizer_of(config, self.model)

    def epoch(self, draws: Draws, number: int = 0) -> float:
        """See `Steps.epoch`."""
        if number >= self._method.start > 0 and attachment_of(self.optimizer) is None:
            start_orthograd(self._method, self.model, self.optimizer)
        with seeded(draws.noise):
            return self._loss(draws)

    def _loss(self, draws: Draws) -> float:
        sizes, total = self._config.batches_of(len(self._targets)), 0.0
        for size, stop in zip(sizes, accumulate(sizes), strict=True):
            part = draws.part(stop - size, stop)
            images, wanted = prepared(self._task.dataset, self._task.images, self._targets, part)
            self.optimizer.zero_grad()
            with statistics_for(self._config, self.model, size):
                value = loss(self._method, self.model(images), wanted)
            value.backward(share_of(self._config, value, size))  # type: ignore[no-untyped-call]
            self.optimizer.step()
            total += float(value.detach()) * len(wanted)
        return total / sum(sizes)


@contextmanager
def statistics_for(config: Config, model: nn.Module, size: int) -> Iterator[None]:
    """Inside, BatchNorm uses its running statistics for a smaller batch where ``last_batch`` says so."""
    is_running = config.last_batch == "running_statistics" and size < config.batch_size
    norms = [each for each in model.modules() if is_running and isinstance(each, nn.modules.batchnorm._BatchNorm)]
    for layer in norms:
        layer.eval()
    yield
    for layer in norms:
        layer.train()


def share_of(config: Config, value: Tensor, size: int) -> Tensor:
    """The weight of the loss of a batch of this size, in the loss's dtype and on its device."""
    return torch.full_like(value, size / config.batch_size if config.last_batch == "weighted" else 1.0)


def one_hot(task: Task) -> Tensor:
    """Labels as class probabilities."""
    return functional.one_hot(task.labels, task.dataset.classes).float()
