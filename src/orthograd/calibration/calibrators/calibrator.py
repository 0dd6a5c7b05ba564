"""Base class of the calibrators: modules that are fitted on held-out logits and saved with the model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from ..inputs import checked_logits, computing_dtype

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

    A subclass names its fitted tensors in ``FITTED``, computes them in ``_fitted`` in float64, and uses them in
    ``_calibrated``. They are buffers: saved and moved with the model, never trained.
    """

    FITTED: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        super().__init__()
        for name in self.FITTED:
            self.register_buffer(name, None)

    @property
    def is_fitted(self) -> bool:
        """True after ``fit`` or after loading a fitted state."""
        return all(getattr(self, name) is not None for name in self.FITTED)

    @torch.no_grad()
    def fit(self, logits: Any, labels: Any) -> Self:
        """Fit to held-out logits (n, classes) and labels (n,), and return the calibrator.

        Use samples that the model was not trained on and that you do not report on. Raises ValueError for logits that
        are not finite.
        """
        scores, truth = checked_logits(logits, labels)
        refuse_unfit(scores)
        for name, value in self._fitted(scores.double(), truth).items():
            setattr(self, name, value)
        return self

    def forward(self, logits: Tensor) -> Tensor:
        """Calibrated logits of the same shape and dtype. Raises NotFittedError before ``fit``."""
        if not self.is_fitted:
            raise NotFittedError(f"{type(self).__name__} is not fitted: call .fit(logits, labels) first")
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            got = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
            raise TypeError(f"expected logits as a tensor in floating point, got {got}")
        if logits.ndim != 2:
            raise ValueError(f"expected logits (n, classes), got {tuple(logits.shape)}")
        return self._calibrated(logits.to(computing_dtype(logits.dtype))).to(logits.dtype)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Calibrated probabilities (n, classes). Raises NotFittedError before ``fit``."""
        calibrated: Tensor = self(logits)
        return calibrated.softmax(1)

    def _fitted(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The tensors that ``FITTED`` names."""
        raise NotImplementedError

    def _calibrated(self, logits: Tensor) -> Tensor:
        raise NotImplementedError

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Move with the model, but stay in float64 when it is cast: T = 1e13 does not fit half precision."""
        exact = {name: getattr(self, name) for name in self.FITTED}
        super()._apply(fn, recurse)
        for name, value in exact.items():
            if value is not None and getattr(self, name).dtype != value.dtype:
                setattr(self, name, value.to(getattr(self, name).device))
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Accept saved tensors of any shape, since there is none before fitting."""
        for name in self.FITTED:
            saved = state_dict.get(prefix + name)
            if saved is not None:
                setattr(self, name, torch.empty_like(saved))
        super()._load_from_state_dict(state_dict, prefix, *args)


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


def refuse_unfit(logits: Tensor) -> None:
    """Raise ValueError for logits that are not finite, or whose squares do not fit float64."""
    refuse_infinite(logits)
    low, high = (float(end) for end in logits.aminmax())
    widest = max(low, high, key=abs)
    if abs(widest) > LARGEST:
        raise ValueError(f"expected logits of size {LARGEST:g} at most, got {widest:g}; divide them by one number")
