"""What a page must say, worked out from logits with numpy and scipy alone."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, special, stats

BINS = 10
DIGITS = {"top1_accuracy": 2, "top5_accuracy": 2, "max_logit": 2, "logit_variance": 2}


def metrics(logits, labels):
    """All metrics of the table but smooth ECE, of float64 logits (n, classes)."""
    p, rows = special.softmax(logits, axis=1), np.arange(len(labels))
    confidence, correct = p.max(1), p.argmax(1) == labels
    better = (logits > logits[rows, labels][:, None]).sum(1)
    order = np.argsort(-confidence, kind="stable")
    return {
        "top1_accuracy": 100 * correct.mean(),
        "top5_accuracy": 100 * (better < 5).mean(),
        "loss": -special.log_softmax(logits, axis=1)[rows, labels].mean(),
        "ece": ece(confidence, correct),
        "brier": ((p - np.eye(p.shape[1])[labels]) ** 2).sum(1).mean(),
        "entropy": special.entr(p).sum(1).mean(),
        "max_softmax": confidence.mean(),
        "max_logit": np.abs(logits).max(1).mean(),
        "logit_variance": logits.var(1, ddof=1).mean(),
        "confidence_accuracy_correlation": np.corrcoef(confidence, correct)[0, 1],
        "aurc": ((~correct[order]).cumsum() / np.arange(1, len(order) + 1)).mean(),
    }


def places(confidence):
    """The bin (lower, upper] of each confidence."""
    return np.ceil(confidence * BINS).astype(int) - 1


def ece(confidence, correct):
    """Mean over samples of the gap in their bin."""
    bins = [places(confidence) == i for i in range(BINS)]
    return sum(abs(correct[rows].sum() - confidence[rows].sum()) for rows in bins) / len(correct)


def reliability(logits, labels):
    """Share, mean confidence and accuracy of each bin; NaN where it is empty."""
    p = special.softmax(logits, axis=1)
    confidence, correct = p.max(1), p.argmax(1) == labels
    bins = [places(confidence) == i for i in range(BINS)]
    means = [
        [values[rows].mean() if rows.any() else math.nan for rows in bins] for values in (confidence, correct * 1.0)
    ]
    return np.array([[rows.mean() for rows in bins], *means])


def averaged(curves):
    """Share, confidence, accuracy, low and high over runs; bins that fewer than half of the runs fill are empty."""
    stack = np.array(curves)
    filled = ~np.isnan(stack[:, 2])
    found = np.full((5, BINS), math.nan)
    found[0] = stack[:, 0].mean(0)
    for i in range(BINS):
        runs = filled[:, i]
        if 2 * runs.sum() >= len(curves):
            accuracy = stack[runs, 2, i]
            deviation = accuracy.std(ddof=1) if runs.sum() > 1 else 0.0
            middle = accuracy.mean()
            found[1:, i] = stack[runs, 1, i].mean(), middle, max(0, middle - deviation), min(1, middle + deviation)
    return found


def temperature(logits, labels):
    """The one with the lowest loss."""
    rows = np.arange(len(labels))
    found = optimize.minimize_scalar(
        lambda log_t: -special.log_softmax(logits / math.exp(log_t), axis=1)[rows, labels].mean(),
        bounds=(-5, 7),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return math.exp(found.x)


def compared(baseline, candidate):
    """Means, deviations, difference with interval, d with interval, and p of pairs of seeds."""
    n, difference = len(baseline), np.subtract(candidate, baseline)
    error = difference.std(ddof=1) / math.sqrt(n)
    half = stats.t.ppf(0.975, n - 1) * error
    pooled = math.sqrt((np.var(baseline, ddof=1) + np.var(candidate, ddof=1)) / 2)
    d = difference.mean() / pooled
    return {
        "means": (np.mean(baseline), np.mean(candidate)),
        "deviations": (np.std(baseline, ddof=1), np.std(candidate, ddof=1)),
        "difference": (difference.mean(), difference.mean() - half, difference.mean() + half),
        "d": (d, *(_effect(d, n, share) for share in (0.975, 0.025))),
        "p": stats.ttest_rel(baseline, candidate).pvalue,
        "equivalence": max(
            stats.ttest_1samp(difference, -1.0, alternative="greater").pvalue,
            stats.ttest_1samp(difference, 1.0, alternative="less").pvalue,
        ),
    }


def _effect(d, n, share):
    """The true effect under which a d this small or smaller has this chance."""
    root = math.sqrt(n / 2)
    return optimize.brentq(lambda effect: _chance(d * root, 2 * n - 2, effect * root) - share, d - 20, d + 20)


def _chance(t, degrees, shift):
    """P((Z + shift) / S ≤ t), S² being χ²/ν: the integral over S that defines the noncentral t."""
    spread = np.linspace(0, 6, 6001)
    density = stats.chi.pdf(spread * math.sqrt(degrees), degrees) * math.sqrt(degrees)
    return float(np.sum(density * stats.norm.cdf(t * spread - shift)) * (spread[1] - spread[0]))


def holm(p_values):
    """Each p times the number of those not smaller, never falling."""
    order = np.argsort(p_values, kind="stable")
    scaled = np.minimum(1, np.maximum.accumulate(np.sort(p_values) * np.arange(len(p_values), 0, -1)))
    found = np.empty(len(p_values))
    found[order] = scaled
    return found


def verdict(metric, difference, corrected, equivalence):
    """The word that the numbers come to."""
    if metric == "top1_accuracy" and equivalence < 0.05:
        return "equivalent"
    if corrected >= 0.05:
        return "inconclusive"
    way = "lower" if difference < 0 else "higher"
    if metric in ("entropy", "max_softmax", "max_logit", "logit_variance"):
        return way
    wanted = "higher" if "accuracy" in metric else "lower"
    return "better" if way == wanted else "worse"
