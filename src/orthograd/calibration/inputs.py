"""Turns every accepted form of predictions into rows. Each error names what was expected and what arrived."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from .frames import refuse_column
from .rows import Rows, place_of, two_logits, two_probabilities
from .values import as_tensor, callers_level, checked_range, floating, integers, look_like_probabilities, whole_number

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
    scores = _in_form(floating(values, name), form, name)
    refuse_column(values, name, labels=labels, weights=weights)
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
    parts = [floating(part, f"{name} of row {row}") for row, part in enumerate(values)]
    for row, part in enumerate(parts):
        if part.ndim != 1:
            raise ValueError(f"expected {name} (choices,) in each row, got {tuple(part.shape)} in row {row}")
    return torch.cat(parts), torch.tensor([0, *map(len, parts)], device=parts[0].device).cumsum(0)


def _with_offsets(values: Any, offsets: Any, name: str) -> tuple[Tensor, Tensor]:
    flat = floating(values, name)
    if flat.ndim != 1:
        raise ValueError(f"expected {name} (m,) with offsets (n + 1,), got {tuple(flat.shape)}")
    ends = integers(offsets, "offsets").to(flat.device).long()
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
        return [checked_range(part) for part in rows]
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


def _checked_labels(
    labels: Any, scores: Tensor, form: Form, name: str, *, most: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Labels in int64 on the device of the scores, and where they are samples; None: everywhere.

    ``most`` is the highest label of each row of a multiple-choice problem.
    """
    is_binary = form.task in ("binary", "multilabel")
    given = integers(labels, "labels", or_booleans=is_binary).to(scores.device)
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
