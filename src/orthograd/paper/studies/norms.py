"""docs/norms.md: norms that weight decay alone predicts beside measured ones, as tables and as docs/figures/norms.svg.

Predictions need rate, decay, momentum and steps, which are in the config of a run, and nothing that was measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import Any

import torch

from ...diagnosis.shrinkage import UNDERCONFIDENT, shrinkages
from ...lab.comparison.pair import MethodPair
from ...lab.networks import MODELS
from ...lab.page.document import drawing_style
from ...lab.page.figure import METHODS, Frame, Scale, bottom_axis, marker
from ...lab.page.markup import Markup, joined, tag
from ...lab.training.config import Config
from ...lab.training.layers import layer_types_of
from ...lab.training.steps import optimizer_of
from ...statistics import Comparison, ComparisonTable
from ...statistics.table import markdown_table
from ..plan import EXPERIMENTS, FOLLOWED, PAIR
from .effect import Effect
from .last_batch import SIZES, fewer_seeds
from .method_tables import DECAY_ROWS, WHEN, change, moment, reproduced, titled
from .when_it_hurts import CASES

MATCHED = "ResNet-18, AdamW with SGD's decay"
TESTED = range(10)
"""Seeds of the runs that test the explanation."""
SETTINGS = (
    ("resnet18", PAIR, "ResNet-18"),
    ("resnet18_drop", PAIR, "ResNet-18, last batch dropped"),
    *((f"resnet18_batch{size}_4800", PAIR, f"ResNet-18, {title}") for title, size in SIZES.items()),
    ("resnet18_1000_epochs", PAIR, "ResNet-18, 1000 epochs"),
    ("resnet18_all_labels", PAIR, "ResNet-18, all labels"),
    ("resnet18_all_labels", FOLLOWED[1], "ResNet-18, all labels, decay on convolutions only"),
    ("resnet18_bf16", FOLLOWED[1], "ResNet-18, decay on convolutions only"),
    ("resnet18_bf16", (PAIR[0], "orthograd_update"), "ResNet-18, ⊥Grad of the update"),
    ("resnet18_adamw", PAIR, "ResNet-18, AdamW"),
    ("resnet18_adamw_matched", PAIR, MATCHED),
    ("resnet50", PAIR, "ResNet-50"),
    ("wide_resnet28_10", PAIR, "WideResNet-28-10"),
)
"""Settings of the reproduction, methods without and with ⊥Grad, and a title; those without runs are skipped."""
ALL_IMAGES = 50_000
PARTS = ("BatchNorm weights", "head weight", "head bias")
LAST = "last BatchNorm weight"
CLOSE = 0.05
"""Relative deviation up to which a norm counts as predicted."""
DIGITS = tuple(
    case for case in CASES if not any(word in case for word in ("alone", "update", "smoothing", "focal", "last batch"))
)
GAP = "confidence − accuracy"
NAMES, ROW, TOP, PANEL = 312, 26, 62, Frame(width=226, left=10, right=14, top=0, bottom=38)
STYLE = """
.predicted { stroke: var(--bar-edge); stroke-width: 3; }
.way { stroke: var(--quiet); stroke-width: 1; opacity: .6; }
"""


def steps_of(config: Config) -> int:
    """Steps of a run at its initial learning rate; with a schedule, those with the same sum of rates."""
    images = 10 * config.labels_per_class or ALL_IMAGES
    rates = sum(config.rate_in(epoch) for epoch in range(config.epochs)) / config.learning_rate
    return round(len(config.batches_of(images)) * rates)


@cache
def factors_of(config: Config) -> Mapping[str, float]:
    """The factor of weight decay alone for each parameter that is projected, or would be; weights are not allocated."""
    shape = (3, 32, 32) if config.dataset == "cifar10" else (1, 8, 8)
    with torch.device("meta"):
        model = MODELS[config.model](shape, 10)
    optimizer = optimizer_of(replace(config, device="cpu", precision="float32"), model)
    shrunk = shrinkages(dict(model.named_parameters()), optimizer, steps_of(config))
    return {name: one.factor for name, one in shrunk.items() if one.factor is not None}


def names_of(model: str, part: str) -> list[str]:
    """The parameters of a network's part."""
    types = layer_types_of(model)
    norms = [name for name, layer_type in types.items() if layer_type == "norm_weight"]
    if part in (PARTS[0], LAST):
        return norms if part == PARTS[0] else norms[-1:]
    end = f".{part.removeprefix('head ')}"
    return [name for name, layer_type in types.items() if layer_type == "head" and name.endswith(end)]


def measured(run: Mapping[str, Any], part: str) -> float | None:
    """The norm of a part at the end of a run over its norm at the start; None if it starts at zero."""
    parameters = run["diagnosis"]["parameters"]
    both = [parameters[name] for name in names_of(run["config"]["model"], part)]
    start, end = (math.sqrt(sum(each[when]["norm"] ** 2 for each in both)) for when in ("start", "end"))
    return end / start if start else None


def radial(run: Mapping[str, Any], part: str) -> float:
    """The radial share of the gradient of a part with one parameter, at the end of a run."""
    (name,) = names_of(run["config"]["model"], part)
    return float(run["diagnosis"]["parameters"][name]["end"]["radial"])


@dataclass(frozen=True)
class Setting:
    """A setting with its runs without and with ⊥Grad."""

    title: str
    pair: MethodPair

    @property
    def methods(self) -> tuple[Sequence[Mapping[str, Any]], ...]:
        """The runs without and with ⊥Grad."""
        return self.pair.baseline, self.pair.candidate

    def config(self, method: int = 1) -> Config:
        """The config of the runs without (0) or with (1) ⊥Grad."""
        return Config.from_dict(self.methods[method][0]["config"])

    def predicted(self, part: str, method: int = 1) -> float:
        """The factor of weight decay alone for a part."""
        factors = factors_of(self.config(method))
        (factor,) = {factors[name] for name in names_of(self.config().model, part)}
        return factor

    def mean(self, part: str, method: int = 1) -> float | None:
        """The measured factor, mean over runs."""
        values = [value for run in self.methods[method] if (value := measured(run, part)) is not None]
        return fmean(values) if values else None

    def times(self, part: str, method: int = 1) -> float | None:
        """The measured factor over the predicted one; None if the part starts at zero."""
        mean = self.mean(part, method)
        return None if mean is None else mean / self.predicted(part, method)


@cache
def settings(results: Path) -> tuple[Setting, ...]:
    """All settings that have runs."""
    pairs = ((title, reproduced(results, setting, *methods)) for setting, methods, title in SETTINGS)
    return tuple(Setting(title, pair) for title, pair in pairs if pair is not None)


def norms(results: Path) -> str:
    """Norms at the end over norms at the start, predicted and measured."""
    rows = []
    for setting in settings(results):
        shown = [change(setting.methods, partial(measured, part=part), ".3f") for part in (*PARTS, LAST)]
        title = f"{setting.title}, {len(setting.pair.seeds)} seeds"
        shown += [
            " → ".join(f"{fmean(radial(run, part) for run in runs):.2f}" for runs in setting.methods)
            for part in (LAST, "head weight")
        ]
        rows.append([title, f"{steps_of(setting.config()):,}", f"{setting.predicted(PARTS[0]):.3f}", *shown])
    header = ["without → with ⊥Grad", "steps", "BatchNorm weights, predicted", *PARTS, LAST]
    return markdown_table([*header, f"radial share, {LAST}", "radial share, head weight"], rows)


def norms_predicted(results: Path) -> str:
    """In words: the settings that weight decay alone predicts, and those that it does not."""
    every = settings(results)
    lines = []
    for part in PARTS:
        times = {setting.title: times for setting in every if (times := setting.times(part)) is not None}
        others = {title: ratio for title, ratio in times.items() if abs(ratio - 1) > CLOSE}
        off = [abs(ratio - 1) for title, ratio in times.items() if title not in others]
        line = f"- **{part[0].upper()}{part[1:]}**: within {CLOSE:.0%} of the prediction in {len(off)} of {len(times)} "
        line += f"settings, at most {max(off):.1%} off there." if off else "settings."
        lines.append(_wrapped(line + _misses(others, "The others" if off else "All")))
    sgd = sum(abs((setting.times(PARTS[0], 0) or 0) - 1) <= CLOSE for setting in every)
    lines.append(f"- **BatchNorm weights without ⊥Grad**: within {CLOSE:.0%} in {sgd} of {len(every)} settings.")
    return "\n".join(lines) + "\n"


def norms_predictions(results: Path) -> str:
    """Each prediction that was written down before the runs that test the explanation, beside the result."""
    return markdown_table(["prediction", "measured", "outcome"], _predictions(results))


def _predictions(results: Path) -> Iterator[list[str]]:
    matched = next(setting for setting in settings(results) if setting.title == MATCHED)
    logits = matched.pair.tables["clean"]["max_logit"]
    yield _told("AdamW with SGD's decay: the largest logit falls", _text(logits), logits.interval.high < 0)
    expected, found = matched.predicted(PARTS[0]), matched.mean(PARTS[0]) or 0.0
    words = f"{found:.3f} (predicted {expected:.3f})"
    yield _told(
        "AdamW with SGD's decay: BatchNorm weights as predicted, to 1%", words, abs(found / expected - 1) < 0.01
    )
    usual, head, limited = (
        _clean(results, "resnet18_bf16", method) for method in ("orthograd", "orthograd_head_weight", "limited_growth")
    )
    logits, whole = head["max_logit"], usual["max_logit"]
    is_right = logits.interval.high < 0 and logits.difference <= whole.difference / 2
    words = f"{_text(logits)}; all layers {_text(whole)}"
    yield _told("⊥Grad on the head's weight only: at least half of the fall of the largest logit", words, is_right)
    means = limited["loss"].candidate.mean, limited["loss"].baseline.mean, usual["loss"].candidate.mean
    words = "{:.3f} (SGD {:.3f}, ⊥Grad {:.3f})".format(*means)
    is_right = min(means[1:]) <= means[0] <= max(means[1:])
    yield _told("Limited growth: the loss is between SGD's and ⊥Grad's", words, is_right)
    accuracy = limited["top1_accuracy"]
    is_right = abs(accuracy.difference) < 0.5
    yield _told("Limited growth: accuracy within 0.5 points of SGD's", _text(accuracy), is_right)
    yield from _on_all_labels(
        *(_clean(results, "resnet18_all_labels", method) for method in ("orthograd", "limited_growth"))
    )


def _on_all_labels(usual: ComparisonTable, limited: ComparisonTable) -> Iterator[list[str]]:
    """Rows on all labels: confidence − accuracy, accuracy, and ECE."""
    fewer = fewer_seeds(limited["ece"], EXPERIMENTS["limited_growth_all_labels"].seeds)
    gaps = [
        each["max_softmax"].candidate.mean - each["top1_accuracy"].candidate.mean / 100 for each in (limited, usual)
    ]
    words = "{:+.3f} (⊥Grad {:+.3f})".format(*gaps).replace("-", "−")
    who = "All labels, limited growth"
    yield _told(f"{who}: confidence − accuracy above −0.05", words, gaps[0] > -0.05, fewer)
    accuracy = limited["top1_accuracy"]
    yield _told(f"{who}: mean accuracy below SGD's", _text(accuracy), accuracy.difference < 0, fewer)
    errors = [each["ece"].candidate.mean for each in (limited, usual)]
    words = "{:.3f} (⊥Grad {:.3f})".format(*errors)
    yield _told(f"{who}: mean ECE below ⊥Grad's", words, errors[0] < errors[1], fewer)


def _clean(results: Path, setting: str, method: str) -> ComparisonTable:
    """SGD and a method on clean images, over the seeds that all of them have."""
    pair = reproduced(results, setting, PAIR[0], method)
    assert pair is not None
    return pair.of_seeds(TESTED).tables["clean"]


def _text(row: Comparison) -> str:
    return Effect.of(row).text(2)


def _told(prediction: str, measured: str, is_right: bool, remark: str = "") -> list[str]:
    return [prediction, measured, ("right" if is_right else "wrong") + remark]


def _wrapped(text: str) -> str:
    return fill(text, 120, subsequent_indent="  " if text.startswith("- ") else "", break_on_hyphens=False)


def _misses(others: Mapping[str, float], which: str) -> str:
    """The measured norms over predicted ones that are far from 1, in words."""
    if not others:
        return ""
    low, high = min(others.values()), max(others.values())
    where = f" ({'; '.join(others)})" if len(others) <= 3 else ""
    return (
        f" {which}{where} end {low:.1f} to {high:.1f} times as large: steps added at least {1 - 1 / low**2:.0%} of "
        "‖w‖²."
    )


def lowest(config: Config) -> float:
    """The lowest factor of a parameter whose norm matters: not a convolution in a network with BatchNorm."""
    types = layer_types_of(config.model)
    harmless = "convolution" if "norm_weight" in types.values() else None
    return min(factor for name, factor in factors_of(config).items() if types.get(name) != harmless or harmless is None)


def _outcomes(results: Path) -> list[tuple[str, float, str, float]]:
    """By setting: the lowest factor, confidence − accuracy of both methods as text, and with ⊥Grad."""
    found = []
    for setting in settings(results):
        of, form = DECAY_ROWS[GAP]
        mean = fmean(of(run) for run in setting.pair.candidate)
        found.append((setting.title, lowest(setting.config()), change(setting.methods, of, form), mean))
    record = json.loads((results / "when.json").read_text(encoding="utf-8"))
    for case in DIGITS:
        config, _, method = CASES[case]
        of, form = WHEN[GAP]
        both = [
            [moment(run, record["epochs"], config.epochs) for run in runs] for runs in record["runs"][case].values()
        ]
        mean = fmean(of(at) for at in both[1])
        found.append((f"digits, {titled(case)}", lowest(replace(config, method=method)), change(both, of, form), mean))
    return sorted(found, key=lambda outcome: outcome[1])


def norms_warnings(results: Path) -> str:
    """Where `diagnose` would have warned, and which networks ended underconfident."""
    rows = [
        [title, f"{factor:.3f}", "yes" if factor < UNDERCONFIDENT else "no", text]
        for title, factor, text, _ in _outcomes(results)
    ]
    return markdown_table(["setting", "lowest factor", "warning", f"{GAP}, without → with ⊥Grad"], rows)


def norms_limit(results: Path) -> str:
    """The limit of the warning in words, and how often it was right."""
    outcomes = _outcomes(results)
    warned = [(factor, mean) for _, factor, _, mean in outcomes if factor < UNDERCONFIDENT]
    others = [(factor, mean, title) for title, factor, _, mean in outcomes if factor >= UNDERCONFIDENT]
    missed = [title for _, mean, title in others if mean < 0]
    where = ", all of them on digits" if all(title.startswith("digits") for title in missed) else ""
    words = (
        f"The limit is a factor of {UNDERCONFIDENT:g}: between {max(warned)[0]:.2f}, the highest factor with a "
        f"warning, and {min(others)[0]:.2f}, the lowest without. **It was chosen after these records were known.** The "
        f"warning comes in {len(warned)} of {len(outcomes)} settings, and {sum(mean < 0 for _, mean in warned)} of "
        f"these ended underconfident. So did {len(missed)} settings without a warning{where}."
    )
    return _wrapped(words) + "\n"


def norms_figure(results: Path) -> str:
    """The figure as SVG: a row for each setting, a panel for each part."""
    every = settings(results)
    width, height = NAMES + len(PARTS) * PANEL.width + 10, TOP + ROW * len(every) + PANEL.bottom
    words = "; ".join(
        f"{part}, {setting.title}: predicted {setting.predicted(part):.2g}, "
        + ", ".join(f"{name} {_shown(setting.mean(part, i))}" for i, name in enumerate(("without", "with ⊥Grad")))
        for part in PARTS
        for setting in every
    )
    names = (
        tag("text", setting.title, x=NAMES - 8, y=TOP + ROW * (i + 0.5), dy="0.35em", class_="right")
        for i, setting in enumerate(every)
    )
    return (
        tag(
            "svg",
            tag("title", "Norms at the end of training, over those at the start: predicted and measured"),
            tag("desc", words),
            tag("style", Markup(drawing_style() + STYLE)),
            tag("rect", class_="ground", width=width, height=height),
            _legend(),
            names,
            (_panel(part, every, NAMES + i * PANEL.width) for i, part in enumerate(PARTS)),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {width:g} {height:g}",
            width=width,
            height=height,
            role="img",
        )
        + "\n"
    )


def _shown(value: float | None) -> str:
    return "starts at zero" if value is None else f"{value:.2g}"


def _panel(part: str, every: Sequence[Setting], left: float) -> Markup:
    frame = replace(PANEL, height=ROW * len(every) + PANEL.bottom)
    x = Scale(0.012, 30, *frame.x, is_logarithmic=True)
    ticks = [(x(value), f"{value:g}") for value in (0.02, 0.1, 1, 10)]
    marks = []
    for i, setting in enumerate(every):
        y, predicted = ROW * (i + 0.5), x(setting.predicted(part))
        before, after = (setting.mean(part, method) for method in (0, 1))
        if before is None or after is None:
            marks.append(tag("text", "starts at zero", x=x(0.4), y=y, dy="0.35em", class_="label"))
            continue
        marks += [
            tag("line", class_="way", x1=predicted, x2=x(after), y1=y + 4.5, y2=y + 4.5),
            tag("line", class_="predicted", x1=predicted, x2=predicted, y1=y - 10, y2=y + 10),
            marker(x(before), y - 4.5, look=METHODS[0], size=3.8),
            marker(x(after), y + 4.5, look=METHODS[1], size=3.8),
        ]
    return tag(
        "g",
        tag("text", part, x=frame.x[0], y=-12, class_="strong"),
        (tag("line", class_="grid", x1=at, x2=at, y1=0, y2=frame.y[0]) for at, _ in ticks),
        bottom_axis(frame, ticks, label="‖w‖ at the end / at the start"),
        marks,
        transform=f"translate({left:g} {TOP})",
    )


def _legend() -> Markup:
    words = ("predicted for ⊥Grad: weight decay alone", "measured without ⊥Grad", "measured with ⊥Grad")
    xs = (NAMES + 14, NAMES + 294, NAMES + 482)
    marks = [
        tag("line", class_="predicted", x1=xs[0], x2=xs[0], y1=10, y2=26),
        *(marker(x, 18, look=look, size=4) for x, look in zip(xs[1:], METHODS, strict=True)),
    ]
    return joined(marks, (tag("text", text, x=x + 12, y=18, dy="0.35em") for x, text in zip(xs, words, strict=True)))
