"""The tables of docs/last-batch.md: what a small last batch changes for SGD and for ⊥Grad, and the predictions.

Runs of the same seed share images, initial weights and order, whatever happens to the last batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from ...calibration import CONVENTIONS
from ...lab.comparison.formats import metric_title
from ...lab.comparison.pair import MethodPair
from ...statistics import Comparison, compare
from ...statistics.table import markdown_table
from ..plan import PAIR
from .effect import Effect
from .method_tables import reproduced

METRICS = ("top1_accuracy", "loss", "ece", "brier", "aurc")
IMAGES = {"clean": "clean", "temperature-scaled": "clean, after temperature scaling", "shifted": "corrupted"}
VARIANTS = {
    "keep": "kept",
    "first": "first in the epoch",
    "weighted": "loss weighted by 8/64",
    "running_statistics": "with running statistics",
    "drop": "dropped",
}
WHY_SEEDS = range(100, 110)
ELSEWHERE = {
    "resnet18_adamw": "ResNet-18, AdamW",
    "resnet50": "ResNet-50",
    "wide_resnet28_10": "WideResNet-28-10",
    "resnet18_all_labels": "ResNet-18, all labels",
    "resnet18_1000_epochs": "ResNet-18, 1000 epochs",
}
"""Settings that may have runs with the last batch dropped, too."""


@dataclass(frozen=True)
class Crossed:
    """One metric of four sets of runs: SGD and ⊥Grad, with the last batch kept and dropped."""

    kept: Comparison
    dropped: Comparison

    @property
    def baseline(self) -> Comparison:
        """SGD's change: dropped − kept."""
        return compare(self.kept.baseline_values, self.dropped.baseline_values)

    @property
    def interaction(self) -> Comparison:
        """The change of ⊥Grad − SGD: dropped − kept."""
        return compare(*(_differences(each) for each in (self.kept, self.dropped)))


def _differences(comparison: Comparison) -> list[float]:
    both = zip(comparison.candidate_values, comparison.baseline_values, strict=True)
    return [candidate - baseline for candidate, baseline in both]


def crossed(results: Path) -> tuple[MethodPair, MethodPair]:
    """The pairs of both settings, kept first."""
    kept, dropped = (reproduced(results, f"resnet18_{choice}", *PAIR) for choice in ("keep", "drop"))
    assert kept is not None
    assert dropped is not None
    assert kept.seeds == dropped.seeds
    return kept, dropped


def _metric(pairs: tuple[MethodPair, MethodPair], images: str, metric: str) -> Crossed:
    return Crossed(*(pair.tables[images][metric] for pair in pairs))


def last_batch(results: Path) -> str:
    """Both methods with the last batch kept and dropped, and the differences, with 95% paired intervals."""
    pairs = crossed(results)
    rows = []
    for images, title in IMAGES.items():
        for metric in METRICS if images != "temperature-scaled" else METRICS[1:]:
            each, convention = _metric(pairs, images, metric), CONVENTIONS[metric]
            moments = each.kept.baseline, each.dropped.baseline, each.kept.candidate, each.dropped.candidate
            shown = [f"{part.mean:.{convention.digits}f}" for part in moments]
            shown += [Effect.of(part).text(convention.digits) for part in (each.kept, each.dropped, each.interaction)]
            rows.append([title, metric_title(metric), *shown])
    means = [f"{name}, {what}" for name in ("SGD", "⊥Grad") for what in ("kept", "dropped")]
    return markdown_table(["images", "metric", *means, "⊥Grad − SGD, kept", "⊥Grad − SGD, dropped", "change"], rows)


def variants(results: Path) -> dict[str, MethodPair]:
    """The pair of each variant, over the same seeds."""
    pairs = {choice: reproduced(results, f"resnet18_{choice}", *PAIR) for choice in VARIANTS}
    return {choice: pair.of_seeds(WHY_SEEDS) for choice, pair in pairs.items() if pair is not None}


def last_batch_why(results: Path) -> str:
    """SGD and ⊥Grad with each variant of the last batch, on clean images."""
    pairs, rows = variants(results), []
    kept = pairs["keep"].tables["clean"]["loss"].baseline_values
    for choice, pair in pairs.items():
        clean = pair.tables["clean"]
        loss, ece, accuracy = (clean[metric] for metric in ("loss", "ece", "top1_accuracy"))
        change = "–" if choice == "keep" else Effect.of(compare(kept, loss.baseline_values)).text(3)
        means = f"{accuracy.baseline.mean:.1f}", f"{loss.baseline.mean:.3f}", f"{median(loss.baseline_values):.3f}"
        rows.append([VARIANTS[choice], *means, change, Effect.of(loss).text(3), Effect.of(ece).text(3)])
    sgd = ["SGD, accuracy, % ↑", "SGD, loss ↓", "SGD, median loss ↓", "SGD, loss − kept"]
    return markdown_table(["last batch", *sgd, "⊥Grad − SGD, loss", "⊥Grad − SGD, ECE"], rows)


def elsewhere(results: Path) -> dict[str, Crossed]:
    """The loss on clean images of each other setting that has runs with both, over the seeds that both have."""
    losses = {}
    for setting in ELSEWHERE:
        pairs = [reproduced(results, name, *PAIR) for name in (setting, f"{setting}_drop")]
        kept, dropped = pairs
        if kept is not None and dropped is not None:
            seeds = sorted({*kept.seeds} & {*dropped.seeds})
            losses[setting] = Crossed(*(pair.of_seeds(seeds).tables["clean"]["loss"] for pair in (kept, dropped)))
    return losses


def last_batch_elsewhere(results: Path) -> str:
    """The loss without ⊥Grad and its difference, with the last batch kept and dropped."""
    rows = []
    for setting, loss in elsewhere(results).items():
        effects = (loss.baseline, loss.kept, loss.dropped, loss.interaction)
        count, mean = len(loss.kept.baseline_values), f"{loss.kept.baseline.mean:.3f}"
        rows.append([ELSEWHERE[setting], str(count), mean, *(Effect.of(part).text(3) for part in effects)])
    header = ["setting", "seeds", "baseline, kept", "baseline, dropped − kept"]
    return markdown_table([*header, "⊥Grad − baseline, kept", "⊥Grad − baseline, dropped", "change"], rows)


def last_batch_predictions(results: Path) -> str:
    """Each prediction that was written down before the runs, beside the result."""
    return markdown_table(["prediction", "measured", "outcome"], _predictions(results))


def _predictions(results: Path) -> Iterator[list[str]]:
    pairs = crossed(results)
    loss, ece, accuracy = (_metric(pairs, "clean", metric) for metric in ("loss", "ece", "top1_accuracy"))
    after = _metric(pairs, "temperature-scaled", "loss")
    yield _row("Without the last batch, SGD's loss is higher", loss.baseline, is_right=loss.baseline.interval.low > 0)
    yield _row("⊥Grad lowers the loss more", loss.interaction, is_right=loss.interaction.interval.high < 0)
    ratio = loss.dropped.difference / loss.kept.difference
    yield [
        "⊥Grad lowers the loss about twice as much",
        f"{ratio:.1f} times",
        "right" if 1.5 <= ratio <= 2.5 else "wrong: more" if ratio > 2.5 else "wrong: less",
    ]
    yield _row("⊥Grad lowers ECE more", ece.interaction, is_right=ece.interaction.interval.high < 0)
    yield _row(
        "Accuracy: the change is below 0.5 points",
        accuracy.interaction,
        digits=2,
        is_right=abs(accuracy.interaction.difference) < 0.5,
    )
    yield _row(
        "After temperature scaling, the change in loss is less than half",
        after.interaction,
        is_right=abs(after.interaction.difference) < abs(loss.interaction.difference) / 2,
    )

    yield from _nearer(results)
    if (adamw := elsewhere(results).get("resnet18_adamw")) is not None:
        yield _row(
            "AdamW: ⊥Grad's effect on the loss changes by less than 0.05",
            adamw.interaction,
            is_right=abs(adamw.interaction.difference) < 0.05,
        )


def _nearer(results: Path) -> Iterator[list[str]]:
    """Rows on SGD's loss with a variant: nearer to kept or to dropped, by the mean, as predicted, and the median."""
    losses = {choice: pair.tables["clean"]["loss"].baseline_values for choice, pair in variants(results).items()}
    for choice, words, expected in (
        ("running_statistics", "With running statistics for it", "drop"),
        ("first", "With it first in the epoch", "keep"),
        ("weighted", "With its loss weighted by 8/64", "keep"),
    ):
        found = []
        for average in (fmean, median):
            kept, dropped, own = (average(losses[each]) for each in ("keep", "drop", choice))
            found.append("keep" if abs(own - kept) < abs(own - dropped) else "drop")
        outcome = "right" if found[0] == expected else "wrong"
        by_median = (
            "" if found[0] == found[1] else f" by the mean, {'wrong' if outcome == 'right' else 'right'} by the median"
        )
        means = (f"{fmean(losses[each]):.3f}" for each in (choice, "keep", "drop"))
        prediction = f"{words}, SGD's loss is nearer to {VARIANTS[expected]}"
        yield [prediction, "{} (kept {}, dropped {})".format(*means), outcome + by_median]


def _row(prediction: str, measured: Comparison, *, is_right: bool, digits: int = 3) -> list[str]:
    return [prediction, Effect.of(measured).text(digits), "right" if is_right else "wrong"]
