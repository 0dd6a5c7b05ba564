"""Evaluate a classifier's predictions, at once or batch by batch."""

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
    """Metrics of predictions that arrive in batches or on several machines.

    Memory is a few numbers for each bin (and for each class and bin, for the classwise metrics), whatever the number
    of samples; only `ece_equal_mass` and `aurc` keep the confidence of every sample, and only if asked for.

    >>> evaluation = Evaluation(metrics=["top1_accuracy", "ece"])
    >>> evaluation.update(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    >>> evaluation.update(torch.tensor([[2.0, 1.0]]), torch.tensor([1]))
    >>> print(evaluation.compute())
    3 samples, 2 classes, 10 bins
      top1_accuracy       66.67 %
      ece                  0.1938
    """

    def __init__(self, *, bins: int = 10, metrics: Collection[str] = STREAMING) -> None:
        self.bins = checked_bins(bins)
        self.metrics = checked(metrics)
        self._sums: Sums = {}
        self._kept: list[tuple[Tensor, Tensor]] = []
        self._classes = 0
        self._from_logits: bool | None = None
        self._reduced: set[frozenset[int]] = set()  # ranks whose sums these are

    @property
    def samples(self) -> int:
        """How many samples were seen."""
        return int(self._sums["count"].sum()) if self._sums else 0

    def update(self, logits: Any, labels: Any) -> None:
        """Add a batch of logits (n, classes) and labels (n,)."""
        self._add(*checked_logits(logits, labels), source=of_logits)

    def update_probabilities(self, probabilities: Any, labels: Any) -> None:
        """Add a batch of probabilities (n, classes) and labels (n,)."""
        self._add(*checked_probabilities(probabilities, labels), source=of_probabilities)

    def merge(self, other: Evaluation) -> None:
        """Add what another evaluation has seen: the same counts as one pass, bit for bit."""
        if not isinstance(other, Evaluation):
            raise TypeError(f"expected an Evaluation, got {type(other).__name__}")
        if (self.bins, self.metrics) != (other.bins, other.metrics):
            raise ValueError(
                f"expected an evaluation of {self.metrics} in {self.bins} bins, got {other.metrics} in {other.bins}"
            )
        if other is self:
            raise ValueError("expected another evaluation to merge, got the same one: its samples would count twice")
        if other._sums:
            self._expect(other._classes, bool(other._from_logits))
            apart = {name: value.clone() for name, value in other._sums.items()}  # all_reduce writes into sums
            self._keep(apart, other._kept, other._classes, bool(other._from_logits))
            self._reduced |= other._reduced

    def all_reduce(self, group: Any = None) -> None:
        """Merge over the ranks of torch.distributed, each of which has seen a batch; all end with the same sums.

        Once: reduced again over the same ranks, every sample would count as often as there are ranks, which raises.
        """
        if set(self.metrics).difference(STREAMING):
            raise ValueError("ece_equal_mass and aurc keep every confidence and are not reduced over ranks: merge()")
        ranks = frozenset(distributed.get_process_group_ranks(group or distributed.group.WORLD))
        if any(len(ranks & before) > 1 for before in self._reduced):
            raise RuntimeError(
                f"expected one all_reduce over ranks {sorted(ranks)}, got another: these are the sums of several of "
                "them already, and would count twice. Use a new Evaluation for what comes next, and merge it"
            )
        self._expect_alike(group)
        for value in self._sums.values():
            distributed.all_reduce(value, group=group)
        self._reduced.add(ranks)

    def compute(self) -> Metrics:
        """The metrics of everything seen so far."""
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
        """How often predictions of each confidence are right, to be drawn."""
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
        # Everything is added up before anything is kept, so a refused batch leaves no trace.
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
        """All ranks raise, or none: one alone would leave the others waiting for it."""
        source = "logits" if self._from_logits else "probabilities"
        description = (
            f"{self._classes} classes from {source}, {self.bins} bins, {', '.join(self.metrics)}" if self._sums else ""
        )
        descriptions = [""] * distributed.get_world_size(group)
        distributed.all_gather_object(descriptions, description, group=group)
        if "" in descriptions:
            none = [rank for rank, seen in enumerate(descriptions) if not seen]
            raise ValueError(f"expected every rank to have seen a batch, ranks {none} have seen none")
        if len(set(descriptions)) > 1:
            raise ValueError(f"expected the same on every rank, got {'; '.join(descriptions)}")

    def _seen_something(self) -> None:
        if not self._sums:
            raise ValueError("expected at least one batch before the metrics: call update(logits, labels)")

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
    """Every metric of the paper, and more, of logits (n, classes) and labels (n,).

    >>> result = evaluate(torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1, 1]))
    >>> f"{result.top1_accuracy:.1f} % right, but {100 * result.max_softmax:.1f} % sure"
    '66.7 % right, but 78.1 % sure'
    >>> result.conventions["brier"]
    'mean over samples of the sum over classes of (p − one-hot label)²'
    """
    evaluation = Evaluation(bins=bins, metrics=metrics)
    evaluation.update(logits, labels)
    return evaluation.compute()


def evaluate_probabilities(
    probabilities: Any, labels: Any, *, bins: int = 10, metrics: Collection[str] = ALL
) -> Metrics:
    """`evaluate` for probabilities (n, classes): logits and what is known of them alone stay unknown."""
    evaluation = Evaluation(bins=bins, metrics=metrics)
    evaluation.update_probabilities(probabilities, labels)
    return evaluation.compute()


def _is_finite(sums: Sums) -> bool:
    """Whether the sums are numbers: what is broken in a logit is broken in them."""
    totals = [sums["confidence"].sum(), *(sums[name] for name in MEANS if name in sums)]
    return bool(torch.stack(totals).isfinite().all())
