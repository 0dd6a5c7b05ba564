"""Turns every accepted form of predictions into rows. Each error names what was expected and what arrived."""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from .frames import as_array, is_frame
from .rows import BLOCK, Rows, place_of, two_logits, two_probabilities

MOST_BINS = 1000
"""More bins would be empty on any test set, and ``ece_by_chance_limit`` would need much memory for them."""

PADDINGS = (-100, 255)
"""Labels that usually mark positions without one: in torch and Transformers, and in maps of segmentation."""

Task = Literal["multiclass", "binary", "multilabel", "multiple_choice"]
Scores = Literal["logits", "probabilities"]


class InputWarning(UserWarning):
    """Logits look like probabilities. They are used as logits."""


@dataclass(frozen=True)
class Form:
    """The form of predictions, stated by the caller and never guessed; `evaluate` describes each."""

    task: Task = "multiclass"
    classes_dim: int | None = None
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        if self.task not in get_args(Task):
            raise ValueError(f"expected a task among {', '.join(get_args(Task))}, got {self.task!r}")
        for name in ("classes_dim", "ignore_index"):
            if getattr(self, name) is not None:
                whole_number(getattr(self, name), name)
        if self.classes_dim is not None and self.task in ("binary", "multiple_choice"):
            raise ValueError(f"expected no classes_dim for task {self.task!r}, got {self.classes_dim}")

    def classes_last(self, scores: Tensor, name: str) -> Tensor:
        """Checked scores with the classes, or the labels of a multi-label problem, in the last dimension; no copy."""
        columns = "labels" if self.task == "multilabel" else "classes"
        shape = tuple(scores.shape)
        if self.classes_dim is None:
            if scores.ndim != 2:
                raise ValueError(f"expected {name} (n, {columns}), got {shape}{_remedy(scores.ndim, columns)}")
            return scores
        if scores.ndim < 2 or not -scores.ndim <= self.classes_dim < scores.ndim:
            raise ValueError(f"expected {name} with {columns} in dimension {self.classes_dim}, got {shape}")
        return scores.movedim(self.classes_dim, -1)


def _remedy(dimensions: int, columns: str) -> str:
    if dimensions < 2:
        return "; for one score per sample: task='binary' (--task binary)"
    return (
        f"; for more dimensions: classes_dim=1 for (n, {columns}, d₁, …), classes_dim=-1 for (…, {columns}) "
        "(--classes-dim 1, --classes-dim -1)"
    )


def problems(
    values: Any, labels: Any, form: Form, *, name: Scores, weights: Any = None, offsets: Any = None
) -> list[list[Rows]]:
    """The checked rows of each problem: one for each label of a multi-label problem, otherwise a single one.

    Multiple choice has several `Rows`, one for each number of choices. Warns if logits look like probabilities.
    """
    if form.task == "multiple_choice":
        return [_inspected(list(_by_choices(values, offsets, labels, weights, form, name)), name)]
    if offsets is not None:
        raise ValueError(f"expected no offsets for task {form.task!r}, got some: they are for task 'multiple_choice'")
    scores = _in_form(_scores(values, name), form, name)
    truth, is_kept = _checked_labels(labels, scores, form, name)
    every_weight = None if weights is None else _checked_weights(weights, truth, is_kept, form)
    pair = None if form.task == "multiclass" else two_logits if name == "logits" else two_probabilities
    rows = _inspected([Rows(scores, truth, every_weight, is_kept, pair)], name)
    return [[label] for label in _by_label(*rows)] if form.task == "multilabel" else [rows]


def _in_form(scores: Tensor, form: Form, name: str) -> Tensor:
    """Scores (…, classes), (…, labels) or (…), by the task."""
    if form.task == "binary":
        if scores.ndim == 0:
            raise ValueError(f"expected {name} (n,), got a single number")
        return scores
    scores = form.classes_last(scores, name)
    if form.task == "multiclass" and scores.shape[-1] < 2:
        raise ValueError(f"expected at least two classes, got {name} {tuple(scores.shape)}{_remedy(1, 'classes')}")
    return scores


def checked_logits(logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Checked logits (n, classes) in floating point, and labels (n,) in int64 on the same device."""
    ((rows,),) = problems(logits, labels, Form(), name="logits")
    return rows.scores, rows.labels


def checked_probabilities(probabilities: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Checked probabilities (n, classes) and labels (n,).

    Rows must sum to 1 ± 1e-3 (in half precision 1 ± 8 eps), since printed numbers are rounded. Values outside [0, 1] by
    at most 1e-6 (in half precision 2 eps) are clamped.
    """
    ((rows,),) = problems(probabilities, labels, Form(), name="probabilities")
    return rows.scores, rows.labels


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


def choices(values: Any, offsets: Any, name: str = "logits") -> tuple[Tensor, Tensor]:
    """Flat values (m,) and offsets (n + 1,) of ragged scores: a list of arrays, or values with offsets.

    >>> choices([[0.1, 0.2], [0.3, 0.4, 0.5]], None)
    (tensor([0.1000, 0.2000, 0.3000, 0.4000, 0.5000]), tensor([0, 2, 5]))
    """
    flat, ends = _joined(values, name) if offsets is None else _with_offsets(values, offsets, name)
    return flat, _checked_ends(ends)


def _joined(values: Any, name: str) -> tuple[Tensor, Tensor]:
    if not isinstance(values, list | tuple):
        shape = "" if getattr(values, "shape", None) is None else f" {tuple(values.shape)}"
        raise TypeError(
            f"expected {name} of multiple choice as a list of arrays, or as values (m,) with offsets (n + 1,), got "
            f"a {type(values).__name__}{shape}; for the same number of choices everywhere: task='multiclass'"
        )
    if not values:
        raise ValueError(f"expected at least one sample, got no {name}")
    parts = [_scores(part, f"{name} of row {row}") for row, part in enumerate(values)]
    for row, part in enumerate(parts):
        if part.ndim != 1:
            raise ValueError(f"expected {name} (choices,) in each row, got {tuple(part.shape)} in row {row}")
    return torch.cat(parts), torch.tensor([0, *map(len, parts)], device=parts[0].device).cumsum(0)


def _with_offsets(values: Any, offsets: Any, name: str) -> tuple[Tensor, Tensor]:
    flat = _scores(values, name)
    if flat.ndim != 1:
        raise ValueError(f"expected {name} (m,) with offsets (n + 1,), got {tuple(flat.shape)}")
    ends = _integers(offsets, "offsets").to(flat.device).long()
    is_list = ends.ndim == 1 and len(ends) > 1
    if not is_list or int(ends[0]) != 0 or int(ends[-1]) != len(flat):
        got = f"{int(ends[0])} … {int(ends[-1])}" if is_list else tuple(ends.shape)
        raise ValueError(f"expected offsets (n + 1,) from 0 to {len(flat)}, the number of values, got {got}")
    return flat, ends


def _checked_ends(ends: Tensor) -> Tensor:
    counts = ends.diff()
    if int(counts.min()) < 2:
        row = int(counts.argmin())
        raise ValueError(f"expected at least two choices in each row, got {int(counts[row])} in row {row}")
    return ends


def _by_choices(values: Any, offsets: Any, labels: Any, weights: Any, form: Form, name: Scores) -> Iterator[Rows]:
    """Rows of the same number of choices together. Each is a matrix, so no padding enters a softmax."""
    flat, ends = choices(values, offsets, name)
    counts = ends.diff()
    truth, is_kept = _checked_labels(labels, counts, form, name, most=counts - 1)
    every_weight = None if weights is None else _checked_weights(weights, truth, is_kept, form)
    for count in counts.unique().tolist():
        own = (counts == count).nonzero()[:, 0]
        scores = flat[ends[own][:, None] + torch.arange(count, device=flat.device)]
        own_weights, own_kept = (None if part is None else part[own] for part in (every_weight, is_kept))
        yield Rows(scores, truth[own], own_weights, own_kept, numbers=own)


def _by_label(rows: Rows) -> Iterator[Rows]:
    """A binary problem for each label of (…, labels)."""
    for label in range(rows.scores.shape[-1]):
        weights, is_kept = (None if part is None else part[..., label] for part in (rows.weights, rows.is_kept))
        yield Rows(rows.scores[..., label], rows.labels[..., label], weights, is_kept, rows.pair)


def _inspected(rows: list[Rows], name: Scores) -> list[Rows]:
    """The rows, with probabilities checked. Warns of logits that look like probabilities."""
    if name == "probabilities":
        return [_checked_range(part) for part in rows]
    if look_like_probabilities(rows):
        is_binary = rows[0].pair is not None
        each, more = ("one", "") if is_binary else ("row", " and sums to 1")
        warnings.warn(
            f"every {each} of these logits lies in [0, 1]{more}: if they are probabilities, use evaluate_probabilities "
            f"or update_probabilities, and fit calibrators to their {'log-odds' if is_binary else 'logarithm'}",
            InputWarning,
            stacklevel=callers_level(),
        )
    return rows


def _checked_range(rows: Rows) -> Rows:
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


def _scores(values: Any, name: str) -> Tensor:
    scores = as_tensor(values, name)
    if not scores.is_floating_point():
        raise TypeError(f"expected {name} in floating point, got {scores.dtype}")
    if scores.element_size() < 2:
        raise TypeError(f"expected {name} of at least half precision, got {scores.dtype}")
    if scores.ndim > 0 and scores.numel() == 0:
        raise ValueError(f"expected at least one sample, got {name} {tuple(scores.shape)}")
    return scores.cpu() if scores.device.type == "mps" else scores  # MPS has no float64, which the sums need


def _integers(values: Any, name: str, *, or_booleans: bool = False) -> Tensor:
    numbers = as_tensor(values, name)
    is_refused = numbers.is_floating_point() or numbers.is_complex()
    if is_refused or (numbers.dtype == torch.bool and not or_booleans):
        remedy = "; convert whole numbers, as by .astype(int) or .long()" if numbers.is_floating_point() else ""
        raise TypeError(f"expected {name} as integers, got {numbers.dtype}{remedy}")
    return numbers


def _checked_labels(
    labels: Any, scores: Tensor, form: Form, name: str, *, most: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Labels in int64 on the device of the scores, and where they are samples; None: everywhere.

    ``most`` is the highest label of each row of a multiple-choice problem.
    """
    is_binary = form.task in ("binary", "multilabel")
    given = _integers(labels, "labels", or_booleans=is_binary).to(scores.device)
    if form.task == "multilabel" and given.ndim == scores.ndim and form.classes_dim is not None:
        given = given.movedim(form.classes_dim, -1)
    _refuse_other_shape(given, scores, form, name)
    numbers = given.long()  # torch has few operations for unsigned integers
    highest = 1 if is_binary else scores.shape[-1] - 1
    if form.ignore_index is None and most is None:
        low, high = (int(value) for value in numbers.aminmax())
        if low >= 0 and high <= highest:
            return numbers, None
    is_wrong = (numbers < 0) | (numbers > (highest if most is None else most))
    is_kept = None
    if form.ignore_index is not None:
        is_kept = numbers != form.ignore_index
        is_wrong &= is_kept
        is_kept = None if bool(is_kept.all()) else is_kept
    if bool(is_wrong.any()):
        place = tuple(is_wrong.nonzero()[0].tolist())
        limit = highest if most is None else int(most[place])
        ignored = "" if form.ignore_index is None else f", or {form.ignore_index}, which is ignored"
        remedy = _remedy_of_label(numbers, int(numbers[place]), limit, form)
        raise ValueError(
            f"expected labels from 0 to {limit}{ignored}, got {given[place].item()} {place_of(place)}{remedy}"
        )
    return numbers, is_kept


def _remedy_of_label(labels: Tensor, wrong: int, highest: int, form: Form) -> str:
    """What helps with labels that mark padding, or that count from 1."""
    if form.ignore_index is None and wrong in PADDINGS:
        return f"; to leave out positions with this label: ignore_index={wrong} (--ignore-index {wrong})"
    if wrong == highest + 1 and int(labels.min()) == 1:
        return "; labels count from 0: subtract 1"
    return ""


def _refuse_other_shape(labels: Tensor, scores: Tensor, form: Form, name: str) -> None:
    shape = scores.shape[:-1] if form.task == "multiclass" else scores.shape
    if labels.shape == shape:
        return
    if len(shape) == 1 and labels.ndim != 1:
        remedy = "; of one-hot labels take .argmax(1)" if labels.shape == scores.shape else ""
        raise ValueError(f"expected labels (n,), got {tuple(labels.shape)}{remedy}")
    if len(shape) == 1:
        raise ValueError(f"expected a label for each of {shape[0]} samples, got {len(labels)}")
    raise ValueError(
        f"expected labels {tuple(shape)} for {name} with the classes last {tuple(scores.shape)}, "
        f"got {tuple(labels.shape)}"
        if form.task == "multiclass"
        else f"expected labels {tuple(shape)}, one for each score, got {tuple(labels.shape)}"
    )


def _checked_weights(weights: Any, labels: Tensor, is_kept: Tensor | None, form: Form) -> Tensor:
    """Weights in float64, in the shape of the labels. Those of ignored positions may be anything."""
    given = as_tensor(weights, "weights").to(labels.device)
    if given.is_complex() or given.dtype == torch.bool:
        raise TypeError(f"expected weights as real numbers, got {given.dtype}")
    values = given.double()
    if form.task == "multilabel" and values.ndim == labels.ndim and form.classes_dim is not None:
        values = values.movedim(form.classes_dim, -1)
    if form.task == "multilabel" and values.shape == labels.shape[:-1]:
        values = values[..., None].expand_as(labels)
    if values.shape != labels.shape:
        raise ValueError(f"expected a weight for each label, {tuple(labels.shape)}, got {tuple(given.shape)}")
    is_wrong = ((values >= 0) & values.isfinite()).logical_not()
    is_wrong = is_wrong if is_kept is None else is_wrong & is_kept
    if bool(is_wrong.any()):
        place = tuple(is_wrong.nonzero()[0].tolist())
        raise ValueError(f"expected finite weights of at least 0, got {float(values[place]):g} {place_of(place)}")
    return values
