"""What Prieto et al. claim of the rows, and our verdict on each by the rule of the reproduction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..verdicts.rule import Claim, Estimate, Says, Verdict, difference_estimates, mean_estimates, verdict_on
from .records import Record


@dataclass(frozen=True)
class Published:
    """A published number: of one row, or the difference candidate − baseline.

    ``measure`` is "accuracy", in percent on test pairs, at the end or at ``step``, or "steps" until a seed generalizes.
    A seed that does not counts with all its steps. Numbers are read off figures of one seed, hence their rounding.
    """

    text: str
    figure: str
    candidate: str
    baseline: str = ""
    measure: str = "accuracy"
    says: Says | None = None
    size: float | None = None
    rounding: float = 1.0
    step: int | None = None

    @property
    def rows(self) -> list[str]:
        """The rows that it needs."""
        return [name for name in (self.baseline, self.candidate) if name]

    def values(self, record: Record) -> list[float]:
        """One value for each seed."""
        if self.measure == "steps":
            return [float(record.row.steps if step is None else step) for step in record.steps_to_generalize()]
        return [100 * value for value in record.at("test_accuracy", self.step)]

    def is_bound(self, records: Mapping[str, Record]) -> bool:
        """True if our difference in steps is the largest possible: seeds of the baseline alone never generalize."""
        if self.measure != "steps" or not self.baseline:
            return False
        baseline, candidate = (records[name].steps_to_generalize() for name in self.rows)
        return None in baseline and None not in candidate

    def estimate(self, records: Mapping[str, Record]) -> Estimate:
        """Our mean, or mean paired difference. Seeds that both rows have are paired."""
        seeds = set.intersection(*({*records[name].seeds} for name in self.rows))
        values = [
            np.array([[v for v, seed in zip(self.values(records[n]), records[n].seeds, strict=True) if seed in seeds]])
            for n in self.rows
        ]
        return (mean_estimates(*values) if len(values) == 1 else difference_estimates(*values))[0]

    def verdict(self, records: Mapping[str, Record]) -> Verdict:
        """The verdict by the rule of the reproduction, for a single published seed.

        A difference too small to be read off a figure counts as none.
        """
        ours = self.estimate(records)
        if self.says and abs(ours.value) < self.rounding:
            return "not reproduced"
        return verdict_on(Claim(self.says, self.size, self.rounding), ours)


def _precision(share: int, low: int, high: int) -> Published:
    text = f"float{low} − float{high} softmax, {share}% of pairs: lower accuracy"
    return Published(text, "2", f"float{low}_{share}", f"float{high}_{share}", says="lower")


PUBLISHED = (
    Published("⊥AdamW − AdamW, rate 0.01: higher accuracy", "1", "ortho_adamw", "adamw", says="higher", size=100),
    Published("⊥AdamW, rate 0.01: steps to generalize", "1", "ortho_adamw", measure="steps", size=120, rounding=20),
    Published(
        "⊥AdamW − AdamW, rate 0.005: higher accuracy", "6", "ortho_adamw_slower", "adamw_slower", says="higher", size=99
    ),
    Published("AdamW, rate 0.005: accuracy", "6", "adamw_slower", size=0),
    Published("⊥SGD with StableMax: accuracy at step 400", "6", "ortho_sgd", size=100, step=400),
    Published("StableMax, addition: accuracy at step 95,000", "1, 4", "stablemax", size=99, step=95_000),
    Published("StableMax, product: accuracy at step 95,000", "4", "stablemax_product", size=99, step=95_000),
    Published("StableMax, sparse parity: accuracy at step 25,000", "4", "stablemax_parity", size=100, step=25_000),
    *(_precision(share, *pair) for share in (40, 60, 70) for pair in ((16, 32), (32, 64))),
    Published(
        "transformer, ⊥AdamW − AdamW with weight decay: fewer steps",
        "6",
        "transformer_ortho_adamw",
        "transformer_decay",
        measure="steps",
        says="lower",
    ),
    Published(
        "transformer, ⊥AdamW − AdamW: fewer steps",
        "6",
        "transformer_ortho_adamw",
        "transformer_adamw",
        measure="steps",
        says="lower",
    ),
)
