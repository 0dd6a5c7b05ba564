"""float32, TF32 and bf16: whether numbers shift when a GPU multiplies less exactly, and which one to train in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, median, stdev

from scipy import stats

from ...calibration import CONVENTIONS
from ...lab.comparison.page.tables import typeset
from ...lab.comparison.pair import MARGINS, MethodPair
from ...lab.comparison.records import Record
from ...statistics import Comparison, compare, holm
from ..evidence import ALONE, Evidence, shares, title_of, values_of, with_whole_clocks
from ..plan import SETTINGS, Experiment
from ..verdicts.claims import sections
from ..verdicts.numbers import LEVEL, Methods, claims_difference, differences, differences_of
from .blocks import Block, Table, Words, table
from .tables import difference_text, effects_table, mean_text, p_texts, shown

Key = tuple[str, str]
"""A method and a quantity."""
Runs = Mapping[str, Mapping[str, Mapping[int, Record]]]
"""By precision, method and seed."""
NAMES = {"float32": "float32", "tf32": "TF32", "bf16": "bf16"}
COMPARED = (("tf32", "float32"), ("bf16", "float32"), ("bf16", "tf32"))
WHY = "PyTorch's own setting, beside which the paper names no other"
POINT = {**MARGINS, "top5_accuracy": 1.0, "ece": 0.01}
"""One point, of accuracy and of the distance between it and confidence."""

HOW = (
    "Differences are paired: runs of a seed share their images, initial weights and batches; p is "
    "corrected by Holm's rule over both methods and all rows of a table; seed SDs are those of the precision that is "
    "subtracted. That nothing changes is tested as equality (two one-sided tests, corrected too) within a margin that "
    "does not depend on our runs: half the difference that ⊥Grad makes according to the paper, where it claims one, "
    "for two such shifts cannot turn it round; one point of accuracy; and of ECE the same point, 0.01. Other rows have "
    "no margin, and without a shift they stay inconclusive. Where precisions have more seeds than those in common, "
    "means over all of them are compared too, by independent t-tests, corrected in the same way. These tests, the "
    "table of the training loss, and 20 seeds instead of 5 in bf16 were decided upon after the first results had been "
    "seen; the verdicts use paired differences, as before."
)


@dataclass(frozen=True)
class PrecisionComparison:
    """One precision against another: each method's quantities, over the seeds that both have of every method.

    Beside it p of independent t-tests over all seeds that either has, corrected like the others.
    """

    given: str
    reference: str
    seeds: int
    rows: Mapping[Key, Comparison]
    all_seeds: tuple[int, int]
    p_over_all_seeds: Mapping[Key, float]

    @property
    def title(self) -> str:
        """Which is subtracted from which."""
        return f"{NAMES[self.given]} − {NAMES[self.reference]}"

    @property
    def shifts(self) -> list[Key]:
        """The methods and quantities that differ after Holm's correction."""
        return [key for key, row in self.rows.items() if row.is_significant]

    @property
    def least_shift(self) -> float:
        """The smallest shift that would count after the strictest correction, in seed SDs; the median over rows.

        Half of a 95 % interval is t_{0.975, n − 1} times the error; here t_{1 − 0.025 / rows, n − 1} takes its place.
        """
        usual, strict = (stats.t.isf(LEVEL / 2 / tests, self.seeds - 1) for tests in (1, len(self.rows)))
        rows = [row for row in self.rows.values() if row.candidate.sd > 0]
        halves = [(row.interval.high - row.interval.low) / 2 / row.candidate.sd for row in rows]
        return float(median(halves or [0.0]) * strict / usual)

    def verdict(self, names: Mapping[str, str]) -> str:
        """What the numbers say, in a sentence or two."""
        least = typeset(f"{min(row.corrected_p or 0.0 for row in self.rows.values()):.2g}")
        shifts = (
            f"shifts: {_listed(self.shifts, names)}" if self.shifts else f"no metric shifts (least p, Holm: {least})"
        )
        equal = [key for key, row in self.rows.items() if row.verdict == "equivalent"]
        tested = sum(margin_of(quantity) is not None for _, quantity in self.rows)
        shown = f": {_listed(equal, names)}" if equal else ""
        return (
            f"**{self.title}**, {self.seeds} seeds: {shifts}. "
            f"Shown equal are {len(equal)} of the {tested} rows that have a margin{shown}. "
            f"In the median row only a shift of more than {self.least_shift:.1f} seed SDs would have counted."
            f"{self._over_all_seeds(names)}"
        )

    def _over_all_seeds(self, names: Mapping[str, str]) -> str:
        if self.all_seeds == (self.seeds, self.seeds):
            return ""
        shifts = [key for key, p in self.p_over_all_seeds.items() if p < LEVEL]
        least = typeset(f"{min(self.p_over_all_seeds.values()):.2g}")
        given = f"{self.all_seeds[0]} in {NAMES[self.given]}"
        reference = f"{self.all_seeds[1]} in {NAMES[self.reference]}"
        return (
            f" By independent t-tests over all seeds, {given} and {reference}, "
            f"shifts: {_listed(shifts, names) if shifts else 'none'} (least p, Holm: {least})."
        )


def comparison(runs: Runs, given: str, reference: str) -> PrecisionComparison | None:
    """Over the seeds that every method has in both precisions; None with fewer than two."""
    seeds_of = [set.intersection(*(set(each) for each in runs[name].values())) for name in (given, reference)]
    seeds = sorted(set.intersection(*seeds_of))
    if len(seeds) < 2:
        return None
    pairs = _values(runs, (given, seeds), (reference, seeds))
    names = {key: ".".join(key) for key in pairs}
    margins = {names[key]: margin for key in pairs if (margin := margin_of(key[1])) is not None}
    rows = differences({names[key]: methods for key, methods in pairs.items()}, margins=margins)
    whole = _values(runs, (given, sorted(seeds_of[0])), (reference, sorted(seeds_of[1])))
    corrected = holm([compare(*methods, paired=False).student_test.p for methods in whole.values()])
    return PrecisionComparison(
        given,
        reference,
        len(seeds),
        {key: rows[name] for key, name in names.items()},
        (len(seeds_of[0]), len(seeds_of[1])),
        dict(zip(whole, corrected, strict=True)),
    )


def _values(runs: Runs, *of: tuple[str, Sequence[int]]) -> dict[Key, Methods]:
    """Each method's quantities in two precisions, each over its seeds; those that all runs have."""
    values: dict[Key, Methods] = {}
    for method in runs[of[0][0]]:
        for quantity in quantities():
            first, second = (
                values_of(tuple(runs[name][method][seed] for seed in seeds), quantity) for name, seeds in of
            )
            if first and second:
                values[method, quantity] = first, second
    return values


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


def default(compared: Mapping[Key, PrecisionComparison], names: Mapping[str, str]) -> str:
    """What follows for the precision that one should train in."""
    tf32, *bf16 = (compared.get(pair) for pair in COMPARED)
    if tf32 is None:
        return f"**The default** is TF32, {WHY}, until there are runs that tell otherwise."
    if tf32.shifts:
        words = f"**The default** should be float32, for TF32 shifts {_listed(tf32.shifts, names)}."
    else:
        words = f"**The default** stays TF32, {WHY}: as far as {tf32.seeds} seeds tell, no metric shifts."
    if bf16[0] is None:
        return words
    sound = [each for each in bf16 if each is not None and (each.reference == "float32" or not tf32.shifts)]
    if shifts := list(dict.fromkeys(key for each in sound for key in each.shifts)):
        return f"{words} bf16 is not for numbers to set beside others', for it shifts {_listed(shifts, names)}."
    return f"{words} bf16 shifts none{'' if tf32.shifts else ' either'}, and is recommended where speed counts."


def _listed(keys: Sequence[Key], names: Mapping[str, str]) -> str:
    """Each quantity once, with the methods it is of.

    >>> _listed([("a", "clean.ece"), ("a", "clean.loss"), ("b", "clean.ece")], {"a": "SGD", "b": "⊥Grad"})
    'ECE (SGD, ⊥Grad), loss (SGD)'
    """
    methods: dict[str, list[str]] = {}
    for method, quantity in keys:
        methods.setdefault(title_of(quantity), []).append(names[method])
    return ", ".join(f"{title} ({', '.join(of)})" for title, of in methods.items())


def precision_part(experiment: Experiment, evidence: Evidence, names: Mapping[str, str]) -> Iterator[Block]:
    """Tables, verdicts, seconds, and what follows for the default; ``names`` are those of the methods."""
    if evidence.scale.has_one_precision:
        yield Words("All runs of this try are in the same precision, so there is nothing to compare.")
        return
    runs = _runs(experiment, evidence)
    compared = {pair: each for pair in COMPARED if (each := comparison(runs, *pair)) is not None}
    if compared:
        yield Words(HOW)
    for each in compared.values():
        yield Words(each.verdict(names))
        yield _table(each, names)
    yield from _learning(runs, names)
    yield from _effects(runs, (experiment.methods[0], experiment.methods[1]), names)
    if any(runs[name][method] for name in runs for method in runs[name]):
        yield from _seconds(runs, evidence)
    yield Words(default(compared, names))


def _runs(experiment: Experiment, evidence: Evidence) -> Runs:
    def by_seed(setting: str, method: str) -> dict[int, Record]:
        return {run["config"]["seed"]: run for run in evidence.of_setting(setting, method)}

    return {
        SETTINGS[setting].precision: {method: by_seed(setting, method) for method in experiment.methods}
        for setting in experiment.settings()
    }


def _learning(runs: Runs, names: Mapping[str, str]) -> Iterator[Block]:
    """The loss in training, where precisions have two seeds or more: averaged over fifths, steadier than at its end."""
    losses = {
        (name, method): [run["losses"] for run in of_method.values()]
        for name in NAMES
        for method, of_method in runs[name].items()
        if len(of_method) > 1
    }
    if len({name for name, _ in losses}) < 2:
        return
    epochs = min(len(curve) for curves in losses.values() for curve in curves)
    ends = [round(epochs * fifth / 5) for fifth in range(6)]
    rows = []
    for method, title in names.items():
        for begin, end in ((begin, end) for begin, end in pairwise(ends) if end > begin):
            fifths = ([mean(curve[begin:end]) for curve in losses.get((name, method), ())] for name in NAMES)
            cells = (f"{mean(fifth):.4f} ± {stdev(fifth):.4f}" if fifth else "–" for fifth in fifths)
            rows.append([f"{begin + 1} to {end}" if end > begin + 1 else str(end), title, *cells])
    yield Words(
        "The last epoch is a noisy one among many. Training loss in all of them, means ± SD over all seeds there are:"
    )
    yield table(("epochs", "method", *NAMES.values()), rows)


def _effects(runs: Runs, methods: tuple[str, str], names: Mapping[str, str]) -> Iterator[Block]:
    """What the second method changes in each precision, over the seeds that both methods have."""
    cases = {}
    for name in NAMES:
        if len(set.intersection(*(set(runs[name][method]) for method in methods))) > 1:
            done = [run for method in methods for run in runs[name][method].values()]
            pair = MethodPair.of(done, baseline=methods[0], candidate=methods[1])
            cases[f"{NAMES[name]}, {len(pair.seeds)} seeds"] = differences_of(pair, shown("clean"))
    if cases:
        yield Words(f"What {names[methods[1]]} changes, in each precision, clean test images:")
        yield effects_table(cases, ("precision", names[methods[0]], names[methods[1]]))


def _table(compared: PrecisionComparison, names: Mapping[str, str]) -> Table:
    header = (
        "method",
        "metric",
        f"{NAMES[compared.reference]} ± SD over seeds",
        f"{compared.title} (95 %)",
        "in seed SDs",
        "p, paired",
        "p, Holm",
        "margin",
        "verdict",
    )
    return table(header, (_row(names[method], quantity, row) for (method, quantity), row in compared.rows.items()))


def _row(method: str, quantity: str, row: Comparison) -> list[str]:
    convention = CONVENTIONS.get(quantity.rpartition(".")[2])
    digits = 4 if convention is None else convention.digits + 1
    margin, sd = row.margin, row.candidate.sd
    return [
        method,
        title_of(quantity),
        mean_text(row.candidate, digits),
        difference_text(row, digits),
        typeset(f"{row.difference / sd:+.2f}") if sd else "–",
        *p_texts(row),
        "–" if margin is None else f"{margin:.{digits}f}",
        _word(row),
    ]


def _word(row: Comparison) -> str:
    if row.is_significant:
        return "shifts, less than the margin" if row.verdict == "equivalent" else "shifts"
    return "equal" if row.verdict == "equivalent" else "inconclusive"


def _seconds(runs: Runs, evidence: Evidence) -> Iterator[Block]:
    """By each run's own clock, and what of it is left when those side by side share their time."""
    shared = dict(zip(evidence.records, shares(evidence.records.values()), strict=True))
    rows = []
    for name in NAMES:
        done = with_whole_clocks(run for method in runs[name].values() for run in method.values())
        if done:
            clocks = ([each["training"] for each in (run["seconds"], shared[run["hash"]])] for run in done)
            rows.append([NAMES[name], str(len(done)), *(f"{median(each):.1f}" for each in zip(*clocks, strict=True))])
    yield Words(
        "What training takes, in seconds a run (medians): by its own clock, and with every instant divided among the "
        "runs that were at work side by side. Runs whose clock tells only of a part, after a checkpoint, are left out."
    )
    yield table(("precision", "runs", "own clock", "divided"), rows)
