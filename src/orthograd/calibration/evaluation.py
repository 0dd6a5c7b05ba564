"""Evaluate the predictions of a classifier, at once or in batches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor, distributed

from . import binned, unbinned
from .fused import predicted
from .inputs import Form, Scores, Task, checked_bins, problems
from .metrics import ALL, CLASSWISE, STREAMING, Metrics, MultiLabelMetrics, defined
from .reliability import ReliabilityCurve
from .rows import Rows
from .sums import MEANS, Sums, added, bin_sums, from_sums, sums_of
from .values import refuse_broken

TOP_K = 5


class Kept(NamedTuple):
    """Samples of one problem, for metrics that need every confidence."""

    problem: int
    confidence: Tensor
    correct: Tensor
    weights: Tensor | None


class Evaluation:
    """Metrics of predictions that arrive in batches or on several ranks.

    Args:
        bins: number of bins, 1 to 1000, as in `evaluate`.
        metrics: names of metrics, by default all that need constant memory and that the input defines. `CONVENTIONS`
            describes each.
        task, classes_dim, ignore_index: the form of the predictions, as in `evaluate`.
        weighted: True if every batch has weights.

    Memory is a few numbers per bin (per class and bin for the classwise metrics), for any number of samples. Only
    `ece_equal_mass`, `aurc` and `augrc` keep the confidence of every sample, and only if requested.

    >>> evaluation = Evaluation(metrics=["top1_accuracy", "ece"])
    >>> evaluation.update(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    >>> evaluation.update(torch.tensor([[2.0, 1.0]]), torch.tensor([1]))
    >>> print(evaluation.compute())
    3 samples, 2 classes, 10 bins
      top1_accuracy        66.67%
      ece                  0.1938
    """

    def __init__(
        self,
        *,
        bins: int = 10,
        metrics: Collection[str] | None = None,
        task: Task = "multiclass",
        classes_dim: int | None = None,
        ignore_index: int | None = None,
        weighted: bool = False,
    ) -> None:
        self.bins, self.weighted = checked_bins(bins), weighted
        self.form = Form(task, classes_dim, ignore_index)
        self.metrics = defined(metrics, STREAMING, weighted=weighted, ragged=task == "multiple_choice")
        self._sums: Sums = {}  # with the labels of a multi-label problem in the first dimension
        self._kept: list[Kept] = []
        self._classes = 0
        self._from_logits: bool | None = None
        self._reduced: set[frozenset[int]] = set()  # ranks that these sums include

    @property
    def samples(self) -> int:
        """Number of samples so far, without ignored ones; binary decisions for a multi-label problem."""
        return _samples(self._sums)

    def update(self, logits: Any, labels: Any, *, weights: Any = None, offsets: Any = None) -> None:
        """Add a batch of logits and labels, as in `evaluate`. A batch that raises changes nothing."""
        self._add(logits, labels, weights, offsets, "logits")

    def update_probabilities(
        self, probabilities: Any, labels: Any, *, weights: Any = None, offsets: Any = None
    ) -> None:
        """Add a batch of probabilities and labels, as in `evaluate_probabilities`. As `update` otherwise."""
        self._add(probabilities, labels, weights, offsets, "probabilities")

    def merge(self, other: Evaluation) -> None:
        """Add the samples of another evaluation: the counts equal those of one pass."""
        if not isinstance(other, Evaluation):
            raise TypeError(f"expected an Evaluation, got {type(other).__name__}")
        if (self.bins, self.metrics) != (other.bins, other.metrics):
            raise ValueError(
                f"expected an evaluation of {self.metrics} in {self.bins} bins, got {other.metrics} in {other.bins}"
            )
        if (self._task(), self.weighted) != (other._task(), other.weighted):
            raise ValueError(f"expected an evaluation of {self._settings()}, got {other._settings()}")
        if other is self:
            raise ValueError("expected another evaluation to merge, got the same one, whose samples would count twice")
        if other._sums:
            self._expect(other._sums, other._classes, bool(other._from_logits))
            apart = {name: value.clone() for name, value in other._sums.items()}  # all_reduce writes in place
            self._keep(apart, other._kept, other._classes, bool(other._from_logits))
            self._reduced |= other._reduced

    def all_reduce(self, group: Any = None) -> None:
        """Merge over the ranks of torch.distributed. Every rank needs at least one batch; all end with the same sums.

        Call it once. A second call over the same ranks would count samples again, and raises RuntimeError.
        """
        if set(self.metrics).difference(STREAMING):
            raise ValueError("ece_equal_mass, aurc and augrc keep every confidence and cannot be reduced: use merge()")
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
        """The metrics of all samples so far: `MultiLabelMetrics` for a multi-label problem."""
        self._seen_something()
        if self.form.task != "multilabel":
            return self._metrics(self._sums, self._kept)
        count = len(self._sums["count"])
        labels = [{name: value[label] for name, value in self._sums.items()} for label in range(count)]
        empty = [label for label, sums in enumerate(labels) if not _samples(sums)]
        if empty:
            raise ValueError(f"expected a sample of every label, got none of labels {empty} that is not ignored")
        weightless = [label for label, sums in enumerate(labels) if not float(sums["count"].sum()) > 0]
        if weightless:
            raise ValueError(f"expected weights with a sum above 0 for every label, got 0 for labels {weightless}")
        kept: list[list[Kept]] = [[] for _ in labels]
        for part in self._kept:
            kept[part.problem].append(part)
        micro = self._metrics({name: value.sum(0) for name, value in self._sums.items()}, self._kept)
        return MultiLabelMetrics.of(micro, tuple(map(self._metrics, labels, kept)))

    def reliability(self) -> ReliabilityCurve:
        """The reliability curve of all samples so far; for a multi-label problem, of all binary decisions.

        Raises ValueError for weighted samples, since the intervals count samples.
        """
        self._seen_something()
        if self.weighted:
            raise ValueError("expected samples without weights: the intervals of a reliability curve count samples")
        is_stacked = self.form.task == "multilabel"
        return ReliabilityCurve.of(
            bin_sums({name: value.sum(0) for name, value in self._sums.items()} if is_stacked else self._sums)
        )

    def _metrics(self, sums: Sums, kept: Sequence[Kept]) -> Metrics:
        sums = {name: value.cpu() for name, value in sums.items()}  # hundreds of small operations follow
        values = from_sums(sums, self.metrics) | self._from_kept(kept)
        numbers: dict[str, Any] = {name: None if value.isnan() else float(value) for name, value in values.items()}
        return Metrics(
            samples=_samples(sums),
            classes=self._classes,
            bins=self.bins,
            asked=self.metrics,
            from_logits=bool(self._from_logits),
            task=self.form.task,
            ignored=int(sums.get("ignored", 0)),
            weight=float(sums["count"].sum()) if self.weighted else None,
            **numbers,
        )

    def _add(self, values: Any, labels: Any, weights: Any, offsets: Any, name: Scores) -> None:
        if (weights is not None) != self.weighted:
            raise ValueError(
                "expected weights with every batch of a weighted evaluation, got none"
                if self.weighted
                else "expected no weights, got some: create the evaluation with weighted=True"
            )
        every = problems(values, labels, self.form, name=name, weights=weights, offsets=offsets)
        kept: list[Kept] = []
        parts = [self._sums_of(rows, number, name, kept) for number, rows in enumerate(every)]
        sums = parts[0]
        if self.form.task == "multilabel":
            sums = {key: torch.stack([part[key] for part in parts]) for key in sums}
        classes = max(rows.classes for rows in every[0])
        # Sums are stored only when complete, so that a batch that raises changes nothing.
        self._expect(sums, classes, name == "logits")
        self._keep(sums, kept, classes, name == "logits")

    def _sums_of(self, parts: list[Rows], number: int, name: Scores, kept: list[Kept]) -> Sums:
        """The sums of one problem. Appends to ``kept`` where a metric needs every confidence."""
        asked = set(self.metrics)
        if asked.intersection(CLASSWISE):
            asked |= {"ece_classwise", "brier"}
        sums: Sums = {}
        entropies: list[Tensor] = []  # NaN for any logit that is not finite; −∞ leaves other values finite
        for rows in parts:
            for predictions, labels, weights in predicted(rows, name, asked, min(TOP_K, rows.classes)):
                sums = added(sums, sums_of(predictions, labels, asked, self.bins, weights))
                entropies.append(predictions.entropy.sum())
                if asked.difference(STREAMING):
                    kept.append(Kept(number, predictions.confidence, predictions.correct, weights))
            if name == "logits" and not _are_finite(sums, entropies):
                refuse_broken(rows)
        if self.form.ignore_index is not None:
            sums["ignored"] = torch.tensor(sum(rows.ignored for rows in parts), device=sums["count"].device)
        return sums

    def _keep(self, sums: Sums, kept: list[Kept], classes: int, from_logits: bool) -> None:
        device = (self._sums or sums)["count"].device
        self._sums = added(self._sums, {name: value.to(device) for name, value in sums.items()})
        self._kept += [
            Kept(number, *(None if part is None else part.to(device) for part in parts))  # type: ignore[arg-type]
            for number, *parts in kept
        ]
        self._classes, self._from_logits = max(classes, self._classes), from_logits

    def _expect(self, sums: Sums, classes: int, from_logits: bool) -> None:
        if not self._sums:
            return
        if classes != self._classes and self.form.task != "multiple_choice":
            raise ValueError(f"expected {self._classes} classes as before, got {classes}")
        if self.form.task == "multilabel" and sums["count"].shape != self._sums["count"].shape:
            raise ValueError(f"expected {len(self._sums['count'])} labels as before, got {len(sums['count'])}")
        if from_logits != self._from_logits:
            raise ValueError("expected either logits or probabilities throughout, got both")

    def _task(self) -> tuple[Task, bool]:
        return self.form.task, self.form.ignore_index is None  # sums have an entry for ignored positions, or none

    def _settings(self) -> str:
        ignored = "" if self.form.ignore_index is None else f", ignore_index {self.form.ignore_index}"
        return f"task {self.form.task}{', weighted' if self.weighted else ''}{ignored}"

    def _expect_alike(self, group: Any) -> None:
        """Raise on all ranks or on none: if one raised alone, the others would wait forever."""
        source = "logits" if self._from_logits else "probabilities"
        is_ragged = self.form.task == "multiple_choice"
        classes = "choices" if is_ragged else f"{self._classes} classes"
        if self.form.task == "multilabel" and self._sums:
            classes = f"{len(self._sums['count'])} labels"
        settings = f"{classes} from {source}, {self._settings()}, {self.bins} bins, {', '.join(self.metrics)}"
        own = (settings if self._sums else "", self._classes)
        gathered = [own] * distributed.get_world_size(group)
        distributed.all_gather_object(gathered, own, group=group)
        descriptions = [description for description, _ in gathered]
        if "" in descriptions:
            none = [rank for rank, seen in enumerate(descriptions) if not seen]
            raise ValueError(f"expected a batch on every rank, got none on ranks {none}")
        if len(set(descriptions)) > 1:
            raise ValueError(f"expected the same settings on every rank, got {'; '.join(descriptions)}")
        self._classes = max(most for _, most in gathered)

    def _seen_something(self) -> None:
        if not self._sums:
            raise ValueError("expected at least one batch, got none: call update(logits, labels) first")
        if not self.samples:
            raise ValueError(
                f"expected at least one sample, got only labels {self.form.ignore_index}, which is ignored"
            )
        if self.weighted and not float(self._sums["count"].sum()) > 0:
            raise ValueError("expected weights with a sum above 0, got 0")

    def _from_kept(self, kept: Sequence[Kept]) -> dict[str, Tensor]:
        if not kept:
            return {}
        confidence, correct = torch.cat([part.confidence for part in kept]), torch.cat([part.correct for part in kept])
        values, order = confidence.sort()
        metrics = {}
        if "ece_equal_mass" in self.metrics:
            weights = (
                torch.cat([part.weights for part in kept if part.weights is not None])[order] if self.weighted else None
            )
            metrics["ece_equal_mass"] = binned.equal_mass(values, correct[order], self.bins, weights)
        for name in {"aurc", "augrc"}.intersection(self.metrics):
            metrics[name] = getattr(unbinned, name)(values, correct[order])
        return metrics


@overload
def evaluate(
    logits: Any,
    labels: Any,
    *,
    task: Literal["multilabel"],
    bins: int = 10,
    metrics: Collection[str] | None = None,
    classes_dim: int | None = None,
    ignore_index: int | None = None,
    weights: Any = None,
) -> MultiLabelMetrics: ...


@overload
def evaluate(
    logits: Any,
    labels: Any,
    *,
    bins: int = 10,
    metrics: Collection[str] | None = None,
    task: Task = "multiclass",
    classes_dim: int | None = None,
    ignore_index: int | None = None,
    weights: Any = None,
    offsets: Any = None,
) -> Metrics: ...


def evaluate(
    logits: Any,
    labels: Any,
    *,
    bins: int = 10,
    metrics: Collection[str] | None = None,
    task: Task = "multiclass",
    classes_dim: int | None = None,
    ignore_index: int | None = None,
    weights: Any = None,
    offsets: Any = None,
) -> Metrics:
    """Compute the metrics of logits.

    Args:
        logits: (n, classes), a tensor, an array or anything that torch can convert; other forms by ``task`` and
            ``classes_dim``.
        labels: (n,), integers from 0 to classes − 1.
        bins: number of bins, 1 to 1000. The default is that of the paper; 15 are more common in other papers.
        metrics: names of metrics, by default all that the input defines; `CONVENTIONS` describes each.
        task: the problem that each sample poses.

            - ``"multiclass"``: one of the same classes in every row.
            - ``"binary"``: one logit s of class 1 for each label, both of one shape, as (n,). It counts as the logits
              [0, s]. The confidence is max(p, 1 − p), and class 1 is predicted if p > 1/2. The Brier score is the sum
              over both classes, 2 (p − label)².
            - ``"multilabel"``: logits and labels (n, labels) of 0 and 1, each column a binary problem. Returns
              `MultiLabelMetrics`: macro means, ``micro`` and ``per_label``.
            - ``"multiple_choice"``: a list with an array of logits (choices,) for each label, of any number of choices;
              or ``offsets``. The softmax is over the choices of a row. Classwise metrics need the same classes in every
              row, and are refused.
        classes_dim: dimension of the classes if there are more than two: 1 for (n, classes, d₁, …), −1 for
            (…, classes). Labels have the shape that is left. Every position is a sample.
        ignore_index: positions with this label are left out and counted as ``ignored``; torch uses −100.
        weights: one number of at least 0 for each label, in the shape of the labels; for a multi-label problem (n,) is
            enough. A weight of 2 counts as two equal samples. ``ece_by_chance``, ``ece_by_chance_limit``,
            ``ece_debiased``, ``aurc`` and ``augrc`` count samples and are refused.
        offsets: (n + 1,) for multiple choice, if logits are one array: row i has the logits from offsets[i] up to
            offsets[i + 1].

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

    Logits of tokens, the last one padding:

    >>> tokens = torch.tensor([[[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])
    >>> print(evaluate(tokens, [[0, 1, -100]], classes_dim=-1, ignore_index=-100, metrics=["top1_accuracy"]))
    2 samples (1 ignored), 2 classes, 10 bins
      top1_accuracy       100.00%
    """
    evaluation = _begun(bins, metrics, task, classes_dim, ignore_index, weighted=weights is not None)
    evaluation.update(logits, labels, weights=weights, offsets=offsets)
    return evaluation.compute()


@overload
def evaluate_probabilities(
    probabilities: Any,
    labels: Any,
    *,
    task: Literal["multilabel"],
    bins: int = 10,
    metrics: Collection[str] | None = None,
    classes_dim: int | None = None,
    ignore_index: int | None = None,
    weights: Any = None,
) -> MultiLabelMetrics: ...


@overload
def evaluate_probabilities(
    probabilities: Any,
    labels: Any,
    *,
    bins: int = 10,
    metrics: Collection[str] | None = None,
    task: Task = "multiclass",
    classes_dim: int | None = None,
    ignore_index: int | None = None,
    weights: Any = None,
    offsets: Any = None,
) -> Metrics: ...


def evaluate_probabilities(
    probabilities: Any,
    labels: Any,
    *,
    bins: int = 10,
    metrics: Collection[str] | None = None,
    task: Task = "multiclass",
    classes_dim: int | None = None,
    ignore_index: int | None = None,
    weights: Any = None,
    offsets: Any = None,
) -> Metrics:
    """Compute the metrics of probabilities; those that need logits are None. All else as in `evaluate`.

    Args:
        probabilities: (n, classes), from 0 to 1; each row sums to 1 up to rounding. For binary and multi-label
            problems, the probability of class 1.
        labels, bins, metrics, task, classes_dim, ignore_index, weights, offsets: as in `evaluate`.

    >>> result = evaluate_probabilities([[0.8, 0.2], [0.4, 0.6]], [0, 0])
    >>> result.top1_accuracy, round(result.ece, 4), result.max_logit
    (50.0, 0.4, None)
    >>> evaluate_probabilities([0.2, 0.6], [0, 0], task="binary").top1_accuracy
    50.0
    """
    evaluation = _begun(bins, metrics, task, classes_dim, ignore_index, weighted=weights is not None)
    evaluation.update_probabilities(probabilities, labels, weights=weights, offsets=offsets)
    return evaluation.compute()


def _begun(
    bins: int,
    metrics: Collection[str] | None,
    task: Task,
    classes_dim: int | None,
    ignore_index: int | None,
    *,
    weighted: bool,
) -> Evaluation:
    """An evaluation without samples, of all metrics that the input defines unless some are named."""
    names = defined(metrics, ALL, weighted=weighted, ragged=task == "multiple_choice")
    form: dict[str, Any] = {"task": task, "classes_dim": classes_dim, "ignore_index": ignore_index}
    return Evaluation(bins=bins, metrics=names, weighted=weighted, **form)


def _samples(sums: Sums) -> int:
    return int(sums["samples" if "samples" in sums else "count"].sum()) if sums else 0


def _are_finite(sums: Sums, entropies: Sequence[Tensor]) -> bool:
    """True if all sums are finite: a logit that is not finite, or has no finite square, makes one that is not."""
    totals = [*entropies, *(sums[name] for name in MEANS if name in sums)]
    return bool(torch.stack(totals).isfinite().all())
