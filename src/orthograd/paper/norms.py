"""How long each kind of parameters is at the end of training: what ⊥Grad leaves shorter, and what it does not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ..report.comparison import ArmPair
from ..report.page.tables import typeset
from .blocks import Block, Heading, Words, table
from .differences import Difference, differences
from .evidence import Evidence, Record
from .experiments import EXPERIMENTS, PAIR, Experiment
from .parts import is_begun, names_of
from .precisions import NAMES as PRECISIONS

KINDS = {
    "head": "head",
    "norm_scale": "batch-norm scales",
    "norm_shift": "batch-norm shifts",
    "convolution": "convolutions",
}


def norms_part(evidence: Evidence) -> Iterator[Block]:
    """A table over all settings in which both arms have two seeds or more."""
    known: dict[str, tuple[Experiment, ArmPair]] = {}
    for experiment in (each for each in EXPERIMENTS.values() if each.arms[:2] == PAIR and is_begun(each, evidence)):
        pair = evidence.pair(experiment)
        if pair is not None and all(run.get("diagnosis") for run in pair.records):
            known.setdefault(experiment.setting, (experiment, pair))  # the first of a setting has the most seeds
    if not known:
        return
    yield Heading(3, "What ends up shorter")
    yield Words(
        "The length of all parameters of a kind together, ‖w‖, before training and at its end, means ± SD over seeds. "
        "What the network says does not depend on that of a convolution before a batch norm, but on that of the head "
        "it does: where that is half as long, so are the logits. Differences by pairs; p corrected by Holm's rule for "
        "the rows of a network. Looked for after the results had been seen."
    )
    names = names_of(EXPERIMENTS["table1"])
    header = ("runs", "‖w‖ of", "before", *names, "difference (95 %)", "p, paired", "p, Holm", f"{names[1]}'s is")
    yield table(header, (row for experiment, pair in known.values() for row in _rows(experiment, pair, evidence)))


def _rows(experiment: Experiment, pair: ArmPair, evidence: Evidence) -> Iterator[list[str]]:
    ends, starts = (
        {
            kind: tuple([norm_of(run, kind, when) for run in arm] for arm in (pair.baseline, pair.candidate))
            for kind in KINDS
        }
        for when in ("end", "start")
    )
    found: Mapping[str, Difference] = differences(
        {kind: (first, second) for kind, (first, second) in ends.items()}, margins={}
    )
    config = evidence.scale.applied(experiment.setting)
    case = f"{experiment.title}, {PRECISIONS[config.precision]}, {len(pair.seeds)} seeds"
    for kind, row in found.items():
        low, high = row.interval
        before = sum(starts[kind][0]) / len(starts[kind][0])
        yield [
            case,
            KINDS[kind],
            f"{before:.2f}",
            *(f"{mean:.2f} ± {sd:.2f}" for mean, sd in zip(row.means, row.deviations, strict=True)),
            typeset(f"{row.value:+.2f} ({low:+.2f} to {high:+.2f})"),
            typeset(f"{row.p:.2g}"),
            typeset(f"{row.corrected_p:.2g}"),
            {"lower": "shorter", "higher": "longer"}.get(row.verdict, row.verdict),
        ]


def norm_of(run: Record, kind: str, when: str) -> float:
    """The length of the parameters of a kind together, at the "start" of training or at its "end"."""
    from ..training.layers import kinds_of  # with torch

    of_kind = kinds_of(run["config"]["model"])
    found = run["diagnosis"]["parameters"]
    return math.sqrt(sum(found[name][when]["norm"] ** 2 for name in found if of_kind.get(name) == kind))
