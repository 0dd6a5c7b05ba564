"""One run: a config in; a trained network, what it says of the test images, and the story of its training out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..datasets import DATASETS, SEVERITIES, SHIFTS, Dataset, shifted
from ..models import MODELS
from .arms import arm_of, mixed, optimizer_of
from .checkpoint import Keeper, captured, restore
from .config import Config
from .lookup import found

HELD_OUT = 500
"""Training images beyond the labelled few, at most, on which a temperature may be fitted."""


@dataclass(frozen=True, eq=False)
class Trained:
    """The network after the last epoch, and the mean training loss of each epoch."""

    model: nn.Module
    losses: list[float]


@dataclass(frozen=True, eq=False)
class Task:
    """What a seed learns from and is judged by: the same for every arm, so that runs of a seed are pairs."""

    dataset: Dataset
    images: Tensor
    labels: Tensor
    held_out_images: Tensor
    held_out_labels: Tensor

    @classmethod
    def of(cls, config: Config) -> Task:
        """The data of a config's seed."""
        data = found(config.dataset, DATASETS, "a data set")()
        if not isinstance(data, Dataset):
            raise ValueError(
                f"expected {config.dataset} to make an orthograd.datasets.Dataset, got {type(data).__name__}"
            )
        if config.labels_per_class == 0:
            return cls(data, data.train_images, data.train_labels, data.test_images[:0], data.test_labels[:0])
        images, labels, left = data.few(config.labels_per_class, seed=config.seed)
        return cls(data, images, labels, data.train_images[left[:HELD_OUT]], data.train_labels[left[:HELD_OUT]])


def initial_model(config: Config, data: Dataset) -> nn.Module:
    """The network before training, which depends on the seed and not on the arm."""
    make = found(config.model, MODELS, "a model")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = make(data.shape, data.classes)
    if not isinstance(model, nn.Module):
        raise ValueError(f"expected {config.model} to make a torch.nn.Module, got {type(model).__name__}")
    return model


def train(
    config: Config,
    task: Task,
    *,
    keeper: Keeper | None = None,
    report: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Trained:
    """Train to the last epoch, from the last checkpoint where the keeper has one."""
    arm, model = arm_of(config), initial_model(config, task.dataset)
    optimizer = optimizer_of(config, model)
    order = torch.Generator().manual_seed(config.seed)
    losses: list[float] = []
    last = keeper.load_checkpoint() if keeper else None
    if last is not None:
        restore(last[0], model, optimizer, order)
        losses = list(last[1]["losses"])
    targets = functional.one_hot(task.labels, task.dataset.classes).float()
    model.train()
    while len(losses) < config.epochs:
        total = 0.0
        for rows in torch.randperm(len(targets), generator=order).split(config.batch_size):
            images, wanted = task.images[rows], targets[rows]
            if arm.mixing:
                images, wanted = mixed(images, wanted, arm.mixing, order)
            optimizer.zero_grad()
            loss = arm.loss(model(images), wanted)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(loss.detach()) * len(rows)
        losses.append(total / len(targets))
        if keeper and len(losses) < config.epochs:
            keeper.save_checkpoint(captured(model, optimizer, order), {"losses": losses})
        report({"epoch": len(losses), "epochs": config.epochs, "loss": losses[-1]})
    return Trained(model.eval(), losses)


@torch.no_grad()
def predicted(trained: Trained, task: Task) -> dict[str, Tensor]:
    """Logits and labels: of clean test images, of every shift at every severity, and of held-out images."""
    model, data = trained.model, task.dataset
    logits = {"clean": _logits(model, data.test_images)}
    for name in SHIFTS:
        for severity in SEVERITIES:
            logits[f"{name}.{severity}"] = _logits(model, shifted(data.test_images, name, severity=severity))
    tensors = {f"logits.{name}": value for name, value in logits.items()} | {"labels": data.test_labels}
    if len(task.held_out_labels):
        tensors |= {"logits.held_out": _logits(model, task.held_out_images), "labels.held_out": task.held_out_labels}
    return tensors


def _logits(model: nn.Module, images: Tensor) -> Tensor:
    return torch.cat([model(part) for part in images.split(1024)])
