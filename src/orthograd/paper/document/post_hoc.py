"""Post hoc analyses: weight norms, training losses, and the last epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from statistics import fmean, median

from scipy import stats

from ...lab.comparison.formats import TITLES
from ...lab.comparison.pair import MethodPair
from ...lab.comparison.records import Record
from ...lab.training.layers import layer_types_of
from ...lab.training.methods import METHODS
from ...statistics import holm
from ..evidence import Evidence, values_of
from ..formats import difference_text, p_text, signed
from ..plan import EXPERIMENTS, FOLLOWED, PAIR, PAPER, SETTINGS, Experiment
from ..verdicts.numbers import differences
from ..verdicts.rule import LEVEL
from .blocks import Block, Heading, Words, folded, table
from .experiments import name_of, names_of
from .figures import scatter_picture, training_picture
from .tables import mean_text

LAYERS = {
    "head": "head",
    "norm_weight": "BatchNorm weights",
    "norm_bias": "BatchNorm biases",
    "convolution": "convolutions",
}
PERIODS = 10
"""Parts of training: with a constant learning rate the loss jumps from epoch to epoch, so means are compared."""
ENOUGH = 10
"""The fewest runs of a method for a correlation."""
ACROSS = "training_loss"
EVALUATED = {"top1_accuracy": "accuracy", "ece": "ECE", "max_softmax": "confidence"}
"""Metrics that are correlated with it, and their names in a sentence."""
DRAWN = EXPERIMENTS["table1"]
"""The experiment that is drawn."""


def post_hoc_part(evidence: Evidence) -> Iterator[Block]:
    """The page of all post hoc analyses; nothing without records for any of them."""
    parts = [*norms_part(evidence), *losses_part(evidence), *last_epoch_part(evidence)]
    if parts:
        yield Heading(1, "Post hoc analyses")
        yield Words("These analyses are post hoc: they were chosen after the results were known. None has a verdict.")
        yield from parts


def norms_part(evidence: Evidence) -> Iterator[Block]:
    """Weight norms in all settings of our networks in which both methods have two seeds or more."""
    pairs = _pairs(evidence, _have_parameters)
    if not pairs:
        return
    yield Heading(2, "Weight norms")
    yield Words(
        "Norm ‖w‖ of all parameters of a layer type together, before and after training, mean ± SD over seeds. Logits "
        "are proportional to the norm of the head. The norm of a convolution before a BatchNorm does not change the "
        "network's output. Differences are with ⊥Grad − without, paired; p is corrected by Holm's rule for the four "
        "rows of a setting."
    )
    methods = "without ⊥Grad", "with ⊥Grad"
    header = ("records", "layer type", "before", *methods, "ratio", "difference (95%)", "p, Holm", "with ⊥Grad it is")
    rows = (row for (setting, _), pair in pairs.items() for row in _rows(setting, pair))
    yield from folded("Weight norms before and after training", table(header, rows))


def _have_parameters(runs: Sequence[Record]) -> bool:
    """True if every run has the norms of its parameters, in one of our networks."""
    return all(run.get("diagnosis") and _layer_types(run) for run in runs)


def _rows(setting: str, pair: MethodPair) -> Iterator[list[str]]:
    methods, usual = (pair.baseline, pair.candidate), pair.methods[0]
    case = f"`{setting}`" if usual == PAIR[0] else f"`{setting}`, {METHODS[usual].title}"
    ends = {layer: tuple([norm_of(run, layer, "end") for run in method] for method in methods) for layer in LAYERS}
    rows = differences({layer: (first, second) for layer, (first, second) in ends.items() if any(first)}, margins={})
    for layer, row in rows.items():
        yield [
            f"{case}, {len(pair.seeds)} seeds",
            LAYERS[layer],
            f"{fmean(norm_of(run, layer, 'start') for run in pair.baseline):.3f}",
            mean_text(row.baseline, 3),
            mean_text(row.candidate, 3),
            f"{row.candidate.mean / row.baseline.mean:.3f}",
            difference_text(row, 3),
            p_text(row.corrected_p),
            row.verdict,
        ]


def norm_of(run: Record, layer_type: str, when: str) -> float:
    """The norm of all parameters of a layer type together, at the "start" or the "end" of training."""
    parameters, types = run["diagnosis"]["parameters"], _layer_types(run)
    return math.sqrt(sum(parameters[name][when]["norm"] ** 2 for name in parameters if types.get(name) == layer_type))


def _layer_types(run: Record) -> Mapping[str, str]:
    return layer_types_of(run["config"]["model"])


def losses_part(evidence: Evidence) -> Iterator[Block]:
    """Training losses in all settings in which both methods have two seeds or more, and ten epochs or more."""
    pairs = _pairs(evidence, _have_enough_epochs)
    if not pairs:
        return
    yield Heading(2, "Training loss")
    yield Words(
        "Mean training loss over each tenth of the epochs: the lowest tenth, its number, the last tenth, and the ratio "
        "of the two; medians (ranges) over runs. With ⊥Grad and weight decay, the loss can rise again in long "
        "training. A ratio near 1 with decay on convolutions only points to weight decay as the cause. The figure "
        "shows the settings with the paper's batches."
    )
    experiments = {case: _first_with(*case, evidence) for case in pairs}
    shown = {
        each.title: pairs[case]
        for case, each in experiments.items()
        if case[0] == each.setting and _has_batches_of_the_paper(each.setting)
    }
    yield training_picture("training-losses", shown, ("without ⊥Grad", "with ⊥Grad"))
    rows = (
        [f"`{setting}`, {name_of(experiments[setting, methods], method)}", str(len(runs)), *_cells(runs)]
        for (setting, methods), pair in pairs.items()
        for method, runs in zip(methods, (pair.baseline, pair.candidate), strict=True)
    )
    header = ("records", "runs", "lowest tenth", "its number", "last tenth", "last / lowest")
    yield from folded("Training loss, lowest and last tenth", table(header, rows))


def _has_batches_of_the_paper(setting: str) -> bool:
    config = SETTINGS[setting]
    is_usual = (config.batch_size, config.last_batch) == (PAPER.batch_size, PAPER.last_batch)
    return is_usual and config.labels_per_class in (PAPER.labels_per_class, 0)


def _have_enough_epochs(runs: Sequence[Record]) -> bool:
    """True if all runs have the same number of epochs, ten or more."""
    lengths = {len(run["losses"]) for run in runs}
    return len(lengths) == 1 and min(lengths) >= PERIODS


def _first_with(setting: str, methods: tuple[str, str], evidence: Evidence) -> Experiment:
    having = (each for each in EXPERIMENTS.values() if set(methods) <= set(each.methods))
    return next(each for each in having if setting in each.settings(evidence.scale))


def stretches_of(losses: Sequence[float]) -> list[float]:
    """The mean of each tenth.

    >>> stretches_of([4.0, 2.0] * 10)[:2]
    [3.0, 3.0]
    """
    ends = [len(losses) * i // PERIODS for i in range(PERIODS + 1)]
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
    """Correlations over the runs of every method that has enough of them, and a figure of one experiment."""
    methods = dict(_methods(evidence))
    tests = {
        (name, metric): stats.spearmanr(values_of(runs, ACROSS), values_of(runs, f"clean.{metric}"))
        for name, runs in methods.items()
        for metric in EVALUATED
    }
    if not tests:
        return
    corrected = dict(zip(tests, holm([float(test.pvalue) for test in tests.values()]), strict=True))
    cells = {key: f"{signed(test.statistic, 2)} ({p_text(corrected[key])})" for key, test in tests.items()}
    shown = {metric: sum(corrected[name, metric] < LEVEL for name in methods) for metric in EVALUATED}
    counts = ", ".join(f"with {EVALUATED[metric]} in {count}" for metric, count in shown.items())
    yield Heading(2, "The last epoch")
    yield Words(
        f"The training loss of the last epoch correlates (p < {LEVEL}) {counts} of {len(methods)} methods. The paper's "
        "recipe never lowers the learning rate, so the loss jumps from epoch to epoch until the end. The table has "
        f"Spearman's ϱ over the runs of a method, on clean images, for methods with {ENOUGH} runs or more. p is "
        "corrected by Holm's rule for the whole table. No other page is adjusted for it."
    )
    header = (
        "records",
        "runs",
        "training loss, last epoch: median (range)",
        *(f"{TITLES[metric]}: ϱ (p)" for metric in EVALUATED),
    )
    rows = (
        [
            f"`{name}`",
            str(len(runs)),
            _range(values_of(runs, ACROSS), ".3f"),
            *(cells[name, metric] for metric in EVALUATED),
        ]
        for name, runs in methods.items()
    )
    yield from folded("Correlations with the training loss of the last epoch", table(header, rows))
    pair = evidence.pair(DRAWN)
    if pair is not None and {f"{DRAWN.setting}-{method}" for method in pair.methods} <= set(methods):
        yield scatter_picture(f"{DRAWN.name}-last-epoch", pair, names_of(DRAWN), ACROSS, tuple(EVALUATED))


def _methods(evidence: Evidence) -> Iterator[tuple[str, tuple[Record, ...]]]:
    """The methods with enough runs and varying numbers, by the names of their records."""
    for setting, method in product(evidence.settings(), METHODS):
        runs = tuple(evidence.of_setting(setting, method))
        known = [values_of(runs, name) for name in (ACROSS, *(f"clean.{metric}" for metric in EVALUATED))]
        if len(runs) >= ENOUGH and all(len(set(values)) > 1 for values in known):
            yield f"{setting}-{method}", runs


def _pairs(
    evidence: Evidence, are_fit: Callable[[Sequence[Record]], bool]
) -> dict[tuple[str, tuple[str, str]], MethodPair]:
    """Pairs of two seeds or more, without and with ⊥Grad, whose runs pass ``are_fit``, by setting and methods."""
    pairs = {}
    for setting, methods in product(evidence.settings(), FOLLOWED):
        runs = [run for method in methods for run in evidence.of_setting(setting, method)]
        pair = MethodPair.if_enough(runs, *methods) if are_fit(runs) else None
        if pair is not None:
            pairs[setting, methods] = pair
    return pairs
