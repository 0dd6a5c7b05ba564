"""Calibration and refinement apart: the part of a proper loss that recalibration removes, and the part that stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from .calibrators.calibrator import Calibrator
from .calibrators.temperature import TemperatureScaling
from .cross_fitting import Samples, fold_numbers, out_of_fold
from .evaluation import Evaluation
from .inputs import Form, Task


@dataclass(frozen=True)
class Decomposition:
    """Loss and Brier score, each the sum of a refinement and a calibration error.

    The refinement is the value after recalibration, on samples that the calibrator was not fitted to. The calibration
    error is the rest: what recalibration gains. It is negative if recalibration makes predictions worse.
    """

    loss: float
    loss_refinement: float
    brier: float
    brier_refinement: float
    calibrator: str
    folds: int

    @property
    def loss_calibration(self) -> float:
        """loss − loss_refinement."""
        return self.loss - self.loss_refinement

    @property
    def brier_calibration(self) -> float:
        """brier − brier_refinement."""
        return self.brier - self.brier_refinement

    def as_dict(self) -> dict[str, Any]:
        """All values as plain data for JSON."""
        parts = {"loss_calibration": self.loss_calibration, "brier_calibration": self.brier_calibration}
        return asdict(self) | parts

    def __str__(self) -> str:
        return (
            f"loss {self.loss:.4f} = refinement {self.loss_refinement:.4f} + calibration {self.loss_calibration:.4f}\n"
            f"brier {self.brier:.4f} = refinement {self.brier_refinement:.4f} "
            f"+ calibration {self.brier_calibration:.4f}"
        )


def decomposition(
    logits: Any,
    labels: Any,
    *,
    calibrator: Callable[..., Calibrator] = TemperatureScaling,
    folds: int = 5,
    seed: int = 0,
    groups: Any = None,
    task: Task = "multiclass",
    classes_dim: int | None = None,
    ignore_index: int | None = None,
    weights: Any = None,
    offsets: Any = None,
) -> Decomposition:
    """Separate loss and Brier score into refinement and calibration error.

    Recalibration is cross-fitted: each fold is calibrated by a calibrator that was fitted to the others, as in
    `cross_fit`. Maps and sequences stay together in one fold, since their positions are not independent.

    Args:
        logits, labels: as in `evaluate`.
        calibrator: class of the calibrator. Its family defines "best recalibration": with `TemperatureScaling`,
            miscalibration that no temperature removes counts as refinement. All of them minimize the loss, also where
            the Brier score is reported.
        folds: number of folds, at least 2.
        seed: seed of the random folds.
        groups: a value for each sample; equal values share a fold.
        task, classes_dim, ignore_index, weights, offsets: as in `evaluate`.

    Raises:
        TypeError: for a calibrator instead of its class.
        ValueError: for fewer samples than folds, and as in `evaluate`.

    Dividing logits by a number changes the calibration and not the refinement:

    >>> import torch
    >>> generator = torch.Generator().manual_seed(0)
    >>> logits = 2 * torch.randn(2000, 3, generator=generator)
    >>> labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    >>> model, overconfident = decomposition(logits, labels), decomposition(3 * logits, labels)
    >>> abs(overconfident.loss_refinement - model.loss_refinement) < 1e-6
    True
    >>> overconfident.loss_calibration > 100 * abs(model.loss_calibration)
    True

    References: Bröcker, "Reliability, sufficiency, and the decomposition of proper scores", 2009; Berta et al.,
    "Rethinking Early Stopping: Refine, Then Calibrate", 2025.
    """
    if isinstance(calibrator, Calibrator):
        raise TypeError(f"expected a class of calibrators such as TemperatureScaling, got an instance, {calibrator}")
    samples = Samples.of(logits, labels, weights, offsets, Form(task, classes_dim))
    settings: dict[str, Any] = {"task": task, "ignore_index": ignore_index, "classes_dim": samples.form.classes_dim}
    settings |= {"metrics": ["loss", "brier"], "weighted": weights is not None}
    before, after = Evaluation(**settings), Evaluation(**settings)
    before.update(samples.logits, samples.labels, weights=samples.weights)
    fold = fold_numbers(samples, folds=folds, seed=seed, groups=groups)
    for index, calibrated in out_of_fold(calibrator(task=task, classes_dim=classes_dim), samples, fold, ignore_index):
        part = samples[index]
        after.update(calibrated, part.labels, weights=part.weights)
    numbers: dict[str, Any] = {f"{name}_refinement": value for name, value in after.compute().as_row().items()}
    numbers |= before.compute().as_row()
    return Decomposition(**numbers, calibrator=getattr(calibrator, "__name__", repr(calibrator)), folds=folds)
