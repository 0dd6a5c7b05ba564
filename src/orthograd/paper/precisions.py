"""Whether the numbers shift when a GPU multiplies less exactly: differences by pairs, verdicts, and the default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from scipy import stats

from ..lab.comparison.page.tables import typeset
from ..lab.comparison.pair import MARGINS
from ..statistics import holm, t_test
from .claims import sections
from .differences import Arms, Difference, differences
from .judgement import LEVEL, claims_difference
from .quantities import ALONE, title_of, values_of

Record = Mapping[str, Any]
Runs = Mapping[str, Mapping[str, Mapping[int, Record]]]
"""By precision, arm and seed."""
NAMES = {"float32": "float32", "tf32": "TF32", "bf16": "bf16"}
COMPARED = (("tf32", "float32"), ("bf16", "float32"), ("bf16", "tf32"))
WHY = "PyTorch's own setting, beside which the paper names no other"
POINT = {**MARGINS, "top5_accuracy": 1.0, "ece": 0.01}
"""One point, of accuracy and of the distance between it and confidence."""


@dataclass(frozen=True)
class Comparison:
    """One precision against another: each arm's quantities, over the seeds that both precisions have of every arm.

    Beside it p of independent t-tests over all seeds that either has, corrected like the others.
    """

    given: str
    reference: str
    seeds: int
    found: Mapping[tuple[str, str], Difference]
    all_seeds: tuple[int, int]
    p_over_all_seeds: Mapping[tuple[str, str], float]

    @property
    def title(self) -> str:
        """Which is subtracted from which."""
        return f"{NAMES[self.given]} − {NAMES[self.reference]}"

    @property
    def shifts(self) -> list[tuple[str, str]]:
        """The arms and quantities that differ after Holm's correction."""
        return [key for key, row in self.found.items() if row.corrected_p < LEVEL]

    @property
    def least_shift(self) -> float:
        """The smallest shift that would count after the strictest correction, in seed SDs; the median over rows.

        Half of a 95 % interval is t_{0.975, n − 1} times the error; here t_{1 − 0.025 / rows, n − 1} takes its place.
        """
        usual, strict = (stats.t.isf(LEVEL / 2 / tests, self.seeds - 1) for tests in (1, len(self.found)))
        rows = [row for row in self.found.values() if row.deviations[1] > 0]
        halves = [(row.interval.high - row.interval.low) / 2 / row.deviations[1] for row in rows]
        return float(median(halves or [0.0]) * strict / usual)

    def verdict(self, names: Mapping[str, str]) -> str:
        """What the numbers say, in a sentence or two."""
        least = typeset(f"{min(row.corrected_p for row in self.found.values()):.2g}")
        told = f"shifts: {_listed(self.shifts, names)}" if self.shifts else f"no metric shifts (least p, Holm: {least})"
        equal = [key for key, row in self.found.items() if row.verdict == "equivalent"]
        tested = sum(margin_of(quantity) is not None for _, quantity in self.found)
        shown = f": {_listed(equal, names)}" if equal else ""
        return (
            f"**{self.title}**, {self.seeds} seeds: {told}. "
            f"Shown equal are {len(equal)} of the {tested} rows that have a margin{shown}. "
            f"In the median row only a shift of more than {self.least_shift:.1f} seed SDs would have counted."
            f"{self._over_all_seeds(names)}"
        )

    def _over_all_seeds(self, names: Mapping[str, str]) -> str:
        if self.all_seeds == (self.seeds, self.seeds):
            return ""
        shifts = [key for key, p in self.p_over_all_seeds.items() if p < LEVEL]
        least = typeset(f"{min(self.p_over_all_seeds.values()):.2g}")
        told = _listed(shifts, names) if shifts else "none"
        given = f"{self.all_seeds[0]} in {NAMES[self.given]}"
        reference = f"{self.all_seeds[1]} in {NAMES[self.reference]}"
        return (
            f" By independent t-tests over all seeds, {given} and {reference}, shifts: {told} (least p, Holm: {least})."
        )


def comparison(runs: Runs, given: str, reference: str) -> Comparison | None:
    """Over the seeds that every arm has in both precisions; None with fewer than two."""
    seeds_of = [set.intersection(*(set(each) for each in runs[name].values())) for name in (given, reference)]
    seeds = sorted(set.intersection(*seeds_of))
    if len(seeds) < 2:
        return None
    pairs = _values(runs, (given, seeds), (reference, seeds))
    margins = {name: margin for name in pairs if (margin := margin_of(_key(name)[1])) is not None}
    found = differences(pairs, margins=margins)
    whole = _values(runs, (given, sorted(seeds_of[0])), (reference, sorted(seeds_of[1])))
    corrected = holm([t_test(*arms, method="student").p for arms in whole.values()])
    return Comparison(
        given,
        reference,
        len(seeds),
        {_key(name): row for name, row in found.items()},
        (len(seeds_of[0]), len(seeds_of[1])),
        dict(zip(map(_key, whole), corrected, strict=True)),
    )


def _values(runs: Runs, *of: tuple[str, Sequence[int]]) -> dict[str, Arms]:
    """Each arm's quantities in two precisions, each over its seeds; those that all runs have."""
    found: dict[str, Arms] = {}
    for arm in runs[of[0][0]]:
        for quantity in quantities():
            first, second = (values_of(tuple(runs[name][arm][seed] for seed in seeds), quantity) for name, seeds in of)
            if first and second:
                found[f"{arm}.{quantity}"] = first, second
    return found


def quantities() -> list[str]:
    """What table 1 has, and what tells of training: temperature, weight norm, the loss of the last epoch."""
    return list(dict.fromkeys([*(row.quantity for row in sections()["table1_resnet18"].rows), *ALONE]))


def margin_of(quantity: str) -> float | None:
    """The largest difference that does not matter, said beforehand; None where none was.

    >>> margin_of("clean.top1_accuracy"), margin_of("clean.ece"), margin_of("clean.brier")
    (1.0, 0.01, None)
    >>> round(margin_of("temperature"), 3)  # the paper: 2.80 and 2.66, p = 0.003
    0.07
    """
    if (point := POINT.get(quantity.rpartition(".")[2])) is not None:
        return point
    for section in ("table1_resnet18", "temperature_scaling_resnet18"):
        for row in sections()[section].rows:
            if row.quantity == quantity and claims_difference(row):
                return abs(row.baseline.value - row.candidate.value) / 2
    return None


def default(compared: Mapping[tuple[str, str], Comparison], names: Mapping[str, str]) -> str:
    """What follows for the precision that one should train in."""
    tf32, *bf16 = (compared.get(pair) for pair in COMPARED)
    if tf32 is None:
        return f"**The default** is TF32, {WHY}, until there are runs that tell otherwise."
    if tf32.shifts:
        words = f"**The default** should be float32, for TF32 shifts {_listed(tf32.shifts, names)}."
    else:
        told = f"as far as {tf32.seeds} seeds tell, no metric shifts"
        words = f"**The default** stays TF32, {WHY}: {told}."
    if bf16[0] is None:
        return words
    sound = [each for each in bf16 if each is not None and (each.reference == "float32" or not tf32.shifts)]
    if shifts := list(dict.fromkeys(key for each in sound for key in each.shifts)):
        return f"{words} bf16 is not for numbers to set beside others', for it shifts {_listed(shifts, names)}."
    return f"{words} bf16 shifts none{'' if tf32.shifts else ' either'}, and is recommended where speed counts."


def _key(name: str) -> tuple[str, str]:
    arm, _, quantity = name.partition(".")
    return arm, quantity


def _listed(keys: Sequence[tuple[str, str]], names: Mapping[str, str]) -> str:
    """Each quantity once, with the arms it is of.

    >>> _listed([("a", "clean.ece"), ("a", "clean.loss"), ("b", "clean.ece")], {"a": "SGD", "b": "⊥Grad"})
    'ECE (SGD, ⊥Grad), loss (SGD)'
    """
    arms: dict[str, list[str]] = {}
    for arm, quantity in keys:
        arms.setdefault(title_of(quantity), []).append(names[arm])
    return ", ".join(f"{title} ({', '.join(of)})" for title, of in arms.items())
