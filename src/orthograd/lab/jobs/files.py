"""Files of a store: whole at every instant, locked between processes, in strict JSON or safetensors."""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor


class StoreError(Exception):
    """A file of a store is not what it must be, or cannot be written; the message begins with its path."""


@contextmanager
def naming(path: Path, action: str) -> Iterator[None]:
    """Turn the errors of the operating system into a StoreError that names the file.

    >>> with naming(Path("runs/record.json"), "be read"):
    ...     raise PermissionError(13, "Permission denied")
    Traceback (most recent call last):
    orthograd.lab.jobs.files.StoreError: runs/record.json: cannot be read: Permission denied
    """
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: cannot {action}: {error.strerror or error}") from error


UNFINISHED = ".unfinished"


def write(path: Path, data: bytes) -> None:
    """Put data at the path; whoever looks, even after a crash, finds what was there before or all of data.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder, "a.json"), b"{}")
    ...     [path.name for path in Path(folder).iterdir()]
    ['a.json']
    """
    unfinished = path.with_name(f".{path.name}-{os.getpid()}{UNFINISHED}")
    with naming(path, "be written"):
        try:
            _write_through(unfinished, data)
            os.replace(unfinished, path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise
        flush_folder(path.parent)


def replaced(path: Path, write: Callable[[Path], object]) -> Path:
    """Write beside the path, then move there: who reads meanwhile finds the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        write(unfinished)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def remove(path: Path) -> None:
    """Delete the file for good; no matter if there is none."""
    with naming(path, "be removed"), suppress(FileNotFoundError):
        path.unlink()
        flush_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make the folder and those above it, so that a crash does not take them away again."""
    with naming(path, "be made a folder"):
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            flush_folder(folder.parent)


def exists(path: Path) -> bool:
    """Whether there is such a file; a folder that may not be searched is an error, not a no."""
    with naming(path, "be looked for"):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True


def leftovers(folder: Path) -> list[Path]:
    """What writers that crashed have left."""
    return sorted(folder.glob(f".*{UNFINISHED}"))


def flush_folder(folder: Path) -> None:
    """A move is on the disk only when its folder is."""
    if os.name == "nt":
        return  # where folders cannot be opened
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_through(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def exclusive(path: Path) -> Iterator[bool]:
    """Whether the lock on this file is ours until the end of the block; never waits.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, exclusive(Path(folder, "lock")) as first:
    ...     with exclusive(Path(folder, "lock")) as second:
    ...         print(first, second)
    True False
    """
    with naming(path, "be opened"):
        file = open(path, "ab")  # noqa: SIM115 - closed below, where errors of the block do not pass for those of opening
    # The file stays: were it deleted, two processes could lock two files of one name.
    with file:
        is_ours = _is_locked_by_us(file, path)
        try:
            yield is_ours
        finally:
            # Processes forked in the block share the lock: it ends here, not with the last of them.
            if is_ours and fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_UN)


def _is_locked_by_us(file: IO[bytes], path: Path) -> bool:
    if fcntl is None:
        warnings.warn(
            f"{path}: this system has no fcntl, so runs are not locked: let one process at a time use the store",
            RuntimeWarning,
            stacklevel=2,
        )
        return True
    with naming(path, "be locked"):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


JsonObject = dict[str, Any]


def config_hash(config: JsonObject) -> str:
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


def plain_copy(config: JsonObject) -> JsonObject:
    """The config as it will be read from its file, sharing nothing with what was given."""
    if not isinstance(config, dict):
        raise TypeError(f"expected a config as a dict, got {config!r}")
    refuse_other_than_json(config, "config")
    copy: JsonObject = json.loads(json.dumps(config))
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
