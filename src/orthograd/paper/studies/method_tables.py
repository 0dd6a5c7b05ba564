"""The tables of docs/method.md: what to expect, when it hurts, norms of heads, large learning rates, a diagnosis.

Each function takes the folder of records and returns a table in Markdown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ...diagnosis.result import Diagnosis, Row, aligned
from ...lab.comparison.pair import MethodPair
from ...lab.jobs.bundles import bundle_path, read_bundle
from ...statistics import compare_table, difference_interval
from ...statistics.table import markdown_table
from ..document.post_hoc import norm_of, stretches_of
from ..evidence import value_of

Run = Mapping[str, Any]
Value = Callable[[Run], Any]
"""A function from a run to a number, or None where the run has none."""

SETTINGS = {
    "resnet18": "ResNet-18",
    "resnet18_1000_epochs": "1000 epochs",
    "resnet18_all_labels": "all labels",
    "resnet18_adamw": "AdamW",
    "resnet50": "ResNet-50",
    "wide_resnet28_10": "WideResNet-28-10",
}
"""Settings of the reproduction for the table of what to expect; those without runs are skipped."""
EXPECTED: dict[str, tuple[Value, str]] = {
    "accuracy, % ↑": (lambda run: run["metrics"]["clean"]["top1_accuracy"], ".2f"),
    "max |logit|": (lambda run: run["metrics"]["clean"]["max_logit"], ".2f"),
    "confidence": (lambda run: run["metrics"]["clean"]["max_softmax"], ".3f"),
    "entropy": (lambda run: run["metrics"]["clean"]["entropy"], ".3f"),
    "loss ↓": (lambda run: run["metrics"]["clean"]["loss"], ".3f"),
    "ECE ↓": (lambda run: run["metrics"]["clean"]["ece"], ".4f"),
    "ECE after temperature scaling ↓": (lambda run: value_of(run, "after_temperature.ece"), ".4f"),
    "ECE on corrupted images ↓": (lambda run: value_of(run, "shifted.ece"), ".4f"),
    "training loss, last epoch": (lambda run: run["losses"][-1], ".4f"),
}
EARLY = "stopped early"
STOPS: dict[str, tuple[int | str, ...]] = {
    "plain CNN": (56, 80, 300, EARLY),
    "CNN with batch norm": (20, 40, 300, EARLY),
    "plain CNN, falling rate": (300,),
    "CNN with batch norm, falling rate": (300,),
    "plain CNN, no weight decay": (300,),
    "plain CNN, ten times the decay": (300,),
    "plain CNN, ten times the decay, on convolutions only": (300,),
    "CNN with batch norm, no weight decay": (300,),
    "CNN with batch norm, ten times the decay": (300,),
    "CNN with batch norm, ten times the decay, on convolutions only": (300,),
    "plain CNN, its head alone": (80, 300),
    "CNN with batch norm, its head alone": (40, 300),
    "plain CNN, AdamW": (300,),
    "plain CNN, AdamW's update": (300,),
    "CNN with batch norm, AdamW": (300,),
    "CNN with batch norm, AdamW's update": (300,),
    "plain CNN, label smoothing": (300,),
    "plain CNN, focal loss": (300,),
}
"""Epochs of docs/results/when.json in the table; the networks learn at different speeds."""
WHEN: dict[str, tuple[Value, str]] = {
    "accuracy, % ↑": (lambda at: at["top1_accuracy"], ".1f"),
    "confidence − accuracy": (lambda at: at["max_softmax"] - at["top1_accuracy"] / 100, "+.3f"),
    "loss ↓": (lambda at: at["loss"], ".3f"),
    "ECE ↓": (lambda at: at["ece"], ".3f"),
    "ECE after temperature scaling ↓": (lambda at: at["ece_scaled"], ".3f"),
}
LENGTHS = (
    ("resnet18", "orthograd", "ResNet-18"),
    ("resnet18_bf16", "orthograd_update", "ResNet-18, ⊥Grad of the update"),
    ("resnet50", "orthograd", "ResNet-50"),
    ("resnet50", "orthograd_update", "ResNet-50, ⊥Grad of the update"),
    ("resnet50", "orthograd_update_skip_1d", "ResNet-50, ⊥Grad of the update, 1-D parameters skipped"),
    ("wide_resnet28_10", "orthograd", "WideResNet-28-10"),
    ("resnet18_1000_epochs", "orthograd", "ResNet-18, 1000 epochs"),
    ("resnet18_all_labels", "orthograd", "ResNet-18, all labels"),
    ("resnet18_adamw", "orthograd", "ResNet-18, AdamW"),
)
"""Settings and methods of the reproduction whose head norms are compared with the baseline's, where there are runs."""
DECAY_ROWS: dict[str, tuple[Value, str]] = {
    **{name: EXPECTED[name] for name in ("accuracy, % ↑", "max |logit|")},
    "confidence − accuracy": (
        lambda run: run["metrics"]["clean"]["max_softmax"] - run["metrics"]["clean"]["top1_accuracy"] / 100,
        "+.3f",
    ),
    **{name: EXPECTED[name] for name in ("loss ↓", "ECE ↓", "ECE on corrupted images ↓")},
    "training loss, lowest tenth of the epochs": (lambda run: min(stretches_of(run["losses"])), ".3f"),
    "training loss, last tenth": (lambda run: stretches_of(run["losses"])[-1], ".3f"),
    "‖head‖ at the end": (lambda run: norm_of(run, "head", "end"), ".2f"),
}
STEPPED = {
    "baseline": "SGD",
    "orthograd": "⊥Grad of the gradient",
    "orthograd_skip_1d": "⊥Grad of the gradient, 1-D parameters skipped",
    "orthograd_update": "⊥Grad of the update",
    "orthograd_update_skip_1d": "⊥Grad of the update, 1-D parameters skipped",
}
"""Methods of docs/results/large-steps.json that were run at all learning rates."""
HIDDEN = {
    "CNN with batch norm, rate 0.1": "ReLU in the hidden layer",
    "CNN with batch norm, rate 0.1, leaky": "leaky ReLU in the hidden layer",
    "CNN with batch norm, rate 0.1, norm in the hidden layer": "BatchNorm in the hidden layer",
}
TITLES = {
    "CNN with batch norm": "BatchNorm CNN",
    "falling rate": "cosine schedule",
    "ten times the decay": "10 × weight decay",
    "its head alone": "head only",
    "AdamW's update": "AdamW, ⊥Grad of the update",
    "rate 0": "learning rate 0",
}
"""Words in the names of recorded cases, and what the tables show."""
LEARNED = 50
"""Accuracy in percent below which a network counts as not having learned."""
SHOWN = ("11.weight", "5.weight", "4.weight", "4.bias")
"""Parameters of the example's diagnosis: two that ⊥Grad changes, and two that it does not, for different reasons."""


def expected(results: Path) -> str:
    """The change by ⊥Grad in every setting of the reproduction that has both methods."""
    columns = {}
    for setting, title in SETTINGS.items():
        pair = reproduced(results, setting, "baseline", "orthograd")
        if pair is not None:
            columns[f"{title}, {len(pair.seeds)} seeds"] = pair.baseline, pair.candidate
    rows = [[name, *(change(methods, *how) for methods in columns.values())] for name, how in EXPECTED.items()]
    return markdown_table(["without → with ⊥Grad", *columns], rows)


def reproduced(results: Path, setting: str, baseline: str, candidate: str) -> MethodPair | None:
    """Two methods of the reproduction in a setting; None where one has no runs."""
    paths = [bundle_path(results / "reproduction", setting, method) for method in (baseline, candidate)]
    if not all(path.exists() for path in paths):
        return None
    return MethodPair.of([run for path in paths for run in _read(path)], baseline=baseline, candidate=candidate)


@cache
def _read(path: Path) -> list[dict[str, Any]]:
    """The records of a bundle, kept: several tables need the same ones, and reading checks every hash."""
    return read_bundle(path)


def change(methods: Sequence[Sequence[Run]], of: Value, form: str) -> str:
    """The means of both methods, without → with ⊥Grad; bold where the paired interval excludes zero."""
    before, after = ([of(run) for run in method] for method in methods)
    if None in (*before, *after):
        return "–"
    low, high = difference_interval(before, after)
    text = f"{fmean(before):{form}} → {fmean(after):{form}}".replace("-", "−")
    return f"**{text}**" if low > 0 or high < 0 else text


def when(results: Path) -> str:
    """Settings where ⊥Grad helps or hurts, from the record of `when_it_hurts`."""
    record = _record(results, "when.json")
    runs, epochs = record["runs"], record["epochs"]
    cases = {
        (case, str(stop)): [[moment(run, epochs, stop) for run in method] for method in runs[case].values()]
        for case, stops in STOPS.items()
        for stop in stops
    }
    eces = {
        ", ".join(name): ([at["ece"] for at in methods[0]], [at["ece"] for at in methods[1]])
        for name, methods in cases.items()
    }
    verdicts = compare_table(eces, better=dict.fromkeys(eces, "lower"))
    rows = [
        [
            titled(name[0]),
            name[1],
            *(change(methods, *how) for how in WHEN.values()),
            verdicts[", ".join(name)].verdict,
        ]
        for name, methods in cases.items()
    ]
    return markdown_table(["without → with ⊥Grad", "epochs", *WHEN, "ECE verdict"], rows)


def lengths(results: Path) -> str:
    """The norm of the head and the largest logit in the reproduction, and the loss of the first epoch."""
    rows = []
    for setting, method, title in LENGTHS:
        pair = reproduced(results, setting, "baseline", method)
        if pair is not None:
            first = f"{fmean(run['losses'][0] for run in pair.baseline):.2f}"
            before = f"{fmean(norm_of(run, 'head', 'start') for run in pair.baseline):.2f}"
            methods = pair.baseline, pair.candidate
            head = change(methods, lambda run: norm_of(run, "head", "end"), ".2f")
            logit = change(methods, lambda run: run["metrics"]["clean"]["max_logit"], ".2f")
            rows.append([f"{title}, {len(pair.seeds)} seeds", first, before, head, logit])
    header = [
        "without → with ⊥Grad",
        "loss of the first epoch",
        "‖head‖ before",
        "‖head‖ at the end",
        "max |logit|",
    ]
    return markdown_table(header, rows)


def decay_conv_only(results: Path) -> str:
    """The change by ⊥Grad with weight decay on all parameters and on convolutions only."""
    columns = [
        (f"{labels}, {decay} decay", reproduced(results, setting, *methods))
        for setting, labels in {"resnet18_bf16": "few labels", "resnet18_all_labels": "all labels"}.items()
        for methods, decay in {
            ("baseline", "orthograd"): "all",
            ("decay_conv_only", "decay_conv_only_orthograd"): "convolutions",
        }.items()
    ]
    pairs = {f"{title}, {len(pair.seeds)} seeds": pair for title, pair in columns if pair is not None}
    methods = {title: (pair.baseline, pair.candidate) for title, pair in pairs.items()}
    rows = [[name, *(change(pair, *how) for pair in methods.values())] for name, how in DECAY_ROWS.items()]
    return markdown_table(["ResNet-18, without → with ⊥Grad", *methods], rows)


def large_steps(results: Path) -> str:
    """Learning rates larger than the recipe's, from the record of `large_steps`."""
    all_runs = _record(results, "large-steps.json")["runs"]
    runs = {case: methods for case, methods in all_runs.items() if case not in list(HIDDEN)[1:]}
    rows = [[titled(case), *(means(methods[method]) for method in STEPPED)] for case, methods in runs.items()]
    return markdown_table(["accuracy, % ↑; ECE ↓; ‖head‖", *STEPPED.values()], rows)


def hidden_units(results: Path) -> str:
    """The failing runs: how many learned, and the share of their hidden units that is off; from the same record."""
    runs = _record(results, "large-steps.json")["runs"]
    rows = [[title, *(learned_and_off(runs[case][method]) for method in STEPPED)] for case, title in HIDDEN.items()]
    return markdown_table(["runs that learned; hidden units off in these, in others", *STEPPED.values()], rows)


def learned_and_off(runs: list[dict[str, float]]) -> str:
    """The number of runs that learned, the median share of hidden units that is off, and the number that diverged."""
    off: dict[bool | None, list[float]] = {True: [], False: [], None: []}
    for run in runs:
        off[has_learned(run)].append(run["off"])
    shares = (f"{100 * median(off[learned]):.0f}%" if off[learned] else "–" for learned in (True, False))
    diverged = f"; {len(off[None])} diverged" if off[None] else ""
    return f"{len(off[True])} of {len(runs)}; {', '.join(shares)}{diverged}"


def has_learned(run: dict[str, float]) -> bool | None:
    """True if a run learned, None if it diverged."""
    return None if run["top1_accuracy"] is None else run["top1_accuracy"] > LEARNED


def means(runs: list[dict[str, float]]) -> str:
    """Mean accuracy, ECE and norm of the head, and how many runs learned, if not all."""
    accuracy, ece, head = (fmean(run[name] for run in runs) for name in ("top1_accuracy", "ece", "head"))
    learned = sum(has_learned(run) is True for run in runs)
    return f"{accuracy:.1f}; {ece:.3f}; {head:.1f}" + ("" if learned == len(runs) else f"; {learned} of {len(runs)}")


def moment(run: Mapping[str, list[float]], epochs: Sequence[int | str], stop: int | str) -> dict[str, float]:
    """The values of a run after an epoch, or after the epoch with the lowest loss on held-out images."""
    losses = run["held_out_loss"]
    at = losses.index(min(losses)) if stop == EARLY else epochs.index(stop)
    return {name: values[at] for name, values in run.items()}


def diagnosed(results: Path) -> str:
    """The output of the example, with some of its rows and columns."""
    record = _record(results, "diagnosis.json")["diagnosis"]
    rows = tuple(Row(**{**row, "shape": tuple(row["shape"])}) for row in record["rows"])
    diagnosis = Diagnosis(record["loss"], rows, tuple(record["warnings"]))
    columns, header = (0, 2, 3, 4, 7, 8), ("parameter", "removes", "radial", "cosine", "⊥Grad", "why")
    lines = [[diagnosis[name].cells[i] for i in columns] for name in SHOWN]
    headline = str(diagnosis).partition("\n")[0].replace("; ", ";\n", 1)
    return f"```\n{headline}\n\n{aligned(header, lines, left=(0, 4, 5))}\n```\n"


def titled(case: str) -> str:
    """The title of a case of the records.

    >>> titled("CNN with batch norm, its head alone")
    'BatchNorm CNN, head only'
    """
    for recorded, shown in TITLES.items():
        case = case.replace(recorded, shown)
    return case


def _record(results: Path, name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((results / name).read_text(encoding="utf-8"))
    return record
