"""The steps of an epoch, one after another. `orthograd.lab.gpu.slots` replays them from CUDA graphs."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from .arms import arm_named
from .config import Config
from .draws import Draws
from .objective import loss, optimizer_of
from .preparation import prepared
from .task import Task, initial_model, seeded


class Steps(Protocol):
    """A network, its optimizer, and the way to take them through an epoch."""

    model: nn.Module
    optimizer: Optimizer
    seconds_between_checkpoints: float

    def epoch(self, draws: Draws) -> float:
        """Take the steps of an epoch; the mean training loss."""


class EagerSteps:
    """Steps taken as they are written."""

    seconds_between_checkpoints = 0.0

    def __init__(self, config: Config, task: Task) -> None:
        self._config, self._task, self._arm = config, task, arm_named(config.arm)
        self._targets = one_hot(task)
        self.model = initial_model(config, task.dataset).train()
        self.optimizer = optimizer_of(config, self.model)

    def epoch(self, draws: Draws) -> float:
        """See `Steps.epoch`."""
        with seeded(draws.noise):
            return self._loss(draws)

    def _loss(self, draws: Draws) -> float:
        size, total = self._config.batch_size, 0.0
        for start in range(0, len(self._targets), size):
            part = draws.part(start, start + size)
            images, wanted = prepared(self._task.dataset, self._task.images, self._targets, part, size)
            self.optimizer.zero_grad()
            value = loss(self._arm, self.model(images), wanted)
            value.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            total += float(value.detach()) * len(wanted)
        return total / len(self._targets)


def one_hot(task: Task) -> Tensor:
    """The labels as probabilities of the classes."""
    return functional.one_hot(task.labels, task.dataset.classes).float()
