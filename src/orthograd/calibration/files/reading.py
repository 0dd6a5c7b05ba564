"""Reads predictions from a file, by its suffix. File content is never executed."""

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
"""Offset and possible first bytes of each format."""

_PICKLES = {".pt", ".pth", ".ckpt", ".bin", ".pkl", ".pickle", ".joblib"}
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


@dataclass(frozen=True, eq=False)
class PredictionsFile:
    """Scores (n, classes) and labels (n,) from a file. Their values are checked when they are evaluated."""

    path: Path
    scores: Tensor
    labels: Tensor
    is_probabilities: bool
    source: str
    """Description of the used arrays or columns."""

    @property
    def name(self) -> str:
        """The name of the file, without its directory."""
        return self.path.name


def read_predictions(
    path: str | Path,
    *,
    scores_key: str | None = None,
    labels_key: str | None = None,
    classes: Sequence[str] | None = None,
    probabilities: bool = False,
) -> PredictionsFile:
    """Read logits, or probabilities, and labels from a .npz, .safetensors, .csv or .parquet file.

    Args:
        path: the file.
        scores_key: name of the array of scores; by default "logits", or "probabilities" or "probs".
        labels_key: name of the labels; by default "labels", "label", "y", "targets" or "target".
        classes: columns of a table, in the order of the labels; ["class_*"] means class_0, class_1 … By default all
            columns but the label, numbered from 0.
        probabilities: read probabilities instead of logits.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for other formats, broken files, and arrays or columns that are missing or ambiguous.
        ImportError: if the reader of the format is not installed.

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
        raise ValueError(f"{path}: cannot be read as {path.suffix.lower()}, is it complete? {reason}") from error
    return PredictionsFile(path, scores, _signed(labels), probabilities, source)


def _refuse_other_format(path: Path) -> None:
    """Raise if the first bytes of a file do not match its suffix, because errors of the readers are unclear."""
    suffix = path.suffix.lower()
    with path.open("rb") as file:
        start = file.read(4096)
    matching = [name for name, (at, signs) in _BEGINNINGS.items() if start[at:].startswith(signs)]
    if suffix in matching or (suffix == ".csv" and b"\0" not in start):  # text has no zero bytes
        return
    shown = f"it begins with {start[:12]!r}" if start else "it is empty"
    guess = f"a {matching[0]} file" if matching else "another format"
    raise ValueError(f"{path}: cannot be read as {suffix}: {shown}; is it {guess}?")


def _signed(labels: Tensor) -> Tensor:
    return labels.long() if labels.dtype in _UNSIGNED else labels  # torch has few operations for unsigned integers


def _reader(path: Path) -> Callable[[Path, Keys], formats.Content]:
    suffix = path.suffix.lower()
    if suffix in _READERS:
        return _READERS[suffix]
    reason = ""
    if suffix in _PICKLES:
        reason = f"; {suffix} files are pickles, which can run code when they are loaded"
    if suffix == ".npy":
        reason = "; a .npy holds one array, but scores and labels are needed: save both with numpy.savez"
    raise ValueError(
        f"{path}: expected {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, got {suffix or 'no suffix'}{reason}"
    )
