"""Plain JSON data, and the hash that names a config."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from .problems import StoreError, naming

Config = dict[str, Any]


def config_hash(config: Config) -> str:
    """First 16 hex digits of the SHA-256 of the config's canonical JSON.

    >>> config_hash({"arm": "sgd", "seed": 1}) == config_hash({"seed": 1, "arm": "sgd"})
    True
    >>> config_hash({"seed": 1}) == config_hash({"seed": 1.0})
    False
    """
    return sha256(canonical_json(config, name="config").encode())[:16]


def canonical_json(data: Any, *, name: str = "data") -> str:
    """One text for each value: sorted keys, no spaces, floats by repr.

    >>> canonical_json({"b": [1, 1.0, True], "a": None})
    '{"a":null,"b":[1,1.0,true]}'
    """
    refuse_other_than_json(data, name)
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def plain_copy(config: Config) -> Config:
    """The config as it will be read from its file, sharing nothing with what was given."""
    if not isinstance(config, dict):
        raise TypeError(f"expected a config as a dict, got {config!r}")
    refuse_other_than_json(config, "config")
    copy: Config = json.loads(json.dumps(config))
    return copy


def refuse_other_than_json(value: Any, name: str) -> None:
    """Raise, naming the place, where a value would not come back from JSON as it went in."""
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise TypeError(f"expected keys of {name} as strings, got {key!r}")
            refuse_other_than_json(part, f"{name}[{key!r}]")
    elif isinstance(value, list):
        for i, part in enumerate(value):
            refuse_other_than_json(part, f"{name}[{i}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"expected {name} as a finite number, got {value}: JSON has no such number")
    elif not (value is None or isinstance(value, (str, int, float))):
        raise TypeError(f"expected {name} as plain JSON data, got {value!r} of {type(value).__name__}")


def as_file(data: Any) -> bytes:
    """Strict JSON for people to read, whose floats come back exactly."""
    refuse_other_than_json(data, "record")
    return (json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    with naming(path, "be read"):
        data = path.read_bytes()
    try:
        found = json.loads(data, parse_constant=_refuse_constant)
        refuse_other_than_json(found, "data")  # 1e999 parses, as infinity
    except ValueError as error:
        raise StoreError(f"{path}: expected JSON, got {len(data)} bytes that do not parse: {error}") from error
    if not isinstance(found, dict):
        raise StoreError(f"{path}: expected a JSON object, got {type(found).__name__}")
    return found


def sha256(data: bytes) -> str:
    """The SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
