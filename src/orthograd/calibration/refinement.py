"""Calibration and refinement apart: the part of a proper loss that recalibration removes, and the part that stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from .calibrators.calibrator import Calibrator
from .calibrators.temperature import TemperatureScaling
from .evaluation import Evaluation
from .inputs import Form, Task, choices, whole_number


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
    task: Task = "multiclass",
    classes_dim: int | None = None,
    ignore_index: int | None = None,
    weights: Any = None,
    offsets: Any = None,
) -> Decomposition:
    """Separate loss and Brier score into refinement and calibration error.

    Recalibration is cross-fitted: each fold is calibrated by a calibrator that was fitted to the others. Maps and
    sequences stay together in one fold, since their positions are not independent.

    Args:
        logits, labels: as in `evaluate`.
        calibrator: class of the calibrator. Its family defines "best recalibration": with `TemperatureScaling`,
            miscalibration that no temperature removes counts as refinement. All of them minimize the loss, also where
            the Brier score is reported.
        folds: number of folds, at least 2.
        seed: seed of the random folds.
        task, classes_dim, ignore_index, weights, offsets: as in `evaluate`.

    Raises:
        ValueError: for fewer samples than folds, and as in `evaluate`.

    Dividing logits by a number changes the calibration and not the refinement:

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
    if whole_number(folds, "folds") < 2:
        raise ValueError(f"expected at least 2 folds, got {folds}")
    values, last = _samples(logits, offsets, Form(task, classes_dim))
    settings: dict[str, Any] = {"task": task, "ignore_index": ignore_index, "classes_dim": last}
    settings |= {"metrics": ["loss", "brier"], "weighted": weights is not None}
    before, after = Evaluation(**settings), Evaluation(**settings)
    truth, weight = torch.as_tensor(labels), None if weights is None else torch.as_tensor(weights)
    if task == "multilabel" and classes_dim is not None:
        truth = truth.movedim(classes_dim, -1)
        if weight is not None and weight.ndim == truth.ndim:
            weight = weight.movedim(classes_dim, -1)
    before.update(values, truth, weights=weight)
    for rest, fold in _folds(len(values), folds, seed):
        fitted = calibrator(task=task, classes_dim=last)
        fitted.fit(_part(values, rest), truth[rest], ignore_index=ignore_index, weights=_part(weight, rest))
        after.update(fitted(_part(values, fold)), truth[fold], weights=_part(weight, fold))
    numbers: dict[str, Any] = {f"{name}_refinement": value for name, value in after.compute().as_row().items()}
    numbers |= before.compute().as_row()
    return Decomposition(**numbers, calibrator=getattr(calibrator, "__name__", repr(calibrator)), folds=folds)


def _samples(logits: Any, offsets: Any, form: Form) -> tuple[Tensor | list[Tensor], int | None]:
    """Logits with the samples first and the classes last, and where the classes are."""
    if form.task == "multiple_choice":
        flat, ends = choices(logits, offsets)
        return list(flat.split(ends.diff().tolist())), None
    values = torch.as_tensor(logits)
    if form.task == "binary" or form.classes_dim is None:
        return values, None
    return form.classes_last(values, "logits"), -1


def _folds(samples: int, folds: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The samples of all other folds, and those of each fold."""
    if samples < folds:
        raise ValueError(f"expected at least one sample for each of {folds} folds, got {samples}")
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))
    parts = order.tensor_split(folds)
    for number, fold in enumerate(parts):
        yield torch.cat([part for other, part in enumerate(parts) if other != number]), fold


def _part(values: Any, index: Tensor) -> Any:
    if isinstance(values, list):
        return [values[number] for number in index.tolist()]
    return None if values is None else values[index.to(values.device)]
