"""Tensors, with a little text, as the bytes of one safetensors file."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from .problems import StoreError, naming


def as_bytes(tensors: dict[str, Tensor], text: str | None = None) -> bytes:
    """The file's bytes: the same for the same tensors."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"expected {name!r} as a tensor, got {type(tensor).__name__}")
    # One entry of metadata only: the order of several is random.
    return save({name: _own(tensor) for name, tensor in tensors.items()}, None if text is None else {"text": text})


def read(path: Path) -> tuple[dict[str, Tensor], str | None]:
    """The tensors and the text, both of one instant even while the file is being replaced."""
    with naming(path, "be read"):
        return parsed(path, path.read_bytes())


def parsed(path: Path, data: bytes) -> tuple[dict[str, Tensor], str | None]:
    """The tensors and the text in the bytes of the file at the path."""
    try:
        tensors = load(data)
    except (SafetensorError, ValueError) as error:
        raise StoreError(f"{path}: expected safetensors, got {len(data)} bytes that do not parse: {error}") from error
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return tensors, header.get("__metadata__", {}).get("text")


def _own(tensor: Tensor) -> Tensor:
    # safetensors refuses views and tensors that share memory, as tied weights do.
    return tensor.detach().to("cpu", copy=True).contiguous(memory_format=torch.contiguous_format)
