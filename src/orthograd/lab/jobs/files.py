"""Contents of a store's files: strict JSON, or tensors in safetensors."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ..files import FileError, naming


class StoreError(FileError):
    """A file of a store is damaged or of another run; the message begins with its path."""


JsonObject = dict[str, Any]


def config_hash(config: JsonObject) -> str:
    """First 16 hex digits of the SHA-256 of the config's canonical JSON.

    >>> config_hash({"method": "sgd", "seed": 1}) == config_hash({"seed": 1, "method": "sgd"})
    True
    >>> config_hash({"seed": 1}) == config_hash({"seed": 1.0})
    False
    """
    return sha256(canonical_json(config, name="config").encode())[:16]


def canonical_json(data: Any, *, name: str = "data") -> str:
    """The one JSON text of a value: sorted keys, no spaces, floats by repr.

    >>> canonical_json({"b": [1, 1.0, True], "a": None})
    '{"a":null,"b":[1,1.0,true]}'
    """
    refuse_other_than_json(data, name)
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def plain_copy(config: JsonObject) -> JsonObject:
    """A deep copy of the config, as it will be read from its file."""
    if not isinstance(config, dict):
        raise TypeError(f"expected a config as a dict, got {config!r}")
    refuse_other_than_json(config, "config")
    copy: JsonObject = json.loads(json.dumps(config))
    return copy


def refuse_other_than_json(value: Any, name: str) -> None:
    """Raise, naming the place, if JSON would not restore a value exactly."""
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise TypeError(f"expected keys of {name} as strings, got {key!r}")
            if not _is_plain(part):
                refuse_other_than_json(part, f"{name}[{key!r}]")
    elif isinstance(value, list):
        for i, part in enumerate(value):
            if not _is_plain(part):
                refuse_other_than_json(part, f"{name}[{i}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"expected {name} as a finite number, got {value}: JSON has no such number")
    elif not (value is None or isinstance(value, (str, int, float))):
        raise TypeError(f"expected {name} as plain JSON data, got {value!r} of {type(value).__name__}")


def _is_plain(value: Any) -> bool:
    """True for most values, which need no name of their place: making one takes longer than the check."""
    kind = type(value)
    return kind is str or kind is int or (kind is float and math.isfinite(value))


def as_file(data: Any) -> bytes:
    """Indented strict JSON; its floats are restored exactly."""
    refuse_other_than_json(data, "record")
    return (json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    with naming(path, "be read"):
        data = path.read_bytes()
    try:
        content = json.loads(data, parse_constant=_refuse_constant)
        refuse_other_than_json(content, "data")  # 1e999 parses, as infinity
    except ValueError as error:
        raise StoreError(f"{path}: expected JSON, got {len(data)} bytes that do not parse: {error}") from error
    if not isinstance(content, dict):
        raise StoreError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content


def sha256(data: bytes) -> str:
    """The SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def as_bytes(tensors: dict[str, Tensor], text: str | None = None) -> bytes:
    """Bytes of a safetensors file; the same tensors give the same bytes."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"expected {name!r} as a tensor, got {type(tensor).__name__}")
    # One entry of metadata only: the order of several is random.
    return save({name: _own(tensor) for name, tensor in tensors.items()}, None if text is None else {"text": text})


def read(path: Path) -> tuple[dict[str, Tensor], str | None]:
    """Tensors and text of a file, both from one version even while the file is being replaced."""
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
