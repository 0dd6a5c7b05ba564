"""Two methods compared in one metric, or in many with Holm's correction; and Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from numpy.typing import ArrayLike

from .comparison import Comparison
from .hypothesis import holm, tost
from .samples import checked_alpha, checked_resamples, two_samples
from .verdict import Direction, ends, number, percent, probability

ARROWS: dict[Direction | None, str] = {"lower": " ↓", "higher": " ↑", None: ""}
"""The good direction, after a metric's name."""


@dataclass(frozen=True)
class ComparisonTable:
    """One comparison per metric, in the given order."""

    rows: tuple[Comparison, ...]

    def __iter__(self) -> Iterator[Comparison]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, metric: str) -> Comparison:
        for row in self.rows:
            if row.metric == metric:
                return row
        raise KeyError(f"expected one of {[row.metric for row in self.rows]}, got {metric!r}")

    def as_dict(self) -> dict[str, Any]:
        """Every comparison by the name of its metric, as a JSON object."""
        return {str(row.metric): row.as_dict() for row in self.rows}

    def __str__(self) -> str:
        names = "metric", "baseline", "candidate", "candidate − baseline"
        header = (*names, _interval_name(self), "d", "p", "p (Holm)", "verdict")
        return _aligned([header, *(_cells(row) for row in self.rows)])


def compare(
    baseline: ArrayLike,
    candidate: ArrayLike,
    *,
    metric: str | None = None,
    paired: bool = True,
    better: Direction | None = None,
    margin: float | None = None,
    alpha: float = 0.05,
    resamples: int = 9999,
    seed: int = 0,
) -> Comparison:
    """Compare two methods by one value per seed: effect sizes, intervals, tests and a verdict.

    Args:
        baseline: The values of the baseline, one per seed.
        candidate: The values of the candidate; with ``paired``, of the same seeds in the same order.
        metric: A name for the sentence.
        paired: True if runs that share a position share their seed.
        better: The good direction, "lower" or "higher"; without it the verdict is "lower" or "higher".
        margin: The largest difference that does not matter; with it, equivalence is tested too.
        alpha: The level of the tests; intervals have confidence 1 − alpha.
        resamples: Bootstrap resamples.
        seed: The seed of the bootstrap.

    Returns:
        The comparison. Differences and effect sizes are candidate − baseline.

    Raises:
        ValueError: A sample is not one finite number per seed, or an option is out of range.

    >>> ece = compare([0.168, 0.171, 0.165, 0.169], [0.161, 0.163, 0.160, 0.162], metric="ece", better="lower")
    >>> ece.verdict
    'better'
    >>> ece.sentence.split(" (")[0]
    'ece: the candidate is better than the baseline: lower by 0.00675'
    """
    if better not in (*get_args(Direction), None):
        raise ValueError(f'expected better "lower", "higher" or None, got {better!r}')
    both, alpha = two_samples(baseline, candidate, paired=paired), checked_alpha(alpha)
    return Comparison(
        metric=metric,
        paired=paired,
        better=better,
        alpha=alpha,
        baseline_values=tuple(both.baseline.tolist()),
        candidate_values=tuple(both.candidate.tolist()),
        equivalence=None if margin is None else tost(baseline, candidate, margin=margin, paired=paired, alpha=alpha),
        resamples=checked_resamples(resamples),
        seed=seed,
    )


def compare_table(
    metrics: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    better: Mapping[str, Direction | None],
    margins: Mapping[str, float] | None = None,
    paired: bool = True,
    alpha: float = 0.05,
    resamples: int = 9999,
    seed: int = 0,
) -> ComparisonTable:
    """`compare` for each metric's (baseline, candidate), with Holm's correction over all of them.

    The tests of difference are one family, the equivalence tests of metrics with a margin are another. A metric that is
    not in ``better`` has no good direction: its verdict is lower, higher or inconclusive.

    >>> samples = [0.168, 0.171, 0.165, 0.169], [0.161, 0.163, 0.160, 0.162]
    >>> [row.verdict for row in compare_table({"ece": samples}, better={"ece": "lower"})]
    ['better']
    """
    margins = margins or {}
    _check_names(metrics, better=better, margins=margins)
    rows = [
        compare(
            *samples,
            metric=name,
            paired=paired,
            better=better.get(name),
            margin=margins.get(name),
            alpha=alpha,
            resamples=resamples,
            seed=seed,
        )
        for name, samples in metrics.items()
    ]
    return ComparisonTable(tuple(_corrected(rows)))


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""A Markdown table; a ``|`` in a cell is escaped.

    >>> print(markdown_table(["x", "y"], [["a|b", "2"]]), end="")
    | x | y |
    | --- | --- |
    | a\|b | 2 |
    """
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n" for cells in lines)


def _corrected(rows: list[Comparison]) -> Iterator[Comparison]:
    differences = holm([row.p for row in rows])
    equivalences = iter(holm([row.equivalence_p for row in rows if row.equivalence_p is not None]))
    for row, p in zip(rows, differences, strict=True):
        equivalence_p = next(equivalences) if row.equivalence else None
        yield replace(row, corrected_p=p, corrected_equivalence_p=equivalence_p)


def _check_names(metrics: Mapping[str, Any], **options: Mapping[str, Any]) -> None:
    if not metrics:
        raise ValueError("expected at least one metric, got none")
    for option, values in options.items():
        unknown = [name for name in values if name not in metrics]
        if unknown:
            raise ValueError(f"expected {option} for metrics in {list(metrics)}, got {unknown}")


def _cells(row: Comparison) -> tuple[str, ...]:
    return (
        (row.metric or "") + ARROWS[row.better],
        f"{number(row.baseline.mean)} ± {row.baseline.sd:.2g}",
        f"{number(row.candidate.mean)} ± {row.candidate.sd:.2g}",
        number(row.difference),
        ends(row.interval),
        number(row.cohens_d.value),
        probability(row.p),
        "" if row.corrected_p is None else probability(row.corrected_p),
        row.verdict,
    )


def _interval_name(table: ComparisonTable) -> str:
    return f"{percent(1 - table.rows[0].alpha)} interval"


def _aligned(lines: list[tuple[str, ...]]) -> str:
    """Left-aligned names, right-aligned numbers, left-aligned verdicts."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    last = len(widths) - 1
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place in (0, last) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
