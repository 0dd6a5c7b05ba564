"""The verdict on a file in words: overconfident, underconfident, or no miscalibration detected."""

from __future__ import annotations

from ...calibration.files.evaluation import Column, Difference, has_independent_samples
from ...calibration.files.recalibration import Recalibration, best
from .sections import NAMES


def is_miscalibrated(column: Column) -> bool:
    """True if the ECE is above what 95% of test sets give a calibrated model."""
    return column.curve.ece > column.curve.ece_by_chance_limit


def gap_of(column: Column) -> float:
    """Mean confidence − accuracy, in percentage points."""
    return 100 * column.curve.mean_confidence - column.curve.top1_accuracy


def short_verdict(column: Column) -> str:
    """The verdict in a few words."""
    if not is_miscalibrated(column):
        return "no miscalibration detected"
    gap = gap_of(column)
    if 100 * column.curve.ece > 2 * abs(gap):  # errors of both signs cancel in the mean
        return "over- and underconfident"
    return f"{'overconfident' if gap > 0 else 'underconfident'} by {abs(gap):.1f} points"


def verdict_sentence(column: Column) -> str:
    """The verdict with its numbers."""
    curve, metrics = column.curve, column.metrics
    is_independent = has_independent_samples(column.file)
    size = f"{curve.samples:,} {'samples' if is_independent else 'independent positions'}"
    return (
        f"The mean confidence of {column.name} is {100 * curve.mean_confidence:.1f}%, its accuracy "
        f"{curve.top1_accuracy:.1f}%: {short_verdict(column)}. ECE is {curve.ece:.4f}; a calibrated model has up to "
        f"{curve.ece_by_chance_limit:.4f} by chance on {size} in {metrics.bins} bins."
    )


def repair_sentence(column: Column, results: list[Recalibration]) -> str:
    """What the best calibrator gains."""
    found, before = best(results), column.metrics.loss
    if found is None or found.column is None:
        return "No calibrator could be fitted."
    after = found.column
    if before is None or after.metrics.loss is None or after.metrics.loss >= before:
        return f"No calibrator lowers the loss of {column.name}."
    return (
        f"{found.name} lowers the loss of {column.name} most: from {before:.4f} to {after.metrics.loss:.4f}, and "
        f"changes ECE from {column.curve.ece:.4f} to {after.curve.ece:.4f}."
    )


def difference_sentence(difference: Difference) -> str:
    """The metrics in which a file is better or worse than the first, by their intervals."""
    words: dict[str, list[str]] = {"better": [], "worse": []}
    for name in difference.values:
        words.setdefault(difference.verdict(name), []).append(NAMES[name].removesuffix(", %"))
    told = [
        f"{word} in {', '.join(metrics)}" for word, metrics in words.items() if word in ("better", "worse") and metrics
    ]
    if not told:
        return f"{difference.name}: no difference detected."
    return f"{difference.name}: {'; '.join(told)} (the paired 95% interval excludes 0; not corrected for many metrics)."
