"""One run: a config in; a trained network and the story of its training out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..gpu.slots import SLOTS
from ..jobs.record import difference
from ..training.arms import arm_named
from ..training.checkpoint import Keeper, captured, restore
from ..training.config import Config
from ..training.draws import Draws
from ..training.fingerprint import fingerprint
from ..training.objective import set_rate
from ..training.steps import EagerSteps, Steps
from ..training.task import Task

Report = Callable[[dict[str, Any]], None]
Stretch = list[float]


@dataclass(frozen=True, eq=False)
class Trained:
    """The network after the last epoch, the mean loss of each epoch, and when it trained, as seconds since 1970.

    A run that was stopped and resumed has trained in several stretches; each but the last ends in a checkpoint.
    """

    model: nn.Module
    losses: list[float]
    stretches: list[Stretch]


@contextmanager
def training(
    config: Config, task: Task, *, keeper: Keeper | None = None, report: Report = lambda _: None
) -> Iterator[Trained]:
    """Train to the last epoch, from the last checkpoint where the keeper has one.

    On a GPU the network is there for the block alone: then the next run takes its place.
    """
    begun = time.time()
    with steps_of(config, task) as steps:
        losses, stretches = _trained(config, task, steps, begun, keeper, report)
        yield Trained(steps.model.eval(), losses, stretches)


def train(config: Config, task: Task, *, keeper: Keeper | None = None, report: Report = lambda _: None) -> Trained:
    """`training` on a CPU, where networks last."""
    with training(config, task, keeper=keeper, report=report) as trained:
        return trained


@contextmanager
def steps_of(config: Config, task: Task) -> Iterator[Steps]:
    """The steps of a run on its device, at its beginning."""
    if config.device == "cpu":
        yield EagerSteps(config, task)
        return
    if not torch.cuda.is_available():
        raise ValueError("expected a GPU for device cuda, got a machine or a PyTorch without one")
    with SLOTS.lent(config, task, waits=True) as slot:
        yield slot


def _trained(
    config: Config, task: Task, steps: Steps, begun: float, keeper: Keeper | None, report: Report
) -> tuple[list[float], list[Stretch]]:
    arm, order = arm_named(config.arm), torch.Generator().manual_seed(config.seed)
    losses, earlier = list[float](), list[Stretch]()
    last = keeper.load_checkpoint() if keeper else None
    start = fingerprint(config, task.dataset) if keeper else {}
    if last is not None:
        if words := difference(last[1].get("fingerprint", {}), start):
            raise ValueError(f"expected a checkpoint of the same network and data, got {words}")
        restore(last[0], steps.model, steps.optimizer, order)
        losses, earlier = list(last[1]["losses"]), list(last[1].get("stretches", []))

    def stretches() -> list[Stretch]:
        return [*earlier, [begun, max(begun, time.time())]]  # clocks are set back, now and then

    def keep() -> None:
        if keeper and len(losses) < config.epochs:
            state = {"losses": losses, "stretches": stretches(), "fingerprint": start}
            keeper.save_checkpoint(captured(steps.model, steps.optimizer, order), state)

    kept = time.monotonic()
    while len(losses) < config.epochs:
        set_rate(steps.optimizer, config.rate_in(len(losses)))
        losses.append(steps.epoch(Draws.of(config, arm, len(task.labels), order)))
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
        except BaseException:  # whoever stops the run does it here: nothing of it is lost
            if not is_due:
                keep()
            raise
    return losses, stretches()
