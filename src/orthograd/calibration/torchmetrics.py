"""The metrics of `Evaluation` as a ``torchmetrics.Metric``: for Lightning, over ranks, in checkpoints."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

try:
    from torchmetrics import Metric
except ImportError as error:
    message = "orthograd.calibration.torchmetrics needs torchmetrics: pip install 'orthograd[torchmetrics]'"
    raise ImportError(message, name=error.name) from error

from .evaluation import Evaluation, Kept
from .metrics import STREAMING
from .reliability import ReliabilityCurve


class CalibrationMetrics(Metric):
    """Metrics by name, as tensors in float64; NaN where the samples do not define one.

    Args:
        num_classes: number of classes.
        bins: number of bins, 1 to 1000.
        metrics: names of metrics, by default all that need constant memory. `CONVENTIONS` describes each.
        from_probabilities: True if ``update`` gets probabilities instead of logits.
        **options: those of every ``torchmetrics.Metric``, as ``process_group`` or ``sync_on_compute``.

    The states are the sums of an `Evaluation`: counts in int64, others in float64. Ranks add them up, so the result is
    that of one process, and a rank may have no samples. ``ece_equal_mass`` and ``aurc`` keep every confidence.

    >>> calibration = CalibrationMetrics(2, metrics=["top1_accuracy", "ece"])
    >>> calibration.update(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    >>> calibration.update(torch.tensor([[2.0, 1.0]]), torch.tensor([1]))
    >>> {name: round(float(value), 4) for name, value in calibration.compute().items()}
    {'top1_accuracy': 66.6667, 'ece': 0.1938}
    """

    is_differentiable = False
    kept_confidence: list[Tensor]
    kept_correct: list[Tensor]
    full_state_update = False  # an update does not depend on the states before it

    def __init__(
        self,
        num_classes: int,
        *,
        bins: int = 10,
        metrics: Collection[str] = STREAMING,
        from_probabilities: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.num_classes, self.bins, self.from_probabilities = num_classes, bins, from_probabilities
        self.metrics = Evaluation(bins=bins, metrics=metrics).metrics
        self.set_dtype(torch.float64)  # of the states that a rank without samples contributes
        # One sample tells which sums there are, and their shapes.
        scores = torch.full((1, num_classes), 1 / num_classes if from_probabilities else 0.0)
        for name, value in self._evaluated(scores, torch.zeros(1, dtype=torch.int64))._sums.items():
            self.add_state(_state(name), torch.zeros_like(value), dist_reduce_fx="sum")
        for name in ("kept_confidence", "kept_correct"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, scores: Any, labels: Any) -> None:
        """Add a batch of logits (n, classes), or of probabilities, and labels (n,). One that raises changes nothing."""
        evaluation = self._evaluated(scores, labels)
        for name, value in evaluation._sums.items():
            state = getattr(self, _state(name))
            setattr(self, _state(name), state + value.to(state.device))
        for part in evaluation._kept:
            self.kept_confidence.append(part.confidence.double().to(self.device))
            self.kept_correct.append(part.correct.double().to(self.device))

    def compute(self) -> dict[str, Tensor]:
        """The metrics of all samples on all ranks."""
        row = self._evaluation().compute().as_row()
        values = {name: math.nan if value is None else value for name, value in row.items()}
        return {name: torch.tensor(value, dtype=torch.float64, device=self.device) for name, value in values.items()}

    def reliability(self) -> ReliabilityCurve:
        """The reliability curve of all samples on all ranks; every rank has to call it."""
        with self.sync_context(
            dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
        ):
            return self._evaluation().reliability()

    def _evaluated(self, scores: Any, labels: Any) -> Evaluation:
        """The evaluation of one batch."""
        evaluation = Evaluation(bins=self.bins, metrics=self.metrics)
        (evaluation.update_probabilities if self.from_probabilities else evaluation.update)(scores, labels)
        if evaluation._classes != self.num_classes:
            raise ValueError(f"expected scores of {self.num_classes} classes, got {evaluation._classes}")
        return evaluation

    def _evaluation(self) -> Evaluation:
        """The evaluation whose sums the states are."""
        sums = {name: getattr(self, _state(name)) for name in self._sum_names}
        evaluation = Evaluation(bins=self.bins, metrics=self.metrics)
        if int(sums["count"].sum()):
            evaluation._keep(sums, self._kept(), self.num_classes, not self.from_probabilities)
        return evaluation

    @property
    def _sum_names(self) -> list[str]:
        return [name.removeprefix("sum_") for name in self._defaults if name.startswith("sum_")]

    def _kept(self) -> list[Kept]:
        # A list of batches before ranks are reduced, one tensor afterwards.
        parts = [[part] if isinstance(part, Tensor) else part for part in (self.kept_confidence, self.kept_correct)]
        return [Kept(0, confidence, correct.bool(), None) for confidence, correct in zip(*parts, strict=True)]


def _state(name: str) -> str:
    """The state's attribute; the bare name could be one of torchmetrics."""
    return f"sum_{name}"
