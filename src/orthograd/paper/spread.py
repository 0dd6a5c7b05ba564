"""Why runs of the same arm differ: by where their last epoch left them, as far as its training loss tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from statistics import median

from scipy import stats

from ..lab.comparison.formats import TITLES
from ..lab.comparison.page.tables import typeset
from ..lab.training.arms import ARMS
from ..statistics import holm
from .blocks import Block, Heading, Words, table
from .evidence import Evidence, Record
from .experiments import EXPERIMENTS
from .figures import scatter_picture
from .judgement import LEVEL
from .parts import names_of
from .quantities import values_of

ENOUGH = 10
"""Runs of an arm; fewer tell little of a correlation."""
ACROSS = "training_loss"
JUDGED = ("top1_accuracy", "ece", "max_softmax")
SHOWN = EXPERIMENTS["table1"]
"""The experiment that is drawn."""


def spread_part(evidence: Evidence) -> Iterator[Block]:
    """Correlations over the runs of every arm that has enough of them, and one experiment as a picture."""
    arms = dict(_arms(evidence))
    tests = {
        (name, metric): stats.spearmanr(values_of(runs, ACROSS), values_of(runs, f"clean.{metric}"))
        for name, runs in arms.items()
        for metric in JUDGED
    }
    if not tests:
        return
    corrected = dict(zip(tests, holm([float(test.pvalue) for test in tests.values()]), strict=True))
    cells = {key: typeset(f"{test.statistic:+.2f} ({corrected[key]:.2g})") for key, test in tests.items()}
    yield Heading(3, "Do seeds differ by their last epoch?")
    yield Words(
        "The paper's recipe never lowers the learning rate, so the training loss jumps from epoch to epoch until the "
        "end, and a run is judged wherever its last epoch left it. Spearman's rank correlation ϱ, over the runs of an "
        f"arm, of that epoch's training loss with what is measured on clean test images; arms with {ENOUGH} runs or "
        "more; p corrected by Holm's rule for the whole table. Nothing is adjusted by it anywhere on this page, for "
        "⊥Grad may change the training loss too. Looked for after the results had been seen."
    )
    yield table(
        (
            "records",
            "runs",
            "training loss, last epoch: median (range)",
            *(f"{TITLES[metric]}: ϱ (p)" for metric in JUDGED),
        ),
        (
            [f"`{name}`", str(len(runs)), _range(runs), *(cells[name, metric] for metric in JUDGED)]
            for name, runs in arms.items()
        ),
    )
    shown = {metric: sum(corrected[name, metric] < LEVEL for name in arms) for metric in JUDGED}
    counts = ", ".join(f"with {TITLES[metric].removesuffix(', %')} in {count}" for metric, count in shown.items())
    yield Words(f"Of the {len(arms)} arms, the last training loss goes together (p < {LEVEL}) {counts}.")
    pair = evidence.pair(SHOWN)
    if pair is not None and {f"{SHOWN.setting}-{arm}" for arm in pair.arms} <= set(arms):
        yield scatter_picture(f"{SHOWN.name}-last-epoch", pair, names_of(SHOWN), ACROSS, JUDGED)


def _arms(evidence: Evidence) -> Iterator[tuple[str, tuple[Record, ...]]]:
    """Those with enough runs, by the names of their records; none where a number is the same in all runs."""
    for setting, arm in product(evidence.settings(), ARMS):
        runs = tuple(evidence.of_setting(setting, arm))
        known = [values_of(runs, name) for name in (ACROSS, *(f"clean.{metric}" for metric in JUDGED))]
        if len(runs) >= ENOUGH and all(len(set(values)) > 1 for values in known):
            yield f"{setting}-{arm}", runs


def _range(runs: Sequence[Record]) -> str:
    values = values_of(tuple(runs), ACROSS)
    return f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f})"
