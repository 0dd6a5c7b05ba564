"""Post hoc: what was looked for after the results had been seen. Norms, training losses, and how seeds differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from statistics import fmean, median

from scipy import stats

from ...lab.comparison.formats import TITLES
from ...lab.comparison.page.tables import typeset
from ...lab.comparison.pair import MethodPair
from ...lab.comparison.records import Record
from ...lab.training.layers import layer_types_of
from ...lab.training.methods import METHODS
from ...statistics import holm
from ..evidence import Evidence, values_of
from ..plan import EXPERIMENTS, FOLLOWED, PAIR, Experiment
from ..verdicts.numbers import LEVEL, differences
from .blocks import Block, Heading, Words, table
from .experiments import name_of, names_of
from .figures import scatter_picture, training_picture
from .tables import difference_text, mean_text, p_texts

KINDS = {
    "head": "head",
    "norm_weight": "batch-norm scales",
    "norm_bias": "batch-norm shifts",
    "convolution": "convolutions",
}
STRETCHES = 10
"""Of a training: by a constant rate the loss jumps from epoch to epoch, so means are compared."""
ENOUGH = 10
"""Runs of a method; fewer tell little of a correlation."""
ACROSS = "training_loss"
EVALUATED = {"top1_accuracy": "accuracy", "ece": "ECE", "max_softmax": "confidence"}
"""Metrics that may go with it, and their names in a sentence."""
SHOWN = EXPERIMENTS["table1"]
"""The experiment that is drawn."""


def norms_part(evidence: Evidence) -> Iterator[Block]:
    """A table over all settings of our networks in which both methods have two seeds or more."""
    pairs = _pairs(evidence, _have_parameters)
    if not pairs:
        return
    yield Heading(3, "What ends up shorter")
    yield Words(
        "The length of all parameters of a kind together, ‖w‖, before training and at its end, means ± SD over seeds. "
        "A head that is half as long gives logits half as large, were all else the same; the length of a convolution "
        "that a batch norm follows, as all do in ResNet-18, changes nothing that the network says. Differences are "
        "paired; p corrected by Holm's rule for the rows of each pair of records. Looked for after the results had "
        "been seen."
    )
    methods = "without ⊥Grad", "with ⊥Grad"
    header = ("records", "‖w‖ of", "before", *methods, "ratio", "difference (95 %)", "p, Holm", "with it is")
    yield table(header, (row for (setting, _), pair in pairs.items() for row in _rows(setting, pair)))


def _have_parameters(runs: Sequence[Record]) -> bool:
    """Whether every run tells of its parameters, and they are those of a network of ours."""
    return all(run.get("diagnosis") and _kinds(run) for run in runs)


def _rows(setting: str, pair: MethodPair) -> Iterator[list[str]]:
    methods, usual = (pair.baseline, pair.candidate), pair.methods[0]
    case = f"`{setting}`" if usual == PAIR[0] else f"`{setting}`, {METHODS[usual].title}"
    ends = {kind: tuple([norm_of(run, kind, "end") for run in method] for method in methods) for kind in KINDS}
    rows = differences({kind: (first, second) for kind, (first, second) in ends.items() if any(first)}, margins={})
    for kind, row in rows.items():
        yield [
            f"{case}, {len(pair.seeds)} seeds",
            KINDS[kind],
            f"{fmean(norm_of(run, kind, 'start') for run in pair.baseline):.3f}",
            mean_text(row.baseline, 3),
            mean_text(row.candidate, 3),
            f"{row.candidate.mean / row.baseline.mean:.3f}",
            difference_text(row, 3),
            p_texts(row)[1],
            {"lower": "shorter", "higher": "longer"}.get(row.verdict, row.verdict),
        ]


def norm_of(run: Record, kind: str, when: str) -> float:
    """The norm of all parameters of a kind together, at the "start" of training or at its "end"."""
    parameters, kinds = run["diagnosis"]["parameters"], _kinds(run)
    return math.sqrt(sum(parameters[name][when]["norm"] ** 2 for name in parameters if kinds.get(name) == kind))


def _kinds(run: Record) -> Mapping[str, str]:
    return layer_types_of(run["config"]["model"])


def losses_part(evidence: Evidence) -> Iterator[Block]:
    """A picture and a table of all settings in which both methods have two seeds or more, and epochs enough."""
    pairs = _pairs(evidence, _have_enough_epochs)
    if not pairs:
        return
    yield Heading(3, "Does the training loss rise again?")
    yield Words(
        "The training loss as the mean over each tenth of the epochs: the lowest tenth, which one that is, the last "
        "tenth, and how many times the lowest it is; medians (ranges) over runs. Where it rises far with ⊥Grad and not "
        "without, the network unlearns what it knew. If that is weight decay, which goes on shortening what no "
        "gradient may lengthen, it should not rise where only convolutions decay. Looked for after the results had "
        "been seen."
    )
    experiments = {case: _first_with(*case, evidence) for case in pairs}
    shown = {each.title: pairs[case] for case, each in experiments.items() if case[0] == each.setting}
    yield training_picture("training-losses", shown, ("without ⊥Grad", "with ⊥Grad"))
    yield table(
        ("records", "runs", "lowest tenth", "number", "last tenth", "times the lowest"),
        (
            [f"`{setting}`, {name_of(experiments[setting, methods], method)}", str(len(runs)), *_cells(runs)]
            for (setting, methods), pair in pairs.items()
            for method, runs in zip(methods, (pair.baseline, pair.candidate), strict=True)
        ),
    )


def _have_enough_epochs(runs: Sequence[Record]) -> bool:
    """Whether all runs have the same number of epochs, and ten of them or more."""
    lengths = {len(run["losses"]) for run in runs}
    return len(lengths) == 1 and min(lengths) >= STRETCHES


def _first_with(setting: str, methods: tuple[str, str], evidence: Evidence) -> Experiment:
    having = (each for each in EXPERIMENTS.values() if set(methods) <= set(each.methods))
    return next(each for each in having if setting in each.settings(evidence.scale))


def stretches_of(losses: Sequence[float]) -> list[float]:
    """The mean of each tenth.

    >>> stretches_of([4.0, 2.0] * 10)[:2]
    [3.0, 3.0]
    """
    ends = [len(losses) * i // STRETCHES for i in range(STRETCHES + 1)]
    return [fmean(losses[first:end]) for first, end in pairwise(ends)]


def _cells(runs: Sequence[Record]) -> Iterator[str]:
    tenths = [stretches_of(run["losses"]) for run in runs]
    lowest = [min(means) for means in tenths]
    numbers = [means.index(low) + 1 for means, low in zip(tenths, lowest, strict=True)]
    last = [means[-1] for means in tenths]
    yield _range(lowest, ".4f")
    yield _range(numbers, "g")
    yield _range(last, ".4f")
    yield _range([end / low if low else math.inf for end, low in zip(last, lowest, strict=True)], ".1f")


def _range(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def last_epoch_part(evidence: Evidence) -> Iterator[Block]:
    """Correlations over the runs of every method that has enough of them, and one experiment as a picture."""
    methods = dict(_methods(evidence))
    tests = {
        (name, metric): stats.spearmanr(values_of(runs, ACROSS), values_of(runs, f"clean.{metric}"))
        for name, runs in methods.items()
        for metric in EVALUATED
    }
    if not tests:
        return
    corrected = dict(zip(tests, holm([float(test.pvalue) for test in tests.values()]), strict=True))
    cells = {key: typeset(f"{test.statistic:+.2f} ({corrected[key]:.2g})") for key, test in tests.items()}
    yield Heading(3, "Do seeds differ by their last epoch?")
    yield Words(
        "The paper's recipe never lowers the learning rate, so the training loss jumps from epoch to epoch until the "
        "end, and a run is evaluated wherever its last epoch left it. Spearman's rank correlation ϱ, over the runs of "
        "a method, of that epoch's training loss with what is measured on clean test images; methods with "
        f"{ENOUGH} runs or "
        "more; p corrected by Holm's rule for the whole table. Nothing is adjusted by it anywhere on this page, for "
        "⊥Grad may change the training loss too. Looked for after the results had been seen."
    )
    yield table(
        (
            "records",
            "runs",
            "training loss, last epoch: median (range)",
            *(f"{TITLES[metric]}: ϱ (p)" for metric in EVALUATED),
        ),
        (
            [
                f"`{name}`",
                str(len(runs)),
                _range(values_of(runs, ACROSS), ".3f"),
                *(cells[name, metric] for metric in EVALUATED),
            ]
            for name, runs in methods.items()
        ),
    )
    shown = {metric: sum(corrected[name, metric] < LEVEL for name in methods) for metric in EVALUATED}
    counts = ", ".join(f"with {EVALUATED[metric]} in {count}" for metric, count in shown.items())
    yield Words(f"Of the {len(methods)} methods, the last training loss goes together (p < {LEVEL}) {counts}.")
    pair = evidence.pair(SHOWN)
    if pair is not None and {f"{SHOWN.setting}-{method}" for method in pair.methods} <= set(methods):
        yield scatter_picture(f"{SHOWN.name}-last-epoch", pair, names_of(SHOWN), ACROSS, tuple(EVALUATED))


def _methods(evidence: Evidence) -> Iterator[tuple[str, tuple[Record, ...]]]:
    """Those with enough runs, by the names of their records; none where a number is the same in all runs."""
    for setting, method in product(evidence.settings(), METHODS):
        runs = tuple(evidence.of_setting(setting, method))
        known = [values_of(runs, name) for name in (ACROSS, *(f"clean.{metric}" for metric in EVALUATED))]
        if len(runs) >= ENOUGH and all(len(set(values)) > 1 for values in known):
            yield f"{setting}-{method}", runs


def _pairs(
    evidence: Evidence, are_fit: Callable[[Sequence[Record]], bool]
) -> dict[tuple[str, tuple[str, str]], MethodPair]:
    """By setting and methods, with and without ⊥Grad: the pairs of two seeds or more whose runs are fit for it."""
    pairs = {}
    for setting, methods in product(evidence.settings(), FOLLOWED):
        runs = [run for method in methods for run in evidence.of_setting(setting, method)]
        pair = MethodPair.if_enough(runs, *methods) if are_fit(runs) else None
        if pair is not None:
            pairs[setting, methods] = pair
    return pairs
