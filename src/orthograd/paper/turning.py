"""Whether the training loss rises again in a long training: where weights decay and no gradient may lengthen them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean, median

from ..lab.comparison.pair import ArmPair
from .blocks import Block, Heading, Words, table
from .evidence import Evidence, Record
from .experiments import EXPERIMENTS, FOLLOWED, Experiment
from .figures import training_picture
from .parts import name_of

STRETCHES = 10
"""Of a training: by a constant rate the loss jumps from epoch to epoch, so means are compared."""


def turning_part(evidence: Evidence) -> Iterator[Block]:
    """A picture and a table of all settings in which both arms have two seeds or more, and epochs enough."""
    followed = [(setting, arms) for setting in evidence.settings() for arms in FOLLOWED]
    pairs = {case: pair for case in followed if (pair := _pair(*case, evidence)) is not None}
    if not pairs:
        return
    yield Heading(3, "Does the training loss rise again?")
    yield Words(
        "The training loss as the mean over each tenth of the epochs: the lowest tenth, which one that is, the last "
        "tenth, and how many times the lowest it is; medians (ranges) over runs. Where it rises far with ⊥Grad and not "
        "without, the network unlearns what it knew. If that is weight decay, which goes on shortening what no "
        "gradient may lengthen, it should not rise where decay is spared. Looked for after the results had been seen."
    )
    experiments = {case: _first_with(*case, evidence) for case in pairs}
    shown = {each.title: pairs[case] for case, each in experiments.items() if case[0] == each.setting}
    yield training_picture("training-losses", shown, ("without ⊥Grad", "with ⊥Grad"))
    yield table(
        ("records", "runs", "lowest tenth", "number", "last tenth", "times the lowest"),
        (
            [f"`{setting}`, {name_of(experiments[setting, arms], arm)}", str(len(runs)), *_cells(runs)]
            for (setting, arms), pair in pairs.items()
            for arm, runs in zip(arms, (pair.baseline, pair.candidate), strict=True)
        ),
    )


def _pair(setting: str, arms: tuple[str, str], evidence: Evidence) -> ArmPair | None:
    """Both arms, where all runs have the same number of epochs, and ten of them or more."""
    runs = [run for arm in arms for run in evidence.of_setting(setting, arm)]
    lengths = {len(run["losses"]) for run in runs}
    return ArmPair.if_enough(runs, *arms) if len(lengths) == 1 and min(lengths) >= STRETCHES else None


def _first_with(setting: str, arms: tuple[str, str], evidence: Evidence) -> Experiment:
    having = (each for each in EXPERIMENTS.values() if set(arms) <= set(each.arms))
    return next(each for each in having if setting in each.settings(evidence.scale))


def stretches_of(losses: Sequence[float]) -> list[float]:
    """The mean of each tenth.

    >>> stretches_of([4.0, 2.0] * 10)[:2]
    [3.0, 3.0]
    """
    ends = [len(losses) * i // STRETCHES for i in range(STRETCHES + 1)]
    return [fmean(losses[first:end]) for first, end in pairwise(ends)]


def _cells(runs: Sequence[Record]) -> Iterator[str]:
    found = [stretches_of(run["losses"]) for run in runs]
    lowest = [min(means) for means in found]
    numbers = [means.index(low) + 1 for means, low in zip(found, lowest, strict=True)]
    last = [means[-1] for means in found]
    yield _range(lowest, ".4f")
    yield _range(numbers, "g")
    yield _range(last, ".4f")
    yield _range([end / low if low else math.inf for end, low in zip(last, lowest, strict=True)], ".1f")


def _range(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"
