"""Evaluate the predictions of a classifier, at once or in batches."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, distributed

from . import binned, unbinned
from .inputs import checked_bins, checked_logits, checked_probabilities, refuse_broken
from .metrics import ALL, CLASSWISE, STREAMING, Metrics, checked
from .predictions import Source, blocks, of_logits, of_probabilities
from .reliability import ReliabilityCurve
from .sums import MEANS, Sums, added, bin_sums, from_sums, sums_of

TOP_K = 5


class Evaluation:
    """Metrics of predictions that arrive in batches or on several ranks.

    Args:
        bins: number of bins, 1 to 1000.
        metrics: names of metrics, by default all that need constant memory. `CONVENTIONS` describes each.

    Memory is a few numbers per bin (per class and bin for the classwise metrics), for any number of samples. Only
    `ece_equal_mass` and `aurc` keep the confidence of every sample, and only if requested.

    >>> evaluation = Evaluation(metrics=["top1_accuracy", "ece"])
    >>> evaluation.update(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    >>> evaluation.update(torch.tensor([[2.0, 1.0]]), torch.tensor([1]))
    >>> print(evaluation.compute())
    3 samples, 2 classes, 10 bins
      top1_accuracy        66.67%
      ece                  0.1938
    """

    def __init__(self, *, bins: int = 10, metrics: Collection[str] = STREAMING) -> None:
        self.bins = checked_bins(bins)
        self.metrics = checked(metrics)
        self._sums: Sums = {}
        self._kept: list[tuple[Tensor, Tensor]] = []
        self._classes = 0
        self._from_logits: bool | None = None
        self._reduced: set[frozenset[int]] = set()  # ranks that these sums include

    @property
    def samples(self) -> int:
        """Number of samples so far."""
        return int(self._sums["count"].sum()) if self._sums else 0

    def update(self, logits: Any, labels: Any) -> None:
        """Add a batch of logits (n, classes) and labels (n,). A batch that raises changes nothing."""
        self._add(*checked_logits(logits, labels), source=of_logits)

    def update_probabilities(self, probabilities: Any, labels: Any) -> None:
        """Add a batch of probabilities (n, classes) and labels (n,). A batch that raises changes nothing."""
        self._add(*checked_probabilities(probabilities, labels), source=of_probabilities)

    def merge(self, other: Evaluation) -> None:
        """Add the samples of another evaluation: the counts equal those of one pass."""
        if not isinstance(other, Evaluation):
            raise TypeError(f"expected an Evaluation, got {type(other).__name__}")
        if (self.bins, self.metrics) != (other.bins, other.metrics):
            raise ValueError(
                f"expected an evaluation of {self.metrics} in {self.bins} bins, got {other.metrics} in {other.bins}"
            )
        if other is self:
            raise ValueError("expected another evaluation to merge, got the same one, whose samples would count twice")
        if other._sums:
            self._expect(other._classes, bool(other._from_logits))
            apart = {name: value.clone() for name, value in other._sums.items()}  # all_reduce writes in place
            self._keep(apart, other._kept, other._classes, bool(other._from_logits))
            self._reduced |= other._reduced

    def all_reduce(self, group: Any = None) -> None:
        """Merge over the ranks of torch.distributed. Every rank needs at least one batch; all end with the same sums.

        Call it once. A second call over the same ranks would count samples again, and raises RuntimeError.
        """
        if set(self.metrics).difference(STREAMING):
            raise ValueError("ece_equal_mass and aurc keep every confidence and cannot be reduced: use merge()")
        ranks = frozenset(distributed.get_process_group_ranks(group or distributed.group.WORLD))
        if any(len(ranks & before) > 1 for before in self._reduced):
            raise RuntimeError(
                f"expected one all_reduce over ranks {sorted(ranks)}, got a second: samples would count twice. "
                "Use a new Evaluation for further batches, and merge it"
            )
        self._expect_alike(group)
        for value in self._sums.values():
            distributed.all_reduce(value, group=group)
        self._reduced.add(ranks)

    def compute(self) -> Metrics:
        """The metrics of all samples so far."""
        self._seen_something()
        values = from_sums(self._sums, self.metrics) | self._from_kept()
        numbers: dict[str, Any] = {name: None if value.isnan() else float(value) for name, value in values.items()}
        return Metrics(
            samples=self.samples,
            classes=self._classes,
            bins=self.bins,
            asked=self.metrics,
            from_logits=bool(self._from_logits),
            **numbers,
        )

    def reliability(self) -> ReliabilityCurve:
        """The reliability curve of all samples so far."""
        self._seen_something()
        return ReliabilityCurve.of(bin_sums(self._sums))

    def _add(self, scores: Tensor, labels: Tensor, *, source: Source) -> None:
        self._expect(scores.shape[1], source is of_logits)
        asked = set(self.metrics)
        if asked.intersection(CLASSWISE):
            asked |= {"ece_classwise", "brier"}
        sums: Sums = {}
        kept = []
        for block, truth in blocks(scores, labels):
            predictions = source(block, truth, asked, min(TOP_K, scores.shape[1]))
            sums = added(sums, sums_of(predictions, truth, asked, self.bins))
            if asked.intersection(("ece_equal_mass", "aurc")):
                kept.append((predictions.confidence, predictions.correct))
        # Sums are stored only when complete, so that a batch that raises changes nothing.
        if source is of_logits and not _is_finite(sums):
            refuse_broken(scores)
        self._keep(sums, kept, scores.shape[1], source is of_logits)

    def _keep(self, sums: Sums, kept: list[tuple[Tensor, Tensor]], classes: int, from_logits: bool) -> None:
        device = (self._sums or sums)["count"].device
        self._sums = added(self._sums, {name: value.to(device) for name, value in sums.items()})
        self._kept += [(confidence.to(device), correct.to(device)) for confidence, correct in kept]
        self._classes, self._from_logits = classes, from_logits

    def _expect(self, classes: int, from_logits: bool) -> None:
        if not self._sums:
            return
        if classes != self._classes:
            raise ValueError(f"expected {self._classes} classes as before, got {classes}")
        if from_logits != self._from_logits:
            raise ValueError("expected either logits or probabilities throughout, got both")

    def _expect_alike(self, group: Any) -> None:
        """Raise on all ranks or on none: if one raised alone, the others would wait forever."""
        source = "logits" if self._from_logits else "probabilities"
        description = (
            f"{self._classes} classes from {source}, {self.bins} bins, {', '.join(self.metrics)}" if self._sums else ""
        )
        descriptions = [""] * distributed.get_world_size(group)
        distributed.all_gather_object(descriptions, description, group=group)
        if "" in descriptions:
            none = [rank for rank, seen in enumerate(descriptions) if not seen]
            raise ValueError(f"expected a batch on every rank, got none on ranks {none}")
        if len(set(descriptions)) > 1:
            raise ValueError(f"expected the same settings on every rank, got {'; '.join(descriptions)}")

    def _seen_something(self) -> None:
        if not self._sums:
            raise ValueError("expected at least one batch, got none: call update(logits, labels) first")

    def _from_kept(self) -> dict[str, Tensor]:
        if not self._kept:
            return {}
        confidence, correct = (torch.cat(parts) for parts in zip(*self._kept, strict=True))
        values, order = confidence.sort()
        metrics = {
            "ece_equal_mass": binned.equal_mass(values, correct[order], self.bins),
            "aurc": unbinned.aurc(values, correct[order]),
        }
        return {name: value for name, value in metrics.items() if name in self.metrics}


def evaluate(logits: Any, labels: Any, *, bins: int = 10, metrics: Collection[str] = ALL) -> Metrics:
    """Compute the metrics of logits.

    Args:
        logits: (n, classes), a tensor, an array or anything that torch can convert.
        labels: (n,), integers from 0 to classes − 1.
        bins: number of bins, 1 to 1000.
        metrics: names of metrics; `CONVENTIONS` describes each.

    Returns:
        The metrics as attributes. ``print`` shows a table; ``as_dict()`` returns plain data.

    Raises:
        TypeError: for inputs that are not numbers of the expected type.
        ValueError: for wrong shapes, logits that are not finite, labels out of range, or unknown metrics.

    >>> result = evaluate(torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1, 1]))
    >>> f"accuracy {result.top1_accuracy:.1f}%, mean confidence {100 * result.max_softmax:.1f}%"
    'accuracy 66.7%, mean confidence 78.1%'
    >>> result.conventions["brier"]
    'mean over samples of the sum over classes of (p − one-hot label)²'
    """
    evaluation = Evaluation(bins=bins, metrics=metrics)
    evaluation.update(logits, labels)
    return evaluation.compute()


def evaluate_probabilities(
    probabilities: Any, labels: Any, *, bins: int = 10, metrics: Collection[str] = ALL
) -> Metrics:
    """Compute the metrics of probabilities (n, classes); those that need logits are None.

    Args:
        probabilities: (n, classes), from 0 to 1; each row sums to 1 up to rounding.
        labels: (n,), integers from 0 to classes − 1.
        bins: number of bins, 1 to 1000.
        metrics: names of metrics; `CONVENTIONS` describes each.

    >>> result = evaluate_probabilities([[0.8, 0.2], [0.4, 0.6]], [0, 0])
    >>> result.top1_accuracy, round(result.ece, 4), result.max_logit
    (50.0, 0.4, None)
    """
    evaluation = Evaluation(bins=bins, metrics=metrics)
    evaluation.update_probabilities(probabilities, labels)
    return evaluation.compute()


def _is_finite(sums: Sums) -> bool:
    """True if the sums are finite: a logit that is not finite makes a sum that is not."""
    totals = [sums["confidence"].sum(), *(sums[name] for name in MEANS if name in sums)]
    return bool(torch.stack(totals).isfinite().all())
