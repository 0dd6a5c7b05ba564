"""The state of training as plain tensors: no pickle, so nothing that is loaded can run."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

Tensors = dict[str, Tensor]


class Keeper(Protocol):
    """Where checkpoints are kept; a run folder of `orthograd.lab.jobs` is one."""

    def save_checkpoint(self, tensors: Tensors, state: dict[str, Any]) -> None:
        """Replace the checkpoint."""

    def load_checkpoint(self) -> tuple[Tensors, dict[str, Any]] | None:
        """The last checkpoint, if any."""


def captured(model: nn.Module, optimizer: Optimizer, generator: torch.Generator) -> Tensors:
    """Weights and buffers, the optimizer's memory, and the state of the random numbers."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {
            f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in state.items() if value is not None
        }
    tensors["generator"] = generator.get_state()
    return {name: value.detach().clone().contiguous() for name, value in tensors.items()}


def restore(tensors: Tensors, model: nn.Module, optimizer: Optimizer, generator: torch.Generator) -> None:
    """Go on from what was captured; tensors that are there already keep their place, which a CUDA graph knows."""
    for name, value in model.state_dict().items():
        found = tensors.get(f"model.{name}")
        if found is None or found.shape != value.shape:  # where shapes broadcast, copying would not say so
            got = "none" if found is None else tuple(found.shape)
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
