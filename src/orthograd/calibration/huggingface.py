"""Calibration metrics for the Trainer of Hugging Face Transformers, which this module does not import."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .evaluation import Evaluation
from .metrics import ALL, STREAMING, Metrics


def compute_metrics(prediction: Any, *, bins: int = 10, metrics: Collection[str] = ALL) -> dict[str, float]:
    """Metrics by name, for ``Trainer(…, compute_metrics=compute_metrics)`` with a model for classification.

    Args:
        prediction: the Trainer's ``EvalPrediction``. If its predictions are a tuple, the first are the logits.
        bins: number of bins, 1 to 1000.
        metrics: names of metrics; `CONVENTIONS` describes each.

    Returns:
        The metrics that the samples define. The Trainer adds the prefix ``eval_``.

    Options are set with ``functools.partial(compute_metrics, bins=15)``.

    >>> from types import SimpleNamespace
    >>> prediction = SimpleNamespace(predictions=[[2.0, 0.0], [0.0, 1.0]], label_ids=[0, 0])
    >>> compute_metrics(prediction, metrics=["top1_accuracy"])
    {'top1_accuracy': 50.0}
    """
    evaluation = Evaluation(bins=bins, metrics=metrics)
    evaluation.update(*_logits_and_labels(prediction))
    return _defined(evaluation.compute())


class BatchMetrics:
    """The same batch by batch, for ``TrainingArguments(batch_eval_metrics=True)``: no logits are kept.

    Args:
        bins: number of bins, 1 to 1000.
        metrics: names of metrics, by default all that need constant memory.

    >>> from types import SimpleNamespace
    >>> batches = BatchMetrics(metrics=["top1_accuracy"])
    >>> batches(SimpleNamespace(predictions=[[2.0, 0.0]], label_ids=[0]), compute_result=False)
    {}
    >>> batches(SimpleNamespace(predictions=[[2.0, 0.0]], label_ids=[1]), compute_result=True)
    {'top1_accuracy': 50.0}
    """

    def __init__(self, *, bins: int = 10, metrics: Collection[str] = STREAMING) -> None:
        self.bins, self.metrics = bins, metrics
        self._evaluation = Evaluation(bins=bins, metrics=metrics)

    def __call__(self, prediction: Any, compute_result: bool) -> dict[str, float]:
        """Add a batch. The metrics after the last one, which starts anew; an empty dict before."""
        self._evaluation.update(*_logits_and_labels(prediction))
        if not compute_result:
            return {}
        result = self._evaluation.compute()
        self._evaluation = Evaluation(bins=self.bins, metrics=self.metrics)
        return _defined(result)


def _logits_and_labels(prediction: Any) -> tuple[Any, Any]:
    logits = prediction.predictions
    return logits[0] if isinstance(logits, tuple) else logits, prediction.label_ids


def _defined(result: Metrics) -> dict[str, float]:
    return {name: value for name, value in result.as_row().items() if value is not None}
