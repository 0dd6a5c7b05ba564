"""Read predictions from a file, by its suffix. Nothing that is read is ever executed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from . import formats
from .keys import Keys, UnusableError

_READERS: dict[str, Callable[[Path, Keys], formats.Content]] = {
    ".npz": formats.npz,
    ".safetensors": formats.safetensors,
    ".csv": formats.csv_table,
    ".parquet": formats.parquet,
}
SUFFIXES = tuple(_READERS)

_BEGINNINGS = {".npz": (0, (b"PK", b"\x93NUMPY")), ".parquet": (0, (b"PAR1",)), ".safetensors": (8, (b"{",))}
"""What the bytes of a file are from a given place on."""

_PICKLES = {".pt", ".pth", ".ckpt", ".bin", ".pkl", ".pickle", ".joblib"}
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


@dataclass(frozen=True, eq=False)
class PredictionsFile:
    """Scores (n, classes) and labels (n,) as a file holds them; `calibration` checks what they are."""

    path: Path
    scores: Tensor
    labels: Tensor
    is_probabilities: bool
    source: str
    """The arrays or columns that were used, in words."""

    @property
    def name(self) -> str:
        """The name of the file without its folder."""
        return self.path.name


def read_predictions(
    path: str | Path,
    *,
    scores_key: str | None = None,
    labels_key: str | None = None,
    classes: Sequence[str] | None = None,
    probabilities: bool = False,
) -> PredictionsFile:
    """Read a .npz, .safetensors, .csv or .parquet file of logits, or of probabilities where these are asked for.

    In a table the columns of the classes are numbered from 0, as labels are, or named by `classes` in the order of the
    labels; ["class_*"] stands for class_0, class_1 … beside other columns.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "predictions.csv")
    ...     _ = path.write_text("class_0,class_1,label\\n2.5,-1,0\\n0.5,1.5,1\\n")
    ...     read_predictions(path).scores
    tensor([[ 2.5000, -1.0000],
            [ 0.5000,  1.5000]], dtype=torch.float64)
    """
    path = Path(path)
    reader = _reader(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
    _refuse_other_format(path)
    try:
        scores, labels, source = reader(path, Keys(scores_key, labels_key, probabilities, classes))
    except UnusableError as error:
        raise ValueError(f"{path}: {error}") from error
    except (ImportError, PermissionError, MemoryError):
        raise
    except Exception as error:  # broken files raise errors of zipfile, zlib, pyarrow and others
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path}: cannot be read as {path.suffix.lower()}, is it whole? {reason}") from error
    return PredictionsFile(path, scores, _signed(labels), probabilities, source)


def _refuse_other_format(path: Path) -> None:
    """Say what a file is where its suffix says something else: the readers' own errors do not."""
    suffix = path.suffix.lower()
    with path.open("rb") as file:
        start = file.read(4096)
    matching = [name for name, (at, signs) in _BEGINNINGS.items() if start[at:].startswith(signs)]
    if suffix in matching or (suffix == ".csv" and b"\0" not in start):  # text has no zero bytes
        return
    shown = f"it begins with {start[:12]!r}" if start else "it is empty"
    kind = f"a {matching[0]} file" if matching else "another format"
    raise ValueError(f"{path}: cannot be read as {suffix}: {shown}; is it {kind}?")


def _signed(labels: Tensor) -> Tensor:
    return labels.long() if labels.dtype in _UNSIGNED else labels  # torch can hold these, but hardly compute with them


def _reader(path: Path) -> Callable[[Path, Keys], formats.Content]:
    suffix = path.suffix.lower()
    if suffix in _READERS:
        return _READERS[suffix]
    reason = ""
    if suffix in _PICKLES:
        reason = f"; {suffix} files are pickles, which can run code when they are loaded"
    if suffix == ".npy":
        reason = "; a .npy holds one array, and both scores and labels are needed: numpy.savez writes both"
    raise ValueError(
        f"{path}: expected {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, got {suffix or 'no suffix'}{reason}"
    )
