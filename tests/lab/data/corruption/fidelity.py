"""Agreement of our corrupted images with the public generator's.

python -m tests.lab.data.corruption.fidelity prints the table of docs/corruptions.md.
"""

from __future__ import annotations

import math

import torch
from scipy import stats
from torch import Tensor

from orthograd.lab.data.corruption import CORRUPTIONS, EXTRA, SEVERITIES, corrupt
from tests.lab.data.corruption.reference import DETERMINISTIC, RANDOM, arrays, statistics, statistics_of


def agreement(name: str, severity: int) -> tuple[float, float]:
    """Shares of values that are equal, and that are at most one level apart."""
    expected = arrays(name)[severity - 1]
    corrupted = corrupt(arrays("clean")[: len(expected)], name, severity=severity)
    difference = (corrupted.int() - expected.int()).abs()
    return tuple(float((difference <= levels).double().mean()) for levels in (0, 1))


def deviations(name: str, severity: int, draws: int) -> Tensor:
    """Student's t of the reference's statistics against those of our draws, with draws − 1 degrees of freedom."""
    clean = arrays("clean")
    images = corrupt(clean.repeat(draws, 1, 1, 1), name, severity=severity, seed=1).unflatten(0, (draws, -1))
    drawn = statistics_of(images, clean)
    expected = torch.tensor(statistics()[name][severity - 1], dtype=torch.float64)
    # The reference is one more draw: it differs from the mean of ours by its own error and by that of the mean.
    return (expected - drawn.mean(0)) / (drawn.std(0) * math.sqrt(1 + 1 / draws))


def bound(draws: int) -> float:
    """Bound that the largest |t| of all comparisons exceeds by chance in at most 1% of cases."""
    comparisons = len(RANDOM) * len(SEVERITIES) * len(statistics()["fog"][0])
    return float(stats.t.isf(0.01 / 2 / comparisons, draws - 1))


def main(draws: int = 200) -> None:
    print(f"| corruption | equal | within one level | largest t of 65 (below {bound(draws):.1f}) |\n|---|---|---|---|")
    for name in CORRUPTIONS + EXTRA:
        if name in DETERMINISTIC:
            equal, near = (min(shares) for shares in zip(*(agreement(name, s) for s in SEVERITIES), strict=True))
            print(f"| {name} | {equal:.2%} | {near:.2%} | |")
        else:
            largest = max(float(deviations(name, severity, draws).abs().max()) for severity in SEVERITIES)
            print(f"| {name} | | | {largest:.1f} |", flush=True)


if __name__ == "__main__":
    main()
