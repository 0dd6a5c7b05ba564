"""Checks of inputs. Each error names the value that was expected and the one that arrived."""

from __future__ import annotations

import operator
import sys
import warnings
from typing import Any

import torch
from torch import Tensor

from .frames import as_array, is_frame

MOST_BINS = 1000
"""More bins would be empty on any test set, and ``ece_by_chance_limit`` would need much memory for them."""


class InputWarning(UserWarning):
    """Logits look like probabilities. They are used as logits."""


def checked_logits(logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Checked logits (n, classes) in floating point, and labels (n,) in int64 on the same device.

    Warns if every row could be probabilities; they are still used as logits.
    """
    scores = _matrix(logits, "logits")
    truth = _checked_labels(labels, scores)
    if look_like_probabilities(scores):
        warnings.warn(
            "every row of these logits lies in [0, 1] and sums to 1: if they are probabilities, use "
            "evaluate_probabilities or update_probabilities, and fit calibrators to their logarithm",
            InputWarning,
            stacklevel=_callers_level(),
        )
    return scores, truth


def look_like_probabilities(scores: Tensor) -> bool:
    """True if every row lies in [0, 1] and sums to 1, up to rounding.

    >>> look_like_probabilities(torch.tensor([[0.25, 0.75], [1.0, 0.0]]))
    True
    """
    for rows in (scores[:1], scores):  # for logits the first row is usually enough
        low, high = (float(value) for value in rows.aminmax())
        if not (_is_within(low, high, scores.dtype) and float(_off(rows).max()) <= _tolerance(scores.dtype)):
            return False
    return True


def checked_probabilities(probabilities: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Checked probabilities (n, classes) and labels (n,).

    Rows must sum to 1 ± 1e-3 (in half precision 1 ± 8 eps), since printed numbers are rounded. Values outside [0, 1] by
    at most 1e-6 (in half precision 2 eps) are clamped.
    """
    scores = _matrix(probabilities, "probabilities")
    low, high = (float(value) for value in scores.aminmax())
    if not _is_within(low, high, scores.dtype):
        past = _past(scores.dtype)
        row, column = ((scores >= -past) & (scores <= 1 + past)).logical_not().nonzero()[0].tolist()
        raise ValueError(f"expected probabilities from 0 to 1, got {scores[row, column]:.7g} in row {row}")
    off = _off(scores)
    if float(off.max()) > _tolerance(scores.dtype):
        row = int(off.argmax())
        total = float(scores[row].double().sum())
        raise ValueError(
            f"expected probabilities that sum to 1, got a sum of {total:g} in row {row}; are these logits?"
        )
    return scores if low >= 0 and high <= 1 else scores.clamp(0, 1), _checked_labels(labels, scores)


def checked_bins(bins: Any) -> int:
    """The number of bins, an integer from 1 to 1000.

    >>> checked_bins(15)
    15
    """
    count = whole_number(bins, "bins")
    if count < 1:
        raise ValueError(f"expected at least one bin, got {bins}")
    if count > MOST_BINS:
        raise ValueError(f"expected at most {MOST_BINS} bins, got {bins}")
    return count


def whole_number(value: Any, name: str) -> int:
    """The value as int. Integers of numpy and torch are accepted, 10.0 is not."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"expected {name} as an integer, got {value!r}")
    return number


def refuse_broken(logits: Tensor) -> None:
    """Raise ValueError for logits that made a sum infinite or NaN."""
    broken = logits.isfinite().logical_not().nonzero()
    if len(broken):
        row, column = broken[0].tolist()
        raise ValueError(
            f"expected finite logits, got {float(logits[row, column])} in row {row}, class {column} "
            f"({len(broken)} of {logits.numel()} are not finite)"
        )
    widest = float(logits.abs().max())
    raise ValueError(f"expected logits whose squares fit {logits.dtype}, got one of size {widest:g}")


def computing_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype for computations: float32 for half precision, otherwise the same."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _accurate(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _tolerance(dtype: torch.dtype) -> float:
    """Largest error in the sum of a row of probabilities."""
    return max(1e-3, 8 * torch.finfo(dtype).eps)


def _off(scores: Tensor) -> Tensor:
    """|sum − 1| of each row."""
    return (scores.sum(1, dtype=_accurate(scores.dtype)) - 1).abs()


def _past(dtype: torch.dtype) -> float:
    """Largest distance of a probability from [0, 1]."""
    return max(1e-6, 2 * torch.finfo(dtype).eps)


def _is_within(low: float, high: float, dtype: torch.dtype) -> bool:
    """True if the range lies in [0, 1] up to rounding."""
    return low >= -_past(dtype) and high <= 1 + _past(dtype)


def _callers_level() -> int:
    """The stack level of the first caller outside this package and torch, for a warning."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("orthograd", "torch"):
        level, frame = level + 1, frame.f_back
    return level


def _tensor(values: Any, name: str) -> Tensor:
    """The values as a tensor, from anything that torch can convert."""
    if is_frame(values):
        values = as_array(values, name)
    if hasattr(values, "filled"):
        raise TypeError(f"expected {name} without a mask, got a {type(values).__name__}: remove the masked samples")
    tensor = _read(values, name)
    if tensor.layout != torch.strided:
        raise TypeError(f"expected {name} as a dense tensor, got {tensor.layout}: call .to_dense()")
    return tensor


def _read(values: Any, name: str) -> Tensor:
    try:
        if not getattr(getattr(values, "dtype", None), "isnative", True):
            values = values.astype(values.dtype.newbyteorder("="))  # torch supports only the native byte order
        return torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise TypeError(f"expected {name} as numbers, got a {type(values).__name__}: {reason}") from error


def _matrix(values: Any, name: str) -> Tensor:
    scores = _tensor(values, name)
    if not scores.is_floating_point():
        raise TypeError(f"expected {name} in floating point, got {scores.dtype}")
    if scores.element_size() < 2:
        raise TypeError(f"expected {name} of at least half precision, got {scores.dtype}")
    if scores.ndim != 2:
        raise ValueError(f"expected {name} (n, classes), got {tuple(scores.shape)}")
    if len(scores) == 0:
        raise ValueError(f"expected at least one sample, got {name} {tuple(scores.shape)}")
    if scores.shape[1] < 2:
        raise ValueError(f"expected at least two classes, got {name} {tuple(scores.shape)}; for a score s: [0, s]")
    return scores.cpu() if scores.device.type == "mps" else scores  # MPS has no float64, which the sums need


def _checked_labels(labels: Any, scores: Tensor) -> Tensor:
    truth = _tensor(labels, "labels").to(scores.device)
    if truth.is_floating_point() or truth.is_complex() or truth.dtype == torch.bool:
        raise TypeError(f"expected labels as integers, got {truth.dtype}")
    if truth.ndim != 1:
        raise ValueError(f"expected labels (n,), got {tuple(truth.shape)}")
    if len(truth) != len(scores):
        raise ValueError(f"expected a label for each of {len(scores)} samples, got {len(truth)}")
    numbers = truth.long()  # torch has few operations for unsigned integers
    low, high = (int(value) for value in numbers.aminmax())
    if low < 0 or high >= scores.shape[1]:
        row = int((numbers == (low if low < 0 else high)).nonzero()[0])
        raise ValueError(f"expected labels from 0 to {scores.shape[1] - 1}, got {truth[row].item()} in row {row}")
    return numbers
