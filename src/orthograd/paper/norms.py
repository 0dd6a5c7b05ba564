"""How long each kind of parameters is at the end of training: what ⊥Grad leaves shorter, and what it does not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import fmean

from ..lab.comparison.page.tables import typeset
from ..lab.comparison.pair import ArmPair
from ..lab.training.arms import ARMS
from ..lab.training.layers import kinds_of
from .blocks import Block, Heading, Words, table
from .differences import differences
from .evidence import Evidence, Record
from .experiments import FOLLOWED, PAIR

KINDS = {
    "head": "head",
    "norm_scale": "batch-norm scales",
    "norm_shift": "batch-norm shifts",
    "convolution": "convolutions",
}


def norms_part(evidence: Evidence) -> Iterator[Block]:
    """A table over all settings of our networks in which both arms have two seeds or more."""
    followed = [(setting, arms) for setting in evidence.settings() for arms in FOLLOWED]
    pairs = {case: pair for case in followed if (pair := _pair(*case, evidence)) is not None}
    if not pairs:
        return
    yield Heading(3, "What ends up shorter")
    yield Words(
        "The length of all parameters of a kind together, ‖w‖, before training and at its end, means ± SD over seeds. "
        "A head that is half as long gives logits half as large, were all else the same; the length of a convolution "
        "that a batch norm follows, as all do in ResNet-18, changes nothing that the network says. Differences by "
        "pairs; p corrected by Holm's rule for the rows of each pair of records. Looked for after the results had been "
        "seen."
    )
    arms = "without ⊥Grad", "with ⊥Grad"
    header = ("records", "‖w‖ of", "before", *arms, "ratio", "difference (95 %)", "p, Holm", "with it is")
    yield table(header, (row for (setting, _), pair in pairs.items() for row in _rows(setting, pair)))


def _pair(setting: str, arms: tuple[str, str], evidence: Evidence) -> ArmPair | None:
    """Both arms, if every run tells of its parameters, and they are those of a network of ours."""
    runs = [run for arm in arms for run in evidence.of_setting(setting, arm)]
    is_told = all(run.get("diagnosis") and _kinds(run) for run in runs)
    return ArmPair.if_enough(runs, *arms) if is_told else None


def _rows(setting: str, pair: ArmPair) -> Iterator[list[str]]:
    arms, usual = (pair.baseline, pair.candidate), pair.arms[0]
    case = f"`{setting}`" if usual == PAIR[0] else f"`{setting}`, {ARMS[usual].title}"
    ends = {kind: tuple([norm_of(run, kind, "end") for run in arm] for arm in arms) for kind in KINDS}
    found = differences({kind: (first, second) for kind, (first, second) in ends.items() if any(first)}, margins={})
    for kind, row in found.items():
        low, high = row.interval
        yield [
            f"{case}, {len(pair.seeds)} seeds",
            KINDS[kind],
            f"{fmean(norm_of(run, kind, 'start') for run in pair.baseline):.3f}",
            *(f"{mean:.3f} ± {sd:.3f}" for mean, sd in zip(row.means, row.deviations, strict=True)),
            f"{row.means[1] / row.means[0]:.3f}",
            typeset(f"{row.value:+.3f} ({low:+.3f} to {high:+.3f})"),
            typeset(f"{row.corrected_p:.2g}"),
            {"lower": "shorter", "higher": "longer"}.get(row.verdict, row.verdict),
        ]


def norm_of(run: Record, kind: str, when: str) -> float:
    """The length of the parameters of a kind together, at the "start" of training or at its "end"."""
    found, kinds = run["diagnosis"]["parameters"], _kinds(run)
    return math.sqrt(sum(found[name][when]["norm"] ** 2 for name in found if kinds.get(name) == kind))


def _kinds(run: Record) -> Mapping[str, str]:
    return kinds_of(run["config"]["model"])
