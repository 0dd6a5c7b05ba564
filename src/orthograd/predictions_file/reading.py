"""Read predictions from a file, by its suffix. Nothing that is read is ever executed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from . import arrays, tables
from .keys import Keys, UnusableError

_READERS: dict[str, Callable[[Path, Keys], tuple[Tensor, Tensor]]] = {
    ".npz": arrays.npz,
    ".safetensors": arrays.safetensors,
    ".csv": tables.csv_table,
    ".parquet": tables.parquet,
}
SUFFIXES = tuple(_READERS)

_PICKLES = {".pt", ".pth", ".ckpt", ".bin", ".pkl", ".pickle", ".joblib"}
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


@dataclass(frozen=True, eq=False)
class PredictionsFile:
    """Scores (n, classes) and labels (n,) as a file holds them; `calibration` checks what they are."""

    path: Path
    scores: Tensor
    labels: Tensor
    is_probabilities: bool

    @property
    def name(self) -> str:
        """The name of the file without its folder."""
        return self.path.name


def read_predictions(
    path: str | Path, *, scores_key: str | None = None, labels_key: str | None = None, probabilities: bool = False
) -> PredictionsFile:
    """Read a .npz, .safetensors, .csv or .parquet file of logits, or of probabilities where these are asked for.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "predictions.csv")
    ...     _ = path.write_text("cat,dog,label\\n2.5,-1,0\\n0.5,1.5,1\\n")
    ...     read_predictions(path).scores
    tensor([[ 2.5000, -1.0000],
            [ 0.5000,  1.5000]], dtype=torch.float64)
    """
    path = Path(path)
    reader = _reader(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
    try:
        scores, labels = reader(path, Keys(scores_key, labels_key, probabilities))
    except UnusableError as error:
        raise ValueError(f"{path}: {error}") from error
    except (ImportError, PermissionError, MemoryError):
        raise
    except Exception as error:  # broken files raise errors of zipfile, zlib, pyarrow and others
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path}: cannot be read as {path.suffix.lower()}, is it whole? {reason}") from error
    return PredictionsFile(path, scores, _signed(labels), probabilities)


def _signed(labels: Tensor) -> Tensor:
    return labels.long() if labels.dtype in _UNSIGNED else labels  # torch can hold these, but hardly compute with them


def _reader(path: Path) -> Callable[[Path, Keys], tuple[Tensor, Tensor]]:
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
