"""The start of a seed: its labeled training images, and its network before training."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from ..data import DATASETS, Dataset
from ..networks import MODELS
from .config import Config

HELD_OUT = 5000
"""Most training images beyond the labeled ones that are held out, to fit a temperature."""

# PyTorch has one default generator in a process, and networks draw their initial weights and dropout from it.
_GLOBAL_RANDOM_NUMBERS = threading.Lock()


@dataclass(frozen=True, eq=False)
class Task:
    """Data of a seed for training and evaluation, the same for every method: runs of a seed are paired."""

    dataset: Dataset
    images: Tensor
    labels: Tensor
    held_out_images: Tensor
    held_out_labels: Tensor

    @classmethod
    def of(cls, config: Config) -> Task:
        """The data of a config's seed."""
        data = function_named(config.dataset, DATASETS, "a data set")()
        if not isinstance(data, Dataset):
            raise ValueError(
                f"expected {config.dataset} to make an orthograd.lab.data.Dataset, got {type(data).__name__}"
            )
        if config.labels_per_class == 0:
            return cls(data, data.train_images, data.train_labels, data.test_images[:0], data.test_labels[:0])
        images, labels, left = data.few(config.labels_per_class, seed=config.seed)
        held_out = _held_out(data.train_labels, left)
        return cls(data, images, labels, data.train_images[held_out], data.train_labels[held_out])


def _held_out(labels: Tensor, left: Tensor) -> Tensor:
    """The first of the rows left, or evenly spaced ones if the first miss a class, as in sorted data.

    >>> _held_out(torch.arange(20_000) // 10_000, torch.arange(20_000))[[0, 1, -1]].tolist()
    [0, 4, 19996]
    """
    first = left[:HELD_OUT]
    if len(labels[first].unique()) == len(labels[left].unique()):
        return first
    return left[torch.arange(HELD_OUT) * len(left) // HELD_OUT]


def check_names(config: Config) -> None:
    """Raise ValueError for an unknown data set or network, without making either."""
    function_named(config.dataset, DATASETS, "a data set")
    function_named(config.model, MODELS, "a model")


def initial_model(config: Config, data: Dataset) -> nn.Module:
    """The network before training; it depends on the seed, not on the method."""
    make = function_named(config.model, MODELS, "a model")
    with seeded(config.seed):
        model = make(data.shape, data.classes)
    if not isinstance(model, nn.Module):
        raise ValueError(f"expected {config.model} to make a torch.nn.Module, got {type(model).__name__}")
    return model


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the CPU's default generator inside the block, and restore its state afterwards."""
    with _GLOBAL_RANDOM_NUMBERS, torch.random.fork_rng(devices=[]):  # one thread at a time
        torch.default_generator.manual_seed(seed)
        yield


def function_named(name: str, known: Mapping[str, Callable[..., Any]], what: str) -> Callable[..., Any]:
    """The function of this name, or at this import path. As with `python -m`, modules are also in the current folder.

    >>> function_named("math:sqrt", {}, "a function")(4.0)
    2.0
    """
    if name in known:
        return known[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(
            f"expected {what} among {', '.join(known)}, or an import path like package.module:name, got {name}"
        )
    if not {"", here := os.getcwd()} & {*sys.path}:  # an installed script has its own folder there instead
        sys.path.insert(0, here)
    try:
        function = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        advice = ""
        if module.endswith(".py"):
            advice = f": name the module without .py, {module.removesuffix('.py')}:{attribute}"
        elif isinstance(error, ModuleNotFoundError):
            advice = f" in the current folder {here} or on Python's path"
        raise ValueError(f"expected {what} at the import path {name}, but {error}{advice}") from error
    if not callable(function):
        raise ValueError(f"expected a function at the import path {name}, got {type(function).__name__}")
    return function  # type: ignore[no-any-return]
