"""What every calibrator is: a module that is fitted once on held-out logits and then ships with its model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from ..inputs import checked_logits, computing_dtype

if TYPE_CHECKING:
    from typing_extensions import Self


LARGEST = 1e150
"""Size of logits up to which float64 holds their squares, and sums of these."""


class NotFittedError(RuntimeError):
    """A calibrator was used before it was fitted."""


class CalibrationWarning(UserWarning):
    """A calibrator was fitted, but not to what one would expect."""


class Calibrator(nn.Module):
    """Maps logits (n, classes) to calibrated logits: their softmax is the calibrated probability.

    A kind of calibrator names the tensors that fitting gives it in ``FITTED``, finds them in ``_fitted`` in float64,
    and uses them in ``_calibrated``. They are buffers: saved with the model, moved with it, never trained.
    """

    FITTED: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        super().__init__()
        for name in self.FITTED:
            self.register_buffer(name, None)

    @property
    def is_fitted(self) -> bool:
        """Whether it can be used."""
        return all(getattr(self, name) is not None for name in self.FITTED)

    @torch.no_grad()
    def fit(self, logits: Any, labels: Any) -> Self:
        """Fit to logits (n, classes) and labels (n,) that the model was not trained on."""
        scores, truth = checked_logits(logits, labels)
        refuse_unfit(scores)
        for name, value in self._fitted(scores.double(), truth).items():
            setattr(self, name, value)
        return self

    def forward(self, logits: Tensor) -> Tensor:
        """Calibrated logits, of the same shape and dtype."""
        if not self.is_fitted:
            raise NotFittedError(f"{type(self).__name__} is not fitted: call .fit(logits, labels) first")
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            got = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
            raise TypeError(f"expected logits as a tensor in floating point, got {got}")
        if logits.ndim != 2:
            raise ValueError(f"expected logits (n, classes), got {tuple(logits.shape)}")
        return self._calibrated(logits.to(computing_dtype(logits.dtype))).to(logits.dtype)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Calibrated probabilities."""
        calibrated: Tensor = self(logits)
        return calibrated.softmax(1)

    def _fitted(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The tensors that ``FITTED`` names."""
        raise NotImplementedError

    def _calibrated(self, logits: Tensor) -> Tensor:
        raise NotImplementedError

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Move with the model, but stay in float64 where the model is cast: T = 1e13 is no number in half precision."""
        exact = {name: getattr(self, name) for name in self.FITTED}
        super()._apply(fn, recurse)
        for name, value in exact.items():
            if value is not None and getattr(self, name).dtype != value.dtype:
                setattr(self, name, value.to(getattr(self, name).device))
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Take the saved tensors whatever their shape: before fitting there is none to compare with."""
        for name in self.FITTED:
            saved = state_dict.get(prefix + name)
            if saved is not None:
                setattr(self, name, torch.empty_like(saved))
        super()._load_from_state_dict(state_dict, prefix, *args)


def refuse_infinite(logits: Tensor) -> None:
    """Raise where a logit (n, classes) is infinite or NaN, and say what to do with a class that is ruled out."""
    is_broken = logits.isfinite().logical_not_()
    if not bool(is_broken.any()):
        return
    row, column = is_broken.nonzero()[0].tolist()
    value = float(logits[row, column])
    remedy = "; to rule a class out, leave its column out, or set it to -inf after calibration"
    raise ValueError(
        f"expected finite logits, got {value} in row {row}, class {column} "
        f"({int(is_broken.sum())} of {logits.numel()} are not finite){remedy if value == -math.inf else ''}"
    )


def refuse_unfit(logits: Tensor) -> None:
    """Raise where logits (n, classes) cannot be fitted to: not finite, or with squares that float64 cannot hold."""
    refuse_infinite(logits)
    low, high = (float(end) for end in logits.aminmax())
    widest = max(low, high, key=abs)
    if abs(widest) > LARGEST:
        raise ValueError(f"expected logits of size {LARGEST:g} at most, got {widest:g}; divide them all by one number")
