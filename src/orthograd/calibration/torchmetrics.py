"""The metrics of `Evaluation` as a ``torchmetrics.Metric``: for Lightning, over ranks, in checkpoints."""

from __future__ import annotations

import math
from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

try:
    from torchmetrics import Metric
except ImportError as error:
    message = "orthograd.calibration.torchmetrics needs torchmetrics: pip install 'orthograd[torchmetrics]'"
    raise ImportError(message, name=error.name) from error

from .evaluation import Evaluation, Kept
from .inputs import Task
from .metrics import Metrics
from .reliability import ReliabilityCurve


class CalibrationMetrics(Metric):
    """Metrics by name, as tensors in float64; NaN where the samples do not define one.

    Args:
        num_classes: number of classes; 2 for a binary problem, the number of labels for a multi-label problem.
        bins: number of bins, 1 to 1000.
        metrics: names of metrics, by default all that need constant memory. `CONVENTIONS` describes each.
        from_probabilities: True if ``update`` gets probabilities instead of logits.
        task, classes_dim, ignore_index: the form of the predictions, as in `evaluate`. Multiple choice has no fixed
            number of classes and is refused: use `Evaluation`.
        weighted: True if every batch has weights.
        **options: those of every ``torchmetrics.Metric``, as ``process_group`` or ``sync_on_compute``.

    The states are the sums of an `Evaluation`: counts in int64, others in float64. Ranks add them up, so the result is
    that of one process, and a rank may have no samples. ``ece_equal_mass``, ``aurc`` and ``augrc`` keep every
    confidence.

    >>> calibration = CalibrationMetrics(2, metrics=["top1_accuracy", "ece"])
    >>> calibration.update(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    >>> calibration.update(torch.tensor([[2.0, 1.0]]), torch.tensor([1]))
    >>> {name: round(float(value), 4) for name, value in calibration.compute().items()}
    {'top1_accuracy': 66.6667, 'ece': 0.1938}
    """

    is_differentiable = False
    full_state_update = False  # an update does not depend on the states before it

    def __init__(
        self,
        num_classes: int,
        *,
        bins: int = 10,
        metrics: Collection[str] | None = None,
        from_probabilities: bool = False,
        task: Task = "multiclass",
        classes_dim: int | None = None,
        ignore_index: int | None = None,
        weighted: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if task == "multiple_choice":
            raise ValueError(f"expected a task with the same classes in every row, got {task!r}: use Evaluation")
        if task == "binary" and num_classes != 2:
            raise ValueError(f"expected 2 classes for task 'binary', got {num_classes}")
        self.num_classes, self.bins, self.from_probabilities = num_classes, bins, from_probabilities
        self.task, self.weighted = task, weighted
        self._form: dict[str, Any] = {"task": task, "classes_dim": classes_dim, "ignore_index": ignore_index}
        self.metrics = Evaluation(bins=bins, metrics=metrics, weighted=weighted, **self._form).metrics
        self.set_dtype(torch.float64)  # of the states that a rank without samples contributes
        for name, value in self._one_sample()._sums.items():
            self.add_state(_state(name), torch.zeros_like(value), dist_reduce_fx="sum")
        self._kept_names = ["confidence", "correct"] + weighted * ["weights"] + (task == "multilabel") * ["problem"]
        for name in self._kept_names:
            self.add_state(f"kept_{name}", [], dist_reduce_fx="cat")

    def update(self, scores: Any, labels: Any, weights: Any = None) -> None:
        """Add a batch of logits or probabilities, labels and weights. One that raises changes nothing."""
        evaluation = self._added(self._begun(), scores, labels, weights)
        for name, value in evaluation._sums.items():
            state = getattr(self, _state(name))
            setattr(self, _state(name), state + value.to(state.device))
        for part in evaluation._kept:
            columns = part._asdict() | {"problem": torch.full(part.confidence.shape, part.problem)}
            for name in self._kept_names:
                getattr(self, f"kept_{name}").append(columns[name].double().to(self.device))

    def compute(self) -> dict[str, Tensor]:
        """The metrics of all samples on all ranks; for a multi-label problem, macro means over the labels.

        All are NaN if every sample so far is ignored, or every sample of one label.
        """
        evaluation = self._evaluation()
        row = dict.fromkeys(self.metrics) if _is_undefined(evaluation) else evaluation.compute().as_row()
        values = {name: math.nan if value is None else value for name, value in row.items()}
        return {name: torch.tensor(value, dtype=torch.float64, device=self.device) for name, value in values.items()}

    def result(self) -> Metrics:
        """The metrics as `evaluate` returns them, of all samples on all ranks; every rank has to call it."""
        with self._synced():
            return self._evaluation().compute()

    def reliability(self) -> ReliabilityCurve:
        """The reliability curve of all samples on all ranks; every rank has to call it."""
        with self._synced():
            return self._evaluation().reliability()

    def _synced(self) -> AbstractContextManager[None]:
        return self.sync_context(
            dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
        )

    def _begun(self, **form: Any) -> Evaluation:
        """An evaluation without samples."""
        return Evaluation(bins=self.bins, metrics=self.metrics, weighted=self.weighted, **self._form | form)

    def _added(self, evaluation: Evaluation, scores: Any, labels: Any, weights: Any) -> Evaluation:
        """The evaluation with a batch."""
        update = evaluation.update_probabilities if self.from_probabilities else evaluation.update
        update(scores, labels, weights=weights)
        is_multilabel = self.task == "multilabel"
        columns = len(evaluation._sums["count"]) if is_multilabel else evaluation._classes
        if columns != self.num_classes:
            names = "labels" if is_multilabel else "classes"
            raise ValueError(f"expected scores of {self.num_classes} {names}, got {columns}")
        return evaluation

    def _one_sample(self) -> Evaluation:
        """The evaluation of one sample, which has all sums in their shapes."""
        shape = (1,) if self.task == "binary" else (1, self.num_classes)
        scores = torch.full(shape, 1 / self.num_classes if self.from_probabilities else 0.0)
        labels = torch.full(shape if self.task == "multilabel" else (1,), int(self._form["ignore_index"] == 0))
        weights = torch.ones(1) if self.weighted else None
        return self._added(self._begun(classes_dim=None), scores, labels, weights)

    def _evaluation(self) -> Evaluation:
        """The evaluation whose sums the states are."""
        sums = {name: getattr(self, _state(name)) for name in self._sum_names}
        evaluation = self._begun()
        if any(bool(sums[name].any()) for name in {"count", "samples", "ignored"}.intersection(sums)):
            classes = self.num_classes if self.task == "multiclass" else 2
            evaluation._keep(sums, self._kept(), classes, not self.from_probabilities)
        return evaluation

    @property
    def _sum_names(self) -> list[str]:
        return [name.removeprefix("sum_") for name in self._defaults if name.startswith("sum_")]

    def _kept(self) -> list[Kept]:
        # A list of batches before ranks are reduced, one tensor afterwards.
        states = {name: getattr(self, f"kept_{name}") for name in self._kept_names}
        if not len(states["confidence"]):
            return []
        parts = {name: state if isinstance(state, Tensor) else torch.cat(state) for name, state in states.items()}
        parts["correct"] = parts["correct"].bool()
        if self.task != "multilabel":
            return [Kept(0, parts["confidence"], parts["correct"], parts.get("weights"))]
        problem = parts.pop("problem")
        apart = ({name: part[problem == label] for name, part in parts.items()} for label in range(self.num_classes))
        return [
            Kept(label, part["confidence"], part["correct"], part.get("weights")) for label, part in enumerate(apart)
        ]


def _state(name: str) -> str:
    """The state's attribute; the bare name could be one of torchmetrics."""
    return f"sum_{name}"


def _is_undefined(evaluation: Evaluation) -> bool:
    """True if there was a batch, but it left no sample, or none of one label."""
    sums = evaluation._sums
    if not sums:
        return False
    return not bool((sums.get("samples", sums["count"].sum(-1)) > 0).all() & sums["count"].any())
