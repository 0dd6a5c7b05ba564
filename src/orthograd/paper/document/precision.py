"""float32, TF32 and bf16: differences between precisions, and which one to train in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, median, stdev

from scipy import stats

from ...calibration import CONVENTIONS
from ...lab.comparison.page.tables import typeset
from ...lab.comparison.pair import MethodPair
from ...lab.comparison.records import Record
from ...lab.training.methods import METHODS
from ...statistics import Comparison, compare, holm
from ..evidence import ALONE, Evidence, shares, title_of, values_of, with_whole_clocks
from ..formats import difference_text, p_text
from ..plan import SETTINGS, Experiment
from ..verdicts.claims import sections
from ..verdicts.numbers import claims_difference, differences
from ..verdicts.rule import LEVEL, Methods
from ..verdicts.statements import POINT
from .blocks import Block, Heading, Table, Words, folded, table
from .tables import arrowed, mean_text, primary_blocks

Key = tuple[str, str]
"""A method and a quantity."""
Runs = Mapping[str, Mapping[str, Mapping[int, Record]]]
"""By precision, method and seed."""
NAMES = {"float32": "float32", "tf32": "TF32", "bf16": "bf16"}
COMPARED = (("tf32", "float32"), ("bf16", "float32"), ("bf16", "tf32"))
HOW = (
    "Runs of a seed share their images, initial weights and batches, so differences are paired. p is corrected by "
    "Holm's rule over both methods and all rows of a table. Equivalence is tested within a margin that does not depend "
    "on our runs: one point of accuracy, 0.01 of ECE, and elsewhere half of the difference that the paper claims. "
    "Rows without a margin cannot be equivalent. The independent t-tests, the training losses, and 20 seeds instead "
    "of 5 in bf16 are post hoc; the verdicts are paired."
)


@dataclass(frozen=True)
class PrecisionComparison:
    """One precision against another: each method's quantities, over the seeds that both have of every method.

    ``p_over_all_seeds`` is of independent t-tests over all seeds of either, corrected like the others.
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
    def changed(self) -> list[Key]:
        """The methods and quantities that differ after Holm's correction."""
        return [key for key, row in self.rows.items() if row.is_significant]

    @property
    def least_difference(self) -> float:
        """The smallest difference that would be significant after the strictest correction, in seed SDs.

        The median over rows. Half of a 95% interval is t_{0.975, n − 1} times the error; here t_{1 − 0.025 / rows,
        n − 1} takes its place.
        """
        usual, strict = (stats.t.isf(LEVEL / 2 / tests, self.seeds - 1) for tests in (1, len(self.rows)))
        rows = [row for row in self.rows.values() if row.baseline.sd > 0]
        halves = [(row.interval.high - row.interval.low) / 2 / row.baseline.sd for row in rows]
        return float(median(halves or [0.0]) * strict / usual)

    def verdict(self, names: Mapping[str, str]) -> str:
        """The result in a few sentences."""
        least = p_text(min(row.corrected_p or 0.0 for row in self.rows.values()))
        changed = _listed(self.changed, names) if self.changed else f"no metric differs (smallest p, Holm: {least})"
        equivalent = [key for key, row in self.rows.items() if row.verdict == "equivalent"]
        tested = sum(margin_of(quantity) is not None for _, quantity in self.rows)
        listed = f": {_listed(equivalent, names)}" if equivalent else ""
        return (
            f"**{self.title}**, {self.seeds} seeds: {'different: ' if self.changed else ''}{changed}. "
            f"Equivalent: {len(equivalent)} of the {tested} rows that have a margin{listed}. "
            f"The median row would detect a difference of {self.least_difference:.1f} seed SDs."
            f"{self._over_all_seeds(names)}"
        )

    def _over_all_seeds(self, names: Mapping[str, str]) -> str:
        if self.all_seeds == (self.seeds, self.seeds):
            return ""
        changed = [key for key, p in self.p_over_all_seeds.items() if p < LEVEL]
        least = p_text(min(self.p_over_all_seeds.values()))
        given = f"{self.all_seeds[0]} in {NAMES[self.given]}"
        reference = f"{self.all_seeds[1]} in {NAMES[self.reference]}"
        return (
            f" By independent t-tests over all seeds, {given} and {reference}, different: "
            f"{_listed(changed, names) if changed else 'none'} (smallest p, Holm: {least})."
        )


def comparison(runs: Runs, given: str, reference: str) -> PrecisionComparison | None:
    """Over the seeds that every method has in both precisions; None with fewer than two."""
    seeds_of = [set.intersection(*(set(each) for each in runs[name].values())) for name in (given, reference)]
    seeds = sorted(set.intersection(*seeds_of))
    if len(seeds) < 2:
        return None
    pairs = _values(runs, (reference, seeds), (given, seeds))
    names = {key: ".".join(key) for key in pairs}
    margins = {names[key]: margin for key in pairs if (margin := margin_of(key[1])) is not None}
    rows = differences({names[key]: methods for key, methods in pairs.items()}, margins=margins)
    whole = _values(runs, (reference, sorted(seeds_of[1])), (given, sorted(seeds_of[0])))
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
    """The metrics of table 1, temperature, weight norm, and the training loss of the last epoch."""
    return list(dict.fromkeys([*(row.quantity for row in sections()["table1_resnet18"].rows), *ALONE]))


def margin_of(quantity: str) -> float | None:
    """The equivalence margin of a quantity; None without one.

    >>> margin_of("clean.top1_accuracy"), margin_of("clean.ece"), margin_of("clean.brier")
    (1.0, 0.01, None)
    >>> round(margin_of("temperature"), 3)  # the paper: 2.80 and 2.66, p = 0.003
    0.07
    """
    if (point := POINT.get(quantity.rpartition(".")[2])) is not None:
        return point
    for section in ("table1_resnet18", "temperature_scaling_resnet18"):
        for row in sections()[section].rows:
            if row.quantity == quantity and claims_difference(row, sections()[section].seeds):
                return abs(row.baseline.value - row.candidate.value) / 2
    return None


def default(compared: Mapping[Key, PrecisionComparison], names: Mapping[str, str]) -> str:
    """Which precision to train in."""
    tf32, *bf16 = (compared.get(pair) for pair in COMPARED)
    if tf32 is None:
        return "**Default:** TF32. There are no runs to compare it with float32."
    if tf32.changed:
        words = f"**Default:** should be float32, because TF32 changes {_listed(tf32.changed, names)}."
    else:
        words = f"**Default:** TF32. No difference from float32 detected in {tf32.seeds} seeds."
    if bf16[0] is None:
        return words
    sound = [each for each in bf16 if each is not None and (each.reference == "float32" or not tf32.changed)]
    if changed := list(dict.fromkeys(key for each in sound for key in each.changed)):
        return f"{words} Do not compare bf16 runs with other precisions: bf16 changes {_listed(changed, names)}."
    return f"{words} No difference detected for bf16 either, which is faster."


def _listed(keys: Sequence[Key], names: Mapping[str, str]) -> str:
    """Each quantity once, with its methods.

    >>> _listed([("a", "clean.ece"), ("a", "clean.loss"), ("b", "clean.ece")], {"a": "SGD", "b": "⊥Grad"})
    'ECE (SGD, ⊥Grad), loss (SGD)'
    """
    methods: dict[str, list[str]] = {}
    for method, quantity in keys:
        methods.setdefault(title_of(quantity), []).append(names[method])
    return ", ".join(f"{title} ({', '.join(of)})" for title, of in methods.items())


def precision_answer(experiment: Experiment, evidence: Evidence) -> str:
    """Each comparison of two precisions in a few words."""
    names = {method: METHODS[method].title if method != "baseline" else "SGD" for method in experiment.methods}
    return " ".join(
        f"{each.title}, {each.seeds} seeds: "
        f"{f'different in {_listed(each.changed, names)}' if each.changed else 'no difference detected'}."
        for each in _compared(_runs(experiment, evidence)).values()
    )


def precision_part(experiment: Experiment, evidence: Evidence, names: Mapping[str, str]) -> Iterator[Block]:
    """Tables, verdicts, seconds and the default; ``names`` are those of the methods."""
    if evidence.scale.has_one_precision:
        yield Words("All runs of this try have the same precision, so there is nothing to compare.")
        return
    runs = _runs(experiment, evidence)
    compared = _compared(runs)
    yield Words(default(compared, names))
    if compared:
        yield Heading(2, "Between precisions")
        yield Words(HOW)
    for each in compared.values():
        yield Words(each.verdict(names))
        yield from folded(f"{each.title}, every metric", _table(each, names))
    yield from _learning(runs, names)
    yield from _effects(runs, (experiment.methods[0], experiment.methods[1]), names)
    if any(runs[name][method] for name in runs for method in runs[name]):
        yield from _seconds(runs, evidence)


def _compared(runs: Runs) -> dict[Key, PrecisionComparison]:
    return {pair: each for pair in COMPARED if (each := comparison(runs, *pair)) is not None}


def _runs(experiment: Experiment, evidence: Evidence) -> Runs:
    def by_seed(setting: str, method: str) -> dict[int, Record]:
        return {run["config"]["seed"]: run for run in evidence.of_setting(setting, method)}

    return {
        SETTINGS[setting].precision: {method: by_seed(setting, method) for method in experiment.methods}
        for setting in experiment.settings()
    }


def _learning(runs: Runs, names: Mapping[str, str]) -> Iterator[Block]:
    """The training loss by fifths of training, for precisions with two seeds or more."""
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
    yield Heading(2, "Training loss")
    yield Words("Post hoc. Means ± SD over all seeds, by fifths of training.")
    yield from folded("Training loss by fifths of training", table(("epochs", "method", *NAMES.values()), rows), rows=6)


def _effects(runs: Runs, methods: tuple[str, str], names: Mapping[str, str]) -> Iterator[Block]:
    """The second method against the first in each precision, over the seeds that both have."""
    pairs = {}
    for name in NAMES:
        done = [run for method in methods for run in runs[name][method].values()]
        if (pair := MethodPair.if_enough(done, *methods)) is not None:
            pairs[NAMES[name]] = pair
    if pairs:
        where = "each precision" if len(pairs) > 1 else next(iter(pairs))
        yield Heading(2, f"All metrics: {names[methods[1]]} in {where}")
        yield from primary_blocks(pairs, (names[methods[0]], names[methods[1]]))


def _table(compared: PrecisionComparison, names: Mapping[str, str]) -> Table:
    header = (
        "method",
        "metric",
        f"{NAMES[compared.reference]} ± SD",
        f"{compared.title} (95%)",
        "in seed SDs",
        "p",
        "p, Holm",
        "margin",
        f"{NAMES[compared.given]} is",
    )
    return table(header, (_row(names[method], quantity, row) for (method, quantity), row in compared.rows.items()))


def _row(method: str, quantity: str, row: Comparison) -> list[str]:
    convention = CONVENTIONS.get(quantity.rpartition(".")[2])
    digits = 4 if convention is None else convention.digits + 1
    margin, sd = row.margin, row.baseline.sd
    return [
        method,
        arrowed(quantity),
        mean_text(row.baseline, digits),
        difference_text(row, digits),
        typeset(f"{row.difference / sd:+.2f}") if sd else "–",
        p_text(row.p),
        p_text(row.corrected_p),
        "–" if margin is None else f"{margin:.{digits}f}",
        row.verdict,
    ]


def _seconds(runs: Runs, evidence: Evidence) -> Iterator[Block]:
    """Seconds of training by each run's clock, and with the time of concurrent runs divided among them."""
    shared = dict(zip(evidence.records, shares(evidence.records.values()), strict=True))
    rows = []
    for name in NAMES:
        done = with_whole_clocks(run for method in runs[name].values() for run in method.values())
        if done:
            clocks = ([each["training"] for each in (run["seconds"], shared[run["hash"]])] for run in done)
            rows.append([NAMES[name], str(len(done)), *(f"{median(each):.1f}" for each in zip(*clocks, strict=True))])
    yield Heading(2, "Seconds of training")
    yield Words("Median seconds per run: by its own clock, and with the time of concurrent runs divided among them.")
    yield table(("precision", "runs", "own clock", "divided"), rows)
