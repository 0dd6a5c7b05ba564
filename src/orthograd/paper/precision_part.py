"""The part of the document about precisions: what was compared, in tables and sentences, and the seconds it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from statistics import mean, median, stdev

from ..calibration import CONVENTIONS
from ..lab.comparison.page.tables import typeset
from ..lab.comparison.pair import ArmPair
from .blocks import Block, Words, table
from .clocks import shares, with_whole_clocks
from .differences import Difference, differences_of
from .effects import effects_table, shown
from .evidence import Evidence
from .experiments import Experiment
from .judgement import LEVEL
from .precisions import COMPARED, NAMES, Comparison, Record, Runs, comparison, default, margin_of
from .quantities import title_of
from .settings import SETTINGS

HOW = (
    "Differences are taken by pairs, for runs of a seed share their images, initial weights and batches; p is "
    "corrected by Holm's rule over both arms and all rows of a table; seed SDs are those of the precision that is "
    "subtracted. That nothing changes is tested as equality (two one-sided tests, corrected too) within a margin that "
    "does not depend on our runs: half the difference that ⊥Grad makes according to the paper, where it claims one, "
    "for two such shifts cannot turn it round; one point of accuracy; and of ECE the same point, 0.01. Other rows have "
    "no margin, and without a shift they stay undecided. Where precisions have more seeds than those in common, means "
    "over all of them are compared too, by independent t-tests, corrected in the same way. These tests, the table of "
    "the training loss, and 20 seeds instead of 5 in bf16 were decided upon after the first results had been seen; the "
    "verdicts go by pairs, as they did before."
)


def precision_part(experiment: Experiment, evidence: Evidence, names: Mapping[str, str]) -> Iterator[Block]:
    """Tables, verdicts, seconds, and what follows for the default; ``names`` are those of the arms."""
    if evidence.scale.has_one_precision:
        yield Words("All runs of this try are in the same precision, so there is nothing to compare.")
        return
    runs = _runs(experiment, evidence)
    compared = {pair: found for pair in COMPARED if (found := comparison(runs, *pair)) is not None}
    if compared:
        yield Words(HOW)
    for found in compared.values():
        yield Words(found.verdict(names))
        yield _table(found, names)
    yield from _learning(runs, names)
    yield from _effects(runs, (experiment.arms[0], experiment.arms[1]), names)
    if any(runs[name][arm] for name in runs for arm in runs[name]):
        yield from _seconds(runs, evidence)
    yield Words(default(compared, names))


def _runs(experiment: Experiment, evidence: Evidence) -> Runs:
    def by_seed(setting: str, arm: str) -> dict[int, Record]:
        return {run["config"]["seed"]: run for run in evidence.of_setting(setting, arm)}

    return {
        SETTINGS[setting].precision: {arm: by_seed(setting, arm) for arm in experiment.arms}
        for setting in experiment.settings()
    }


def _learning(runs: Runs, names: Mapping[str, str]) -> Iterator[Block]:
    """The loss in training, where precisions have two seeds or more: averaged over fifths, steadier than at its end."""
    losses = {
        (name, arm): [run["losses"] for run in of_arm.values()]
        for name in NAMES
        for arm, of_arm in runs[name].items()
        if len(of_arm) > 1
    }
    if len({name for name, _ in losses}) < 2:
        return
    epochs = min(len(curve) for curves in losses.values() for curve in curves)
    ends = [round(epochs * fifth / 5) for fifth in range(6)]
    rows = []
    for arm, title in names.items():
        for begin, end in ((begin, end) for begin, end in pairwise(ends) if end > begin):
            found = ([mean(curve[begin:end]) for curve in losses.get((name, arm), ())] for name in NAMES)
            cells = (f"{mean(each):.4f} ± {stdev(each):.4f}" if each else "–" for each in found)
            rows.append([f"{begin + 1} to {end}" if end > begin + 1 else str(end), title, *cells])
    yield Words(
        "The last epoch is a noisy one among many. Training loss in all of them, means ± SD over all seeds there are:"
    )
    yield table(("epochs", "arm", *NAMES.values()), rows)


def _effects(runs: Runs, arms: tuple[str, str], names: Mapping[str, str]) -> Iterator[Block]:
    """What the second arm changes in each precision, over the seeds that both arms have."""
    found = {}
    for name in NAMES:
        if len(set.intersection(*(set(runs[name][arm]) for arm in arms))) > 1:
            done = [run for arm in arms for run in runs[name][arm].values()]
            pair = ArmPair.of(done, baseline=arms[0], candidate=arms[1])
            found[f"{NAMES[name]}, {len(pair.seeds)} seeds"] = differences_of(pair, shown("clean"))
    if found:
        yield Words(f"What {names[arms[1]]} changes, in each precision, clean test images:")
        yield effects_table(found, ("precision", names[arms[0]], names[arms[1]]))


def _table(compared: Comparison, names: Mapping[str, str]) -> Block:
    header = (
        "arm",
        "metric",
        f"{NAMES[compared.reference]} ± SD over seeds",
        f"{compared.title} (95 %)",
        "in seed SDs",
        "p, paired",
        "p, Holm",
        "margin",
        "verdict",
    )
    return table(header, (_row(names[arm], quantity, row) for (arm, quantity), row in compared.found.items()))


def _row(arm: str, quantity: str, found: Difference) -> list[str]:
    convention = CONVENTIONS.get(quantity.rpartition(".")[2])
    digits = 4 if convention is None else convention.digits + 1
    (low, high), margin, sd = found.interval, margin_of(quantity), found.deviations[1]
    return [
        arm,
        title_of(quantity),
        f"{found.means[1]:.{digits}f} ± {sd:.{digits}f}",
        typeset(f"{found.value:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"),
        typeset(f"{found.value / sd:+.2f}") if sd else "–",
        typeset(f"{found.p:.2g}"),
        typeset(f"{found.corrected_p:.2g}"),
        "–" if margin is None else f"{margin:.{digits}f}",
        _word(found),
    ]


def _word(found: Difference) -> str:
    if found.corrected_p < LEVEL:
        return "shifts, less than the margin" if found.verdict == "equivalent" else "shifts"
    return "equal" if found.verdict == "equivalent" else "undecided"


def _seconds(runs: Runs, evidence: Evidence) -> Iterator[Block]:
    """By each run's own clock, and what of it is left when those side by side share their time."""
    shared = dict(zip(evidence.records, shares(evidence.records.values()), strict=True))
    rows = []
    for name in NAMES:
        done = with_whole_clocks(run for arm in runs[name].values() for run in arm.values())
        if done:
            clocks = ([each["training"] for each in (run["seconds"], shared[run["hash"]])] for run in done)
            rows.append([NAMES[name], str(len(done)), *(f"{median(each):.1f}" for each in zip(*clocks, strict=True))])
    yield Words(
        "What training takes, in seconds a run (medians): by its own clock, and with every instant divided among the "
        "runs that were at work side by side. Runs whose clock tells only of a part, after a checkpoint, are left out."
    )
    yield table(("precision", "runs", "own clock", "divided"), rows)
