"""Reads predictions from a file, by its suffix. File content is never executed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from ..inputs import Form, Scores, Task
from . import formats, rows
from .keys import Keys, Normalization, UnusableError

_Reader = Callable[[Path, Keys, formats.Report], formats.Content]
_READERS: dict[str, _Reader] = {
    ".npz": formats.npz,
    ".safetensors": formats.safetensors,
    ".csv": formats.csv_table,
    ".parquet": formats.parquet,
    ".jsonl": rows.jsonl,
    ".json": rows.json_file,
}
SUFFIXES = tuple(_READERS)

_BEGINNINGS = {".npz": (0, (b"PK", b"\x93NUMPY")), ".parquet": (0, (b"PAR1",)), ".safetensors": (8, (b"{",))}
"""Offset and possible first bytes of each format."""

_TEXTS = (".csv", ".jsonl", ".json")
_PICKLES = {".pt", ".pth", ".ckpt", ".bin", ".pkl", ".pickle", ".joblib"}
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


@dataclass(frozen=True, eq=False)
class PredictionsFile:
    """Scores and labels from a file, by default (n, classes) and (n,). Values are checked when they are evaluated."""

    path: Path
    scores: Tensor
    labels: Tensor
    is_probabilities: bool
    source: str
    """Description of the used arrays or columns."""

    form: Form = field(default_factory=Form)
    offsets: Tensor | None = None
    """Offsets (n + 1,) of the scores (m,) of multiple choice."""

    benchmark: str | None = None
    """The task of lm-evaluation-harness."""

    lines: Sequence[int] = ()
    """The line of each row in a .csv or .jsonl file of scores."""

    @property
    def name(self) -> str:
        """The name of the file, without its directory."""
        return self.path.name

    @property
    def kind(self) -> Scores:
        """``"logits"`` or ``"probabilities"``."""
        return "probabilities" if self.is_probabilities else "logits"

    @property
    def classes(self) -> int | None:
        """The number of classes, or of labels of a multi-label problem; None for multiple choice."""
        if self.form.task == "multiple_choice":
            return None
        return 2 if self.form.task == "binary" else self.form.classes_last(self.scores, self.kind).shape[-1]

    def in_lines(self, message: str) -> str:
        """A message about a row, with its line in the file instead if lines are known.

        >>> file = PredictionsFile(Path("a.csv"), torch.zeros(2, 3), torch.zeros(2), False, "", lines=[2, 4])
        >>> file.in_lines("expected finite logits, got nan in row 1, class 0")
        'expected finite logits, got nan in line 4, class 0'
        """

        def named(match: re.Match[str]) -> str:
            label = f", label {match[2]}" if match[2] else ""
            return f"in line {self.lines[int(match[1])]}{label}"

        return re.sub(r"(?:in row |at \()(\d+)(?:, (\d+)\))?", named, message) if self.lines else message

    def to(self, device: torch.device) -> PredictionsFile:
        """The file with its tensors on a device."""
        offsets = None if self.offsets is None else self.offsets.to(device)
        return replace(self, scores=self.scores.to(device), labels=self.labels.to(device), offsets=offsets)


def read_predictions(
    path: str | Path,
    *,
    scores_key: str | None = None,
    labels_key: str | None = None,
    classes: Sequence[str] | None = None,
    probabilities: bool = False,
    task: Task = "multiclass",
    classes_dim: int | None = None,
    ignore_index: int | None = None,
    normalize: Normalization = "none",
    report: formats.Report = lambda _: None,
) -> PredictionsFile:
    """Read logits, or probabilities, and labels from a .npz, .safetensors, .csv, .parquet, .jsonl or .json file.

    Args:
        path: the file.
        scores_key: name of the array of scores; by default "logits", or "probabilities" or "probs", or what Hugging
            Face calls them: "predictions", or "scores".
        labels_key: name of the labels; by default "labels", "label", "y", "targets" or "target", or else
            "label_ids" or "y_true".
        classes: columns of a table, in the order of the labels; ["class_*"] means class_0, class_1 … By default all
            columns but the label and those without a name, numbered from 0. Labels may be the names of these columns.
        probabilities: read probabilities instead of logits.
        task, classes_dim, ignore_index: the form of the predictions, as in `evaluate`. Samples of lm-evaluation-harness
            are multiple choice without being told.
        normalize: divide the log-likelihoods of lm-evaluation-harness by the number of "characters" of a choice, as its
            acc_norm does, or of "bytes", as acc_bytes does.
        report: is called with the number of bytes that were read so far from a .csv or .jsonl file.

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
    path, form = Path(path), Form(task, classes_dim, ignore_index)
    if normalize not in get_args(Normalization):
        raise ValueError(f"expected normalize among {', '.join(get_args(Normalization))}, got {normalize!r}")
    reader = _reader(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
    _refuse_other_format(path)
    try:
        content = reader(path, Keys(scores_key, labels_key, probabilities, classes, task, normalize), report)
    except UnusableError as error:
        raise ValueError(f"{path}{error.place}: {error}") from error
    except (ImportError, PermissionError, MemoryError):
        raise
    except Exception as error:  # broken files raise errors of zipfile, zlib, pyarrow and others
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path}: cannot be read as {path.suffix.lower()}, is it complete? {reason}") from error
    form = form if content.task is None else Form(content.task, None, ignore_index)
    labels, offsets = _signed(content.labels), None if content.offsets is None else _signed(content.offsets)
    return PredictionsFile(
        path, content.scores, labels, probabilities, content.source, form, offsets, content.name, content.lines
    )


def _refuse_other_format(path: Path) -> None:
    """Raise if the first bytes of a file do not match its suffix, because errors of the readers are unclear."""
    suffix = path.suffix.lower()
    with path.open("rb") as file:
        start = file.read(4096)
    matching = [name for name, (at, signs) in _BEGINNINGS.items() if start[at:].startswith(signs)]
    if suffix in matching or (suffix in _TEXTS and b"\0" not in start):  # text has no zero bytes
        return
    shown = f"it begins with {start[:12]!r}" if start else "it is empty"
    guess = f"a {matching[0]} file" if matching else "another format"
    raise ValueError(f"{path}: cannot be read as {suffix}: {shown}; is it {guess}?")


def _signed(values: Tensor) -> Tensor:
    return values.long() if values.dtype in _UNSIGNED else values  # torch has few operations for unsigned integers


def _reader(path: Path) -> _Reader:
    suffix = path.suffix.lower()
    if suffix in _READERS:
        return _READERS[suffix]
    reason = ""
    if suffix in _PICKLES:
        reason = f"; {suffix} files are pickles, which can run code when they are loaded: save with numpy.savez"
    if suffix == ".npy":
        reason = "; a .npy holds one array, but scores and labels are needed: save both with numpy.savez"
    raise ValueError(
        f"{path}: expected {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, got {suffix or 'no suffix'}{reason}"
    )
