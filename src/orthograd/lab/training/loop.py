"""The loop over the epochs of a run, and its checkpoints.

A checkpoint is plain tensors without pickle: loading one runs no code.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..jobs.record import difference
from .batches import Draws
from .config import Config
from .fingerprint import fingerprint
from .methods import method_named
from .steps import EagerSteps, Steps, set_rate
from .task import Task

Tensors = dict[str, Tensor]
Report = Callable[[dict[str, Any]], None]
Stretch = list[float]


class Keeper(Protocol):
    """Where checkpoints are kept; a run folder of `orthograd.lab.jobs` is one."""

    def save_checkpoint(self, tensors: Tensors, state: dict[str, Any]) -> None:
        """Replace the checkpoint."""

    def load_checkpoint(self) -> tuple[Tensors, dict[str, Any]] | None:
        """The last checkpoint, or None."""


@dataclass(frozen=True, eq=False)
class Trained:
    """The trained network, the mean loss of each epoch, and when it trained, in seconds since 1970.

    A run that was stopped and resumed has several stretches; each but the last ends in a checkpoint.
    """

    model: nn.Module
    losses: list[float]
    stretches: list[Stretch]


def train(config: Config, task: Task, *, keeper: Keeper | None = None, report: Report = lambda _: None) -> Trained:
    """Train on the CPU; see `train_by`."""
    begun = time.time()
    return train_by(EagerSteps(config, task), config, task, begun=begun, keeper=keeper, report=report)


def train_by(
    steps: Steps,
    config: Config,
    task: Task,
    *,
    begun: float,
    keeper: Keeper | None = None,
    report: Report = lambda _: None,
) -> Trained:
    """Train to the last epoch, starting from the keeper's checkpoint if there is one.

    Args:
        steps: Network and optimizer on any device, in their initial state.
        config: The run.
        task: Its data.
        begun: When the run began, in seconds since 1970.
        keeper: Where checkpoints are kept.
        report: Called after each epoch. If it raises, the run stops with a checkpoint of that epoch.
    """
    method, order = method_named(config.method), torch.Generator().manual_seed(config.seed)
    losses, earlier = list[float](), list[Stretch]()
    last = keeper.load_checkpoint() if keeper else None
    start = fingerprint(config, task.dataset) if keeper else {}
    if last is not None:
        if words := difference(last[1].get("fingerprint", {}), start):
            raise ValueError(f"expected a checkpoint of the same network and data, got {words}")
        restore(last[0], steps.model, steps.optimizer, order)
        losses, earlier = list(last[1]["losses"]), list(last[1].get("stretches", []))

    def stretches() -> list[Stretch]:
        return [*earlier, [begun, max(begun, time.time())]]  # a clock may be set back

    def keep() -> None:
        if keeper and len(losses) < config.epochs:
            state = {"losses": losses, "stretches": stretches(), "fingerprint": start}
            keeper.save_checkpoint(captured(steps.model, steps.optimizer, order), state)

    kept = time.monotonic()
    while len(losses) < config.epochs:
        set_rate(steps.optimizer, config.rate_in(len(losses)))
        losses.append(steps.epoch(Draws.of(config, method, len(task.labels), order), len(losses)))
        if not math.isfinite(losses[-1]):
            raise ArithmeticError(
                f"training diverged: the loss of epoch {len(losses)} is {losses[-1]}, "
                f"at learning_rate {config.learning_rate:g} and momentum {config.momentum:g}"
            )
        if is_due := time.monotonic() - kept >= steps.seconds_between_checkpoints:
            keep()
            kept = time.monotonic()
        try:
            report({"epoch": len(losses), "epochs": config.epochs, "loss": losses[-1]})
        except BaseException:  # this is how a run is stopped
            if not is_due:
                keep()
            raise
    return Trained(steps.model.eval(), losses, stretches())


def captured(model: nn.Module, optimizer: Optimizer, generator: torch.Generator) -> Tensors:
    """Weights and buffers, the optimizer's state, and the generator's state."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {
            f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in state.items() if value is not None
        }
    tensors["generator"] = generator.get_state()
    return {name: value.detach().clone().contiguous() for name, value in tensors.items()}


def restore(tensors: Tensors, model: nn.Module, optimizer: Optimizer, generator: torch.Generator) -> None:
    """Restore what `captured` returned; existing tensors keep their address, which CUDA graphs use."""
    for name, value in model.state_dict().items():
        saved = tensors.get(f"model.{name}")
        if saved is None or saved.shape != value.shape:  # copy_ would broadcast without an error
            got = "none" if saved is None else tuple(saved.shape)
            raise ValueError(f"expected a checkpoint of this network, with {name} {tuple(value.shape)}, got {got}")
    for name, value in model.state_dict().items():
        value.copy_(tensors[f"model.{name}"])
    state: dict[int, Tensors] = {}
    for name, value in _under("optimizer.", tensors).items():
        place, key = name.split(".", 1)
        state.setdefault(int(place), {})[key] = value
    current = optimizer.state_dict()
    if current["state"]:
        for index, values in state.items():
            for key, value in values.items():
                current["state"][index][key].copy_(value)
    elif state:
        optimizer.load_state_dict({**current, "state": state})
    generator.set_state(tensors["generator"])


def _under(prefix: str, tensors: Tensors) -> Tensors:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
