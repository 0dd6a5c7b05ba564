"""Files of named arrays: .npz and .safetensors."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from .keys import Keys, UnusableError

Content = tuple[Tensor, Tensor, str]
"""Scores, labels, and in words where in the file they were."""


def needed(module: str, path: Path) -> ModuleType:
    """A module that torch does not bring along; where it is missing, the message says how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"{path}: {path.suffix} files need {package}: pip install '.[lab]'", name=package) from error


def npz(path: Path, keys: Keys) -> Content:
    """Scores and labels of numpy.savez(path, logits=…, labels=…)."""
    numpy = needed("numpy", path)
    file = numpy.load(path, allow_pickle=False)
    if not hasattr(file, "files"):
        raise UnusableError("expected the named arrays of numpy.savez(path, logits=…, labels=…), got a single array")
    with file:
        scores, labels = keys.arrays_among(file.files)
        return _numbers(numpy, file, scores), _numbers(numpy, file, labels), keys.source(scores, labels)


def safetensors(path: Path, keys: Keys) -> Content:
    """Scores and labels of safetensors.torch.save_file({"logits": …, "labels": …}, path)."""
    with needed("safetensors", path).safe_open(path, framework="pt") as file:
        scores, labels = keys.arrays_among(file.keys())
        values = file.get_tensor(scores)
        if values.is_floating_point() and values.element_size() < 2:
            raise UnusableError(f"expected scores of at least half precision in {scores!r}, got {values.dtype}")
        return values, file.get_tensor(labels), keys.source(scores, labels)


def _numbers(numpy: ModuleType, file: Any, name: str) -> Tensor:
    try:
        values = file[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise UnusableError(f"{name!r} holds Python objects, a pickle, which could run code: save numbers") from error
    if values.dtype.kind not in "fiub":
        raise UnusableError(f"expected numbers in {name!r}, got an array of {values.dtype}")
    return torch.from_numpy(numpy.asarray(values, dtype=values.dtype.newbyteorder("=")))  # torch knows this order alone
