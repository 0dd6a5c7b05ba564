"""The tables of docs/last-batch.md: what a small last batch changes for SGD and for ⊥Grad, and the predictions.

Runs of the same seed share images, initial weights and order, whatever happens to the last batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ...calibration import CONVENTIONS
from ...lab.comparison.formats import metric_title
from ...lab.comparison.pair import MethodPair
from ...statistics import Comparison, compare
from ...statistics.table import markdown_table
from ..plan import PAIR
from .effect import Effect
from .method_tables import moment, reproduced

METRICS = ("top1_accuracy", "loss", "ece", "brier", "aurc")
IMAGES = {"clean": "clean", "temperature-scaled": "clean, after temperature scaling", "shifted": "corrupted"}
VARIANTS = {
    "keep": "kept",
    "first": "first in the epoch",
    "weighted": "loss weighted by 8/64",
    "running_statistics": "with running statistics",
    "drop": "dropped",
}
KEPT, WEIGHTED, STATISTICS = "kept", "loss weighted by 4/32", "with running statistics"
DIGITS = {
    "plain CNN": {KEPT: "plain CNN", WEIGHTED: "plain CNN, last batch weighted"},
    "BatchNorm CNN": {
        KEPT: "CNN with batch norm",
        WEIGHTED: "CNN with batch norm, last batch weighted",
        STATISTICS: "CNN with batch norm, last batch on running statistics",
    },
}
"""Cases of docs/results/when.json by network and by what happens to the last batch."""
WHY_SEEDS = range(100, 110)
BROKEN = 50.0
"""Accuracy in percent below which a run of SGD has broken down; all others are at 70 or more."""
REGISTERED = 10
"""Seeds that the predictions for other settings were registered for."""
SIZES = {f"batches of {size}": size for size in (50, 64, 100)}
ADAMW = "ResNet-18, AdamW"
ELSEWHERE = {
    # 4,810 images leave a last batch of 10, 4,800 none.
    **{title: (f"resnet18_batch{size}_4810", f"resnet18_batch{size}_4800") for title, size in SIZES.items()},
    **{
        title: (setting, f"{setting}_drop")
        for title, setting in {
            ADAMW: "resnet18_adamw",
            "ResNet-50": "resnet50",
            "WideResNet-28-10": "wide_resnet28_10",
            "ResNet-18, all labels": "resnet18_all_labels",
            "ResNet-18, 1000 epochs": "resnet18_1000_epochs",
        }.items()
    },
}
"""Other settings that may have runs with and without a small last batch, by title."""


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


def unbroken(pair: MethodPair) -> MethodPair:
    """The pair over the seeds whose SGD run has not broken down."""
    accuracies = pair.tables["clean"]["top1_accuracy"].baseline_values
    return pair.of_seeds([seed for seed, value in zip(pair.seeds, accuracies, strict=True) if value >= BROKEN])


def last_batch_why(results: Path) -> str:
    """SGD and ⊥Grad with each variant of the last batch, on clean images; once more without broken runs of SGD."""
    pairs, rows = variants(results), []
    for choice, pair in pairs.items():
        rows.append(_why(VARIANTS[choice], pair, pairs))
        if len(whole := unbroken(pair).seeds) < len(pair.seeds):
            left_out = ", ".join(str(seed) for seed in pair.seeds if seed not in whole)
            rows.append(_why(f"{VARIANTS[choice]}, without seed {left_out}", pair.of_seeds(whole), pairs))
    sgd = ["SGD, accuracy, % ↑", "SGD, loss ↓", "SGD, loss − kept", "SGD, loss − dropped"]
    return markdown_table(["last batch", "seeds", *sgd, "⊥Grad − SGD, loss", "⊥Grad − SGD, ECE"], rows)


def _why(title: str, pair: MethodPair, pairs: Mapping[str, MethodPair]) -> list[str]:
    """A variant, and SGD's loss with it beside the same seeds with the batch kept and dropped."""
    loss, ece, accuracy = (pair.tables["clean"][metric] for metric in ("loss", "ece", "top1_accuracy"))
    others = (_sgd_loss(pairs[choice].of_seeds(pair.seeds)) for choice in ("keep", "drop"))
    changes = [
        "–" if values == loss.baseline_values else Effect.of(compare(values, loss.baseline_values)).text(3)
        for values in others
    ]
    means = f"{accuracy.baseline.mean:.1f}", f"{loss.baseline.mean:.3f}"
    return [title, str(len(pair.seeds)), *means, *changes, Effect.of(loss).text(3), Effect.of(ece).text(3)]


def _sgd_loss(pair: MethodPair) -> tuple[float, ...]:
    return pair.tables["clean"]["loss"].baseline_values


def elsewhere(results: Path) -> dict[str, Crossed]:
    """The loss on clean images of each other setting that has runs with both, over the seeds that both have."""
    losses = {}
    for title, settings in ELSEWHERE.items():
        kept, dropped = (reproduced(results, name, *PAIR) for name in settings)
        if kept is not None and dropped is not None:
            seeds = sorted({*kept.seeds} & {*dropped.seeds})
            losses[title] = Crossed(*(pair.of_seeds(seeds).tables["clean"]["loss"] for pair in (kept, dropped)))
    return losses


def last_batch_elsewhere(results: Path) -> str:
    """The loss without ⊥Grad and its difference, with and without a small last batch."""
    rows = []
    for title, loss in elsewhere(results).items():
        effects = (loss.baseline, loss.kept, loss.dropped, loss.interaction)
        count, mean = len(loss.kept.baseline_values), f"{loss.kept.baseline.mean:.3f}"
        rows.append([title, str(count), mean, *(Effect.of(part).text(3) for part in effects)])
    header = ["setting", "seeds", "baseline, with", "baseline, without − with"]
    return markdown_table([*header, "⊥Grad − baseline, with", "⊥Grad − baseline, without", "change"], rows)


def digits(results: Path) -> dict[str, dict[str, dict[str, Comparison]]]:
    """SGD against ⊥Grad on digits after the last epoch: by network, treatment of the last batch, and metric."""
    record = json.loads((results / "when.json").read_text(encoding="utf-8"))

    def compared(case: str) -> dict[str, Comparison]:
        ends = [
            [moment(run, record["epochs"], record["epochs"][-1]) for run in runs]
            for runs in record["runs"][case].values()
        ]
        return {name: compare(*([end[name] for end in each] for each in ends)) for name in METRICS[:3]}

    return {
        network: {treatment: compared(case) for treatment, case in cases.items()} for network, cases in DIGITS.items()
    }


def last_batch_digits(results: Path) -> str:
    """SGD and ⊥Grad on digits, whose last batch has 4 images, on clean images."""
    rows = []
    for network, treatments in digits(results).items():
        for treatment, of in treatments.items():
            loss, accuracy = of["loss"], of["top1_accuracy"]
            change = "–" if treatment == KEPT else Effect.of(_from_kept(treatments, treatment)).text(3)
            means = f"{accuracy.baseline.mean:.1f}", f"{loss.baseline.mean:.3f}"
            effects = change, Effect.of(loss).text(3), Effect.of(of["ece"]).text(3)
            rows.append([network, treatment, str(loss.baseline.n), *means, *effects])
    header = ["network", "last batch", "seeds", "SGD, accuracy, % ↑", "SGD, loss ↓", "SGD, loss − kept"]
    return markdown_table([*header, "⊥Grad − SGD, loss", "⊥Grad − SGD, ECE"], rows)


def _from_kept(treatments: Mapping[str, Mapping[str, Comparison]], treatment: str) -> Comparison:
    """SGD's loss with this treatment minus that with the last batch kept."""
    kept, own = (treatments[each]["loss"].baseline_values for each in (KEPT, treatment))
    return compare(kept, own)


def last_batch_predictions(results: Path) -> str:
    """Each prediction that was written down before the runs, beside the result."""
    return markdown_table(["prediction", "measured", "outcome"], _predictions(results))


def _predictions(results: Path) -> Iterator[list[str]]:
    pairs = crossed(results)
    loss, ece, accuracy = (_metric(pairs, "clean", metric) for metric in ("loss", "ece", "top1_accuracy"))
    after = _metric(pairs, "temperature-scaled", "loss")
    yield _row("Without the last batch, SGD's loss is higher", loss.baseline, is_right=loss.baseline.interval.low > 0)
    yield _row("⊥Grad lowers the loss more", loss.interaction, is_right=loss.interaction.interval.high < 0)
    beyond = compare([2 * each for each in _differences(loss.kept)], _differences(loss.dropped))  # twice: zero
    yield [
        "⊥Grad lowers the loss about twice as much",
        f"dropped {loss.dropped.difference:+.3f}, kept {loss.kept.difference:+.3f}".replace("-", "−")
        + f"; dropped − 2 × kept: {Effect.of(beyond).text(3)}",
        "inconclusive" if 0.0 in beyond.interval else "wrong: more" if beyond.difference < 0 else "wrong: less",
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
    others = elsewhere(results)
    if ADAMW in others:
        change = others[ADAMW].interaction
        prediction, measured, outcome = _row(
            "AdamW: ⊥Grad's effect on the loss changes by less than 0.05",
            change,
            is_right=abs(change.difference) < 0.05,
        )
        beyond_it = "; the interval reaches beyond 0.05" if max(map(abs, change.interval)) > 0.05 else ""
        yield [prediction, measured, outcome + fewer_seeds(change) + beyond_it]
    if others.keys() >= SIZES.keys():
        yield _of_sizes({size: others[title].baseline for title, size in SIZES.items()})
    yield from _on_digits(results)


def _on_digits(results: Path) -> Iterator[list[str]]:
    """Rows on digits: is it batch statistics that help SGD?"""
    plain, norm = digits(results).values()
    change = _from_kept(norm, WEIGHTED)
    yield _row("Digits, BatchNorm CNN: weighted, SGD's mean loss is higher", change, is_right=change.difference > 0)
    change = _from_kept(plain, WEIGHTED)
    prediction = "Digits, plain CNN: weighted, SGD's mean loss is not higher by more than 0.02"
    yield _row(prediction, change, is_right=change.difference <= 0.02)
    kept, weighted, own = (norm[each]["loss"].baseline.mean for each in (KEPT, WEIGHTED, STATISTICS))
    yield [
        "Digits, BatchNorm CNN: with running statistics, SGD's mean loss is nearer to weighted than to kept",
        f"{own:.3f} (kept {kept:.3f}, weighted {weighted:.3f})",
        "right" if abs(own - weighted) < abs(own - kept) else "wrong",
    ]


def _of_sizes(changes: Mapping[int, Comparison]) -> list[str]:
    """SGD's loss without − with a last batch of 10, by batch size. The largest size has the fewest steps."""
    means = {size: change.difference for size, change in changes.items()}
    is_right = min(means.values()) > 0 and means[max(means)] == max(means.values())
    fewest = min(changes.values(), key=lambda change: change.baseline.n)
    return [
        "Batches of 50, 64, 100: without a last batch of 10 images SGD's mean loss is higher, most for 100",
        "; ".join(f"{size}: {Effect.of(change).text(3)}" for size, change in changes.items()),
        ("right" if is_right else "wrong") + fewer_seeds(fewest),
    ]


def fewer_seeds(measured: Comparison, registered: int = REGISTERED) -> str:
    """A remark if it has fewer seeds than the prediction was registered for."""
    n = measured.baseline.n
    return f", with {n} paired seeds of the {registered} registered" if n < registered else ""


def _nearer(results: Path) -> Iterator[list[str]]:
    """Rows on SGD's mean loss with a variant: nearer to kept or to dropped; the same without broken runs."""
    pairs = variants(results)
    for choice, words, expected in (
        ("running_statistics", "With running statistics for it", "drop"),
        ("first", "With it first in the epoch", "keep"),
        ("weighted", "With its loss weighted by 8/64", "keep"),
    ):
        whole = unbroken(pairs[choice]).seeds
        measured, nearest = _means(pairs, choice, pairs[choice].seeds)
        if len(whole) < len(pairs[choice].seeds):
            measured += f"; without the broken run {_means(pairs, choice, whole)[0]}"
        outcome = "right" if nearest == expected else "wrong"
        yield [f"{words}, SGD's mean loss is nearer to {VARIANTS[expected]}", measured, outcome]


def _means(pairs: Mapping[str, MethodPair], choice: str, seeds: Sequence[int]) -> tuple[str, str]:
    """SGD's mean loss with a variant, with the batch kept and dropped, over these seeds; which of both is nearer."""
    own, kept, dropped = (fmean(_sgd_loss(pairs[each].of_seeds(seeds))) for each in (choice, "keep", "drop"))
    return f"{own:.3f} (kept {kept:.3f}, dropped {dropped:.3f})", min(
        ("keep", "drop"), key=lambda each: abs(own - {"keep": kept, "drop": dropped}[each])
    )


def _row(prediction: str, measured: Comparison, *, is_right: bool, digits: int = 3) -> list[str]:
    return [prediction, Effect.of(measured).text(digits), "right" if is_right else "wrong"]
