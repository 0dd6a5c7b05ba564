"""Numbers in any form as tensors, and checks of scores. Each error names what was expected and what arrived."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .frames import as_array, is_frame
from .rows import BLOCK, Rows


def as_tensor(values: Any, name: str) -> Tensor:
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


def floating(values: Any, name: str) -> Tensor:
    """Scores as a tensor of at least half precision, and not empty."""
    scores = as_tensor(values, name)
    if not scores.is_floating_point():
        raise TypeError(f"expected {name} in floating point, got {scores.dtype}")
    if scores.element_size() < 2:
        raise TypeError(f"expected {name} of at least half precision, got {scores.dtype}")
    if scores.ndim > 0 and scores.numel() == 0:
        raise ValueError(f"expected at least one sample, got {name} {tuple(scores.shape)}")
    return scores.cpu() if scores.device.type == "mps" else scores  # MPS has no float64, which the sums need


def integers(values: Any, name: str, *, or_booleans: bool = False) -> Tensor:
    """The values as a tensor of integers."""
    numbers = as_tensor(values, name)
    is_refused = numbers.is_floating_point() or numbers.is_complex()
    if is_refused or (numbers.dtype == torch.bool and not or_booleans):
        raise TypeError(f"expected {name} as integers, got {numbers.dtype}{_remedy(numbers)}")
    return numbers


def _remedy(numbers: Tensor) -> str:
    if numbers.is_floating_point() and numbers.isnan().any():  # missing values turn integers of pandas into floats
        return " with NaN: drop these samples, or replace NaN by an integer and name that one as ignore_index"
    return "; convert whole numbers, as by .astype(int) or .long()" if numbers.is_floating_point() else ""


def whole_number(value: Any, name: str) -> int:
    """The value as int. Integers of numpy and torch are accepted, 10.0 is not."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"expected {name} as an integer, got {value!r}")
    return number


def computing_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype for computations: float32 for half precision, otherwise the same."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def look_like_probabilities(parts: Sequence[Rows]) -> bool:
    """True if every sample lies in [0, 1] and sums to 1, up to rounding; binary ones only lie there, and are not all 0.

    >>> look_like_probabilities([Rows(torch.tensor([[0.25, 0.75], [1.0, 0.0]]), torch.tensor([0, 1]))])
    True
    """
    is_zero = True
    for rows in parts:
        for block in rows.blocks():
            scores = block.scores[:, 1] if rows.pair else block.scores  # of the pair [0, s], s itself
            # For logits the first sample is usually enough.
            if not all(_lie_in_range(some) for some in (scores[:1], scores) if len(some)):
                return False
            is_zero &= not bool(scores.any())
    return not is_zero


def _lie_in_range(scores: Tensor) -> bool:
    """True if scores (n,) lie in [0, 1], or if scores (n, classes) do and sum to 1, up to rounding."""
    low, high = (float(value) for value in scores.aminmax())
    if scores.ndim == 1:
        return low >= 0 and high <= 1
    return _is_within(low, high, scores.dtype) and float(_off(scores).max()) <= _tolerance(scores.dtype)


def checked_range(rows: Rows) -> Rows:
    """Probabilities within [0, 1]; what rounding put outside is clamped. Raises ValueError for others."""
    scores = rows.scores
    low, high = (float(value) for value in scores.aminmax())
    if not _is_within(low, high, scores.dtype):
        past = _past(scores.dtype)
        is_outside = _among_kept(((scores >= -past) & (scores <= 1 + past)).logical_not(), rows.is_kept)
        if bool(is_outside.any()):
            first = is_outside.nonzero()[0].tolist()
            value, where = float(scores[tuple(first)]), rows.place(first if rows.pair else first[:-1])
            raise ValueError(f"expected probabilities from 0 to 1, got {value:.7g} {where}")
    if not rows.pair:
        _refuse_other_sums(rows)
    return rows if low >= 0 and high <= 1 else replace(rows, scores=scores.clamp(0, 1))


def _refuse_other_sums(rows: Rows) -> None:
    off = _off(rows.scores)
    off = off if rows.is_kept is None else off.where(rows.is_kept, off.new_zeros(()))
    if float(off.max()) > _tolerance(rows.scores.dtype):
        first = (off == off.max()).nonzero()[0].tolist()
        total = float(rows.scores[tuple(first)].double().sum())
        raise ValueError(
            f"expected probabilities that sum to 1, got a sum of {total:g} {rows.place(first)}; if they were rounded, "
            f"store more digits, or divide each row by its sum"
        )


def _among_kept(flags: Tensor, is_kept: Tensor | None) -> Tensor:
    """The flags of positions that are samples."""
    if is_kept is None:
        return flags
    return flags & (is_kept if flags.ndim == is_kept.ndim else is_kept[..., None])


def refuse_broken(rows: Rows) -> None:
    """Raise ValueError for logits that made a sum infinite or NaN."""
    logits, first, count = rows.scores, None, 0
    size = max(1, BLOCK["cuda"] // max(1, logits[0].numel()))
    for start in range(0, len(logits), size):  # in parts: places of all take more memory than the logits
        kept = None if rows.is_kept is None else rows.is_kept[start : start + size]
        is_broken = _among_kept(logits[start : start + size].isfinite().logical_not_(), kept)
        count += int(is_broken.sum())
        if count and first is None:
            row, *rest = is_broken.nonzero()[0].tolist()
            first = [start + row, *rest]
    if first is not None:
        where = rows.place(first) if rows.pair else f"{rows.place(first[:-1])}, class {first[-1]}"
        raise ValueError(
            f"expected finite logits, got {float(logits[tuple(first)])} {where} "
            f"({count} of {logits.numel()} are not finite)"
        )
    widest = max(abs(float(value)) for value in logits.aminmax())
    raise ValueError(f"expected logits whose squares fit {logits.dtype}, got one of size {widest:g}")


def _accurate(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _tolerance(dtype: torch.dtype) -> float:
    """Largest error in the sum of a row of probabilities."""
    return max(1e-3, 8 * torch.finfo(dtype).eps)


def _off(scores: Tensor) -> Tensor:
    """|sum − 1| of each row."""
    return (scores.sum(-1, dtype=_accurate(scores.dtype)) - 1).abs()


def _past(dtype: torch.dtype) -> float:
    """Largest distance of a probability from [0, 1]."""
    return max(1e-6, 2 * torch.finfo(dtype).eps)


def _is_within(low: float, high: float, dtype: torch.dtype) -> bool:
    """True if the range lies in [0, 1] up to rounding."""
    return low >= -_past(dtype) and high <= 1 + _past(dtype)


def callers_level() -> int:
    """The stack level of the first caller outside this package and torch, for a warning."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("orthograd", "torch"):
        level, frame = level + 1, frame.f_back
    return level
