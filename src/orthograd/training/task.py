"""What a seed starts from: its few training images, and its network before training."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..datasets import DATASETS, Dataset
from ..models import MODELS
from .config import Config
from .lookup import found

HELD_OUT = 5000
"""Training images beyond the labelled few, at most, on which a temperature may be fitted."""

_GLOBAL_RANDOM_NUMBERS = threading.Lock()


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
    with _GLOBAL_RANDOM_NUMBERS, torch.random.fork_rng(devices=[]):  # runs in other threads make theirs
        torch.manual_seed(config.seed)
        model = make(data.shape, data.classes)
    if not isinstance(model, nn.Module):
        raise ValueError(f"expected {config.model} to make a torch.nn.Module, got {type(model).__name__}")
    return model
