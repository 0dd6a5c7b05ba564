"""Base class of the calibrators: modules that are fitted on held-out logits and saved with the model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from ..frames import is_frame
from ..inputs import Form, Task, choices, problems
from ..rows import Block, Rows, two_logits
from ..values import as_tensor, computing_dtype

if TYPE_CHECKING:
    from typing_extensions import Self


LARGEST = 1e150
"""Largest logit whose square, and sums of squares, fit float64."""


class NotFittedError(RuntimeError):
    """A calibrator was used before it was fitted."""


class CalibrationWarning(UserWarning):
    """A calibrator was fitted, but the result is degenerate or not fully converged."""


class Calibrator(nn.Module):
    """Maps logits (n, classes) to calibrated logits, whose softmax is the calibrated probability.

    Args:
        task, classes_dim: the form of the logits, as in `evaluate`. Calibrated logits have the shape of the given ones.
            For a multi-label problem, each label has its own calibrator. Multiple choice has no fixed number of
            classes: only `TemperatureScaling` supports it.

    A subclass names its fitted tensors in ``FITTED``, computes them in ``_fitted`` in float64, and uses them in
    ``_calibrated``. They are buffers: saved and moved with the model, never trained.
    """

    FITTED: ClassVar[tuple[str, ...]]
    NEEDS_FIXED_CLASSES: ClassVar[bool] = True

    def __init__(self, *, task: Task = "multiclass", classes_dim: int | None = None) -> None:
        super().__init__()
        self.form = Form(task, classes_dim)
        if task == "multiple_choice" and self.NEEDS_FIXED_CLASSES:
            raise ValueError(
                f"expected a task with the same classes in every row, got {task!r}: {type(self).__name__} does not "
                "support it; use TemperatureScaling"
            )
        for name in self.FITTED:
            self.register_buffer(name, None)

    @property
    def is_fitted(self) -> bool:
        """True after ``fit`` or after loading a fitted state."""
        return all(getattr(self, name) is not None for name in self.FITTED)

    @torch.no_grad()
    def fit(
        self, logits: Any, labels: Any, *, ignore_index: int | None = None, weights: Any = None, offsets: Any = None
    ) -> Self:
        """Fit to held-out logits and labels, and return the calibrator.

        Use samples that the model was not trained on and that you do not report on. Raises ValueError for logits that
        are not finite.

        Args:
            logits, labels: of the calibrator's form, by default (n, classes) and (n,).
            ignore_index, weights, offsets: as in `evaluate`.
        """
        form = replace(self.form, ignore_index=ignore_index)
        every = problems(logits, labels, form, name="logits", weights=weights, offsets=offsets)
        fitted = self._fitted_to([[_fit_block(rows) for rows in parts] for parts in every])
        for name, value in fitted.items():
            setattr(self, name, value)
        return self

    def forward(self, logits: Any, offsets: Any = None) -> Any:
        """Calibrated logits of the same shape and dtype, a tensor for a frame. Raises NotFittedError before ``fit``.

        For multiple choice, a list of tensors for a list, and values (m,) for values with offsets.
        """
        if not self.is_fitted:
            raise NotFittedError(f"{type(self).__name__} is not fitted: call .fit(logits, labels) first")
        if self.form.task == "multiple_choice":
            return self._of_choices(*choices(logits, offsets), is_list=offsets is None)
        if offsets is not None:
            raise ValueError(f"expected no offsets for task {self.form.task!r}, got some")
        if not isinstance(logits, Tensor) and is_frame(logits):
            logits = as_tensor(logits, "logits")
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            got = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
            remedy = "" if isinstance(logits, Tensor) else ": convert them by torch.as_tensor"
            raise TypeError(f"expected logits as a tensor in floating point, got {got}{remedy}")
        return self._in_shape(logits.to(computing_dtype(logits.dtype))).to(logits.dtype)

    def probabilities(self, logits: Any, offsets: Any = None) -> Any:
        """Calibrated probabilities in the shape of the logits. Raises NotFittedError before ``fit``.

        For binary and multi-label problems, the probability of class 1.
        """
        return self._probabilities(self(logits, offsets), offsets)

    def _probabilities(self, calibrated: Any, offsets: Any) -> Any:
        """The probabilities of calibrated logits."""
        if self.form.task in ("binary", "multilabel"):
            return calibrated.sigmoid()
        if self.form.task == "multiclass":
            return calibrated.softmax(1 if self.form.classes_dim is None else self.form.classes_dim)
        if offsets is None:
            return [row.softmax(0) for row in calibrated]
        counts = torch.as_tensor(offsets).diff().tolist()
        return torch.cat([row.softmax(0) for row in calibrated.split(counts)])

    def _fitted_to(self, every: list[list[Block]]) -> dict[str, Tensor]:
        """The fitted tensors; those of each label of a multi-label problem along the first dimension."""
        if self.form.task != "multilabel":
            ((block,),) = every
            return self._fitted(*block)
        gradients, parts = [], []
        for (block,) in every:
            parts.append(self._fitted(*block))
            gradients.append(self.gradient)
        self.gradient = max(gradients)
        return {name: _stacked([part[name] for part in parts]) for name in self.FITTED}

    gradient: float = math.nan
    """Certificate of fits that minimize: the largest ``|∂objective|`` at the solution; NaN unless ``fit`` was called on
    this object."""

    def _in_shape(self, logits: Tensor) -> Tensor:
        """Calibrated logits in the shape of the logits."""
        if self.form.task == "binary":
            return _of_binary(self, logits)
        rows = self.form.classes_last(logits, "logits")
        if self.form.task == "multilabel":
            calibrated = torch.stack([_of_binary(one, rows[..., k]) for k, one in enumerate(self._by_label(rows))], -1)
        elif rows.ndim == 2:
            calibrated = self._calibrated(rows)
        else:
            calibrated = self._calibrated(rows.reshape(-1, rows.shape[-1])).reshape(rows.shape)
        return calibrated if self.form.classes_dim is None else calibrated.movedim(-1, self.form.classes_dim)

    def _by_label(self, logits: Tensor) -> Iterator[Calibrator]:
        """The binary calibrator of each label."""
        fitted = {name: getattr(self, name) for name in self.FITTED}
        count = len(fitted[self.FITTED[0]])
        if logits.shape[-1] != count:
            raise ValueError(f"expected logits of {count} labels, as in fit, got {tuple(logits.shape)}")
        for label in range(count):
            one = copy(self)
            one._buffers = {name: value[label] for name, value in fitted.items()}
            yield one

    def _of_choices(self, logits: Tensor, offsets: Tensor, *, is_list: bool) -> Any:
        """Calibrated logits of multiple choice, from flat logits (m,)."""
        raise NotImplementedError

    def _fitted(self, logits: Tensor, labels: Tensor, weights: Tensor | None) -> dict[str, Tensor]:
        """The tensors that ``FITTED`` names, for logits (n, classes) and weights (n,) in float64."""
        raise NotImplementedError

    def _calibrated(self, logits: Tensor) -> Tensor:
        """Calibrated logits (n, classes)."""
        raise NotImplementedError

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Move with the model, but stay in float64 when it is cast: T = 1e13 does not fit half precision."""
        exact = {name: getattr(self, name) for name in self.FITTED}
        super()._apply(fn, recurse)
        for name, value in exact.items():
            if value is not None and getattr(self, name).dtype != value.dtype:
                setattr(self, name, value.to(getattr(self, name).device))
        return self

    @property
    def _type_name(self) -> str:
        return type(self).__name__ + (" of several labels" if self.form.task == "multilabel" else "")

    def get_extra_state(self) -> Tensor:
        """The type of calibrator, as bytes in a tensor: some formats save only tensors."""
        return torch.frombuffer(bytearray(self._type_name.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Nothing: `_load_from_state_dict` has compared it."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Refuse another type of calibrator; accept tensors of any shape, since there is none before fitting."""
        saved_type = state_dict.get(f"{prefix}_extra_state")
        if saved_type is not None and (got := bytes(saved_type.tolist()).decode()) != self._type_name:
            *_, errors = args
            errors.append(f"expected the state of a {self._type_name}, got that of a {got}")
            return
        for name in self.FITTED:
            saved = state_dict.get(prefix + name)
            if saved is not None:
                setattr(self, name, torch.empty_like(saved))
        super()._load_from_state_dict(state_dict, prefix, *args)


def _fit_block(rows: Rows) -> Block:
    """All samples of a weight above zero, with logits in float64."""
    logits, labels, weights = rows.whole()
    if weights is not None:
        counts = weights > 0
        logits, labels, weights = logits[counts], labels[counts], weights[counts]
    if len(labels) == 0:
        raise ValueError("expected at least one sample to fit that is not ignored and has a weight above 0, got none")
    refuse_unfit(logits)
    return Block(logits.double(), labels, weights)


def _of_binary(calibrator: Calibrator, logits: Tensor) -> Tensor:
    """Calibrated binary logits of any shape."""
    of_zero, of_one = calibrator._calibrated(two_logits(logits.reshape(-1))).unbind(1)
    return (of_one - of_zero).reshape(logits.shape)


def _stacked(tensors: list[Tensor]) -> Tensor:
    """The tensors along a new first dimension, padded with their last column to the widest."""
    if tensors[0].ndim == 0:
        return torch.stack(tensors)
    most = max(tensor.shape[-1] for tensor in tensors)
    padding = ([tensor, *[tensor[..., -1:]] * (most - tensor.shape[-1])] for tensor in tensors)
    return torch.stack([torch.cat(parts, -1) for parts in padding])


def refuse_infinite(logits: Tensor) -> None:
    """Raise ValueError if a logit is infinite or NaN."""
    is_broken = logits.isfinite().logical_not_()
    if not bool(is_broken.any()):
        return
    row, column = is_broken.nonzero()[0].tolist()
    value = float(logits[row, column])
    remedy = "; to exclude a class, remove its column, or set it to -inf after calibration"
    raise ValueError(
        f"expected finite logits, got {value} in row {row}, class {column} "
        f"({int(is_broken.sum())} of {logits.numel()} are not finite){remedy if value == -math.inf else ''}"
    )


def checked_finite(logits: Tensor) -> Tensor:
    """The logits, refused if one is infinite: a class at −∞ would not stay excluded."""
    # A graph cannot branch on its values, and neither can vmap, which raises: there the result is NaN.
    is_graph = torch.compiler.is_compiling() or (logits.is_cuda and torch.cuda.is_current_stream_capturing())
    with suppress(RuntimeError):
        if not is_graph:
            refuse_infinite(logits)
    return logits


def refuse_unfit(logits: Tensor) -> None:
    """Raise ValueError for logits that are not finite, or whose squares do not fit float64."""
    refuse_infinite(logits)
    low, high = (float(end) for end in logits.aminmax())
    widest = max(low, high, key=abs)
    if abs(widest) > LARGEST:
        raise ValueError(f"expected logits of size {LARGEST:g} at most, got {widest:g}; divide them by one number")
