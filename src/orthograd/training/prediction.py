"""What a trained network says of the images that it is judged by."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..datasets import Dataset
from .config import Config
from .judgement import judged_by
from .precision import autocast
from .task import Task

BATCH = {"cpu": 1024, "cuda": 5000}


@torch.no_grad()
def predicted(model: nn.Module, task: Task, config: Config) -> dict[str, Tensor]:
    """Logits and labels: of clean test images, of every shift at every severity, and of held-out images."""
    tensors = {
        f"logits.{name}": logits(model, task.dataset, images, config)
        for name, images in judged_by(config, task.dataset)
    }
    tensors["labels"] = task.dataset.test_labels.to(config.device)
    if len(task.held_out_labels):
        held_out = task.held_out_images.to(config.device)
        tensors["logits.held_out"] = logits(model, task.dataset, held_out, config)
        tensors["labels.held_out"] = task.held_out_labels.to(config.device)
    return tensors


def logits(model: nn.Module, data: Dataset, images: Tensor, config: Config) -> Tensor:
    """The network's logits in float32, computed in the precision of its training."""
    layout = torch.channels_last if config.device == "cuda" else torch.contiguous_format
    found = []
    for part in images.split(BATCH[config.device]):
        with autocast(config.precision):
            found.append(model(data.normalised(part).contiguous(memory_format=layout)).float())
    return torch.cat(found)
