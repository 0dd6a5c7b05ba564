"""Calibration metrics for the Trainer of Hugging Face Transformers, which this module does not import."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from .evaluation import Evaluation
from .inputs import Task
from .metrics import ALL, STREAMING, Metrics

PADDING = -100
"""The label that the Trainer pads with, and that the losses of Transformers ignore."""


def compute_metrics(
    prediction: Any, *, bins: int = 10, metrics: Collection[str] = ALL, task: Task = "multiclass"
) -> dict[str, float]:
    """Metrics by name, for ``Trainer(…, compute_metrics=compute_metrics)`` with a model for classification.

    Sequences and tokens: logits have the classes in their last dimension, and labels of −100 are left out, as in the
    losses of Transformers. Labels are not shifted: for a causal language model, whose loss compares each token with the
    logits before it, pass logits[:, :-1] and labels[:, 1:].

    Args:
        prediction: the Trainer's ``EvalPrediction``. If its predictions are a tuple, the first are the logits.
        bins: number of bins, 1 to 1000.
        metrics: names of metrics; `CONVENTIONS` describes each.
        task: ``"multilabel"`` for ``problem_type="multi_label_classification"``, whose labels are floating point;
            ``"binary"`` for a model with one logit for each label, both of one shape.

    Returns:
        The metrics that the samples define. The Trainer adds the prefix ``eval_``.

    Options are set with ``functools.partial(compute_metrics, bins=15)``.

    >>> from types import SimpleNamespace
    >>> prediction = SimpleNamespace(predictions=[[2.0, 0.0], [0.0, 1.0]], label_ids=[0, 0])
    >>> compute_metrics(prediction, metrics=["top1_accuracy"])
    {'top1_accuracy': 50.0}

    Two tokens, the second one padding:

    >>> prediction = SimpleNamespace(predictions=[[[2.0, 0.0], [0.0, 1.0]]], label_ids=[[0, -100]])
    >>> compute_metrics(prediction, metrics=["top1_accuracy"])
    {'top1_accuracy': 100.0}
    """
    evaluation = _begun(bins, metrics, task)
    evaluation.update(*_logits_and_labels(prediction, task))
    return _defined(evaluation.compute())


class BatchMetrics:
    """The same batch by batch, for ``TrainingArguments(batch_eval_metrics=True)``: no logits are kept.

    Args:
        bins: number of bins, 1 to 1000.
        metrics: names of metrics, by default all that need constant memory.
        task: as in `compute_metrics`.

    >>> from types import SimpleNamespace
    >>> batches = BatchMetrics(metrics=["top1_accuracy"])
    >>> batches(SimpleNamespace(predictions=[[2.0, 0.0]], label_ids=[0]), compute_result=False)
    {}
    >>> batches(SimpleNamespace(predictions=[[2.0, 0.0]], label_ids=[1]), compute_result=True)
    {'top1_accuracy': 50.0}
    """

    def __init__(self, *, bins: int = 10, metrics: Collection[str] = STREAMING, task: Task = "multiclass") -> None:
        self.bins, self.metrics, self.task = bins, metrics, task
        self._evaluation = _begun(bins, metrics, task)

    def __call__(self, prediction: Any, compute_result: bool) -> dict[str, float]:
        """Add a batch. The metrics after the last one, which starts anew; an empty dict before."""
        self._evaluation.update(*_logits_and_labels(prediction, self.task))
        if not compute_result:
            return {}
        result = self._evaluation.compute()
        self._evaluation = _begun(self.bins, self.metrics, self.task)
        return _defined(result)


def _begun(bins: int, metrics: Collection[str], task: Task) -> Evaluation:
    if task == "multiple_choice":
        raise ValueError("expected task 'multiclass' for the Trainer's logits (n, choices), got 'multiple_choice'")
    classes_dim = None if task == "binary" else -1
    return Evaluation(bins=bins, metrics=metrics, task=task, classes_dim=classes_dim, ignore_index=PADDING)


def _logits_and_labels(prediction: Any, task: Task) -> tuple[Any, Any]:
    logits, labels = prediction.predictions, prediction.label_ids
    if task in ("multilabel", "binary"):
        given = torch.as_tensor(labels)
        labels = given.long()
        if not bool((labels == given).all()):
            raise ValueError(f"expected labels of 0 and 1 for task {task!r}, got others")
    return logits[0] if isinstance(logits, tuple) else logits, labels


def _defined(result: Metrics) -> dict[str, float]:
    return {name: value for name, value in result.as_row().items() if value is not None}
