"""What may be evaluated: every other input raises here, naming what arrived and what was expected."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def checked_logits(logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Logits (n, classes) in floating point and labels (n,) of int64 on the same device."""
    scores = _matrix(logits, "logits")
    return scores, _checked_labels(labels, scores)


def checked_probabilities(probabilities: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Probabilities (n, classes), not negative and with rows that sum to one, and labels (n,) as above."""
    scores = _matrix(probabilities, "probabilities")
    if not bool(((scores >= 0) & (scores <= 1)).all()):
        row, column = ((scores >= 0) & (scores <= 1)).logical_not().nonzero()[0].tolist()
        raise ValueError(f"expected probabilities from 0 to 1, got {scores[row, column]:g} in row {row}")
    off = (scores.sum(1, dtype=_accurate(scores.dtype)) - 1).abs()
    if float(off.max()) > max(1e-3, 8 * torch.finfo(scores.dtype).eps):  # printed or half-precision numbers are rounded
        row = int(off.argmax())
        total = float(scores[row].double().sum())
        raise ValueError(
            f"expected probabilities that sum to 1, got a sum of {total:g} in row {row}; are these logits?"
        )
    return scores, _checked_labels(labels, scores)


def refuse_broken(logits: Tensor) -> None:
    """Say what is wrong with logits that made a sum infinite or NaN."""
    broken = logits.isfinite().logical_not().nonzero()
    if len(broken):
        row, column = broken[0].tolist()
        raise ValueError(
            f"expected finite logits, got {float(logits[row, column])} in row {row}, class {column} "
            f"({len(broken)} of {logits.numel()} are not finite)"
        )
    widest = float(logits.abs().max())
    raise ValueError(f"expected logits whose squares {logits.dtype} can hold, got one of size {widest:g}")


def computing_dtype(dtype: torch.dtype) -> torch.dtype:
    """Half precision is computed in float32, everything else as it comes."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _accurate(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _matrix(values: Any, name: str) -> Tensor:
    scores = torch.as_tensor(values).detach()
    if not scores.is_floating_point():
        raise TypeError(f"expected {name} in floating point, got {scores.dtype}")
    if scores.ndim != 2:
        raise ValueError(f"expected {name} (n, classes), got {tuple(scores.shape)}")
    if len(scores) == 0:
        raise ValueError(f"expected at least one sample, got {name} {tuple(scores.shape)}")
    if scores.shape[1] < 2:
        raise ValueError(f"expected at least two classes, got {name} {tuple(scores.shape)}; for one score s: [0, s]")
    return scores.cpu() if scores.device.type == "mps" else scores  # no float64 there, which the sums need


def _checked_labels(labels: Any, scores: Tensor) -> Tensor:
    truth = torch.as_tensor(labels).detach().to(scores.device)
    if truth.is_floating_point() or truth.is_complex() or truth.dtype == torch.bool:
        raise TypeError(f"expected labels as whole numbers, got {truth.dtype}")
    if truth.ndim != 1:
        raise ValueError(f"expected labels (n,), got {tuple(truth.shape)}")
    if len(truth) != len(scores):
        raise ValueError(f"expected a label for each of {len(scores)} samples, got {len(truth)}")
    low, high = (int(value) for value in truth.aminmax())
    if low < 0 or high >= scores.shape[1]:
        value = low if low < 0 else high
        raise ValueError(
            f"expected labels from 0 to {scores.shape[1] - 1}, got {value} in row {int((truth == value).nonzero()[0])}"
        )
    return truth.long()
