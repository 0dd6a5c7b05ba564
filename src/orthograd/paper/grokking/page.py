"""The tables, the sentences and the page of the grokking experiments, from their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from statistics import fmean, median

from ...figures.style import save_figure
from ...lab.files import make_folder, write_text
from ...statistics.table import markdown_table
from ..verdicts.rule import RULE
from .claims import PUBLISHED, Published
from .figures import accuracy_figure, mechanism_figure
from .predictions import predicted
from .records import GENERALIZES, Record, read_records
from .rows import QUICK_ON_A_GPU

Records = Mapping[str, Record]
EARLY = 50
"""A step before any seed of figure 1 generalizes, at which the sentences compare logits."""
BANDS = "medians over seeds, bands from the lowest to the highest seed"


def results_table(records: Records) -> str:
    """A line for each row: how many seeds generalize, when, and how the row ends."""
    header = ["row", "rate", "figure", "seeds", "steps", "generalize", "median step", "accuracy, training / test"]
    header += ["radial", "zero loss", "zero gradient", "confidence", "ECE ↓"]
    return markdown_table(header, [_line(each) for each in records.values()])


def _line(record: Record) -> list[str]:
    steps = [step for step in record.steps_to_generalize() if step is not None]
    n, at_end = len(record.seeds), sum(record.generalizes_at_the_end())
    accuracies = (_share(record.at(f"{part}_accuracy")) for part in ("train", "test"))
    return [
        record.row.title,
        f"{record.row.learning_rate:g}",
        record.row.figure or "–",
        str(n),
        f"{record.row.steps:,}",
        f"{len(steps)} of {n}" + (f", {at_end} at the end" if at_end < len(steps) else ""),
        f"{median(steps):,.0f} ({min(steps):,}–{max(steps):,})" if steps else "–",
        " / ".join(accuracies),
        *(_share(record.at(measure)) for measure in ("radial", "zero_loss", "zero_gradient")),
        *(f"{fmean(record.at(measure)):.2f}" for measure in ("confidence", "ece")),
    ]


def _share(values: Sequence[float]) -> str:
    """The mean in percent, never rounded to 0% or 100% where it is not; how many seeds have a value unless all do.

    >>> [_share([value]) for value in (0.0, 0.0004, 0.004, 0.5, 0.999, 0.9999, 1.0)]
    ['0%', '< 0.1%', '0.4%', '50%', '99.9%', '> 99.9%', '100%']
    >>> _share([0.5, float("nan"), 0.7]), _share([float("nan")])
    ('60% (2 seeds)', '– (0 seeds)')
    """
    known = [value for value in values if not isnan(value)]
    counted = f" ({len(known)} seeds)" if len(known) < len(values) else ""
    if not known:
        return "–" + counted
    percent = 100 * fmean(known)
    if 0 < percent < 0.05 or 99.95 <= percent < 100:
        return ("< 0.1%" if percent < 50 else "> 99.9%") + counted
    is_near = 0 < percent < 1 or 99 < percent < 100
    return (f"{percent:.1f}%" if is_near else f"{percent:.0f}%") + counted


def verdicts_table(records: Records) -> str:
    """Each published claim whose rows have records of at least two seeds, beside ours."""
    known = [claim for claim in PUBLISHED if all(name in records for name in claim.rows)]
    known = [claim for claim in known if all(len(records[name].seeds) > 1 for name in claim.rows)]
    header = ["claim", "figure", "published", "ours (95% interval)", "seeds", "verdict"]
    return markdown_table(header, [_verdict_line(claim, records) for claim in known])


def _verdict_line(claim: Published, records: Records) -> list[str]:
    estimate = claim.estimate(records)
    low, high = estimate.interval
    unit = "%" if claim.measure == "accuracy" and not claim.baseline else ""
    digits = 1 if claim.measure == "accuracy" else 0
    bound = "≤ " if claim.is_bound(records) else ""
    ours = f"{bound}{_number(estimate.value, digits)}{unit} ({_number(low, digits)} to {_number(high, digits)})"
    published = {"higher": "higher", "lower": "lower"}.get(claim.says or "", "")
    published = f"{claim.size:g}{unit}" if claim.size is not None else published
    return [claim.text, claim.figure, published, ours, str(estimate.n), claim.verdict(records)]


def _number(value: float, digits: int) -> str:
    """A number with a proper minus sign, and without one at zero.

    >>> _number(-1.26, 1), _number(-0.01, 1)
    ('−1.3', '0.0')
    """
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", "−")


def summary(records: Records) -> str:
    """Three sentences: who generalizes, who has learned the training pairs, and how large logits are early on."""
    shown = [records[name] for name in QUICK_ON_A_GPU if name in records] or [*records.values()][:1]
    after = [[step for step in record.steps_to_generalize() if step is not None] for record in shown]
    who = [
        f"{record.row.title} in {len(steps)} of {len(record.seeds)} seeds"
        + (f" (median step {median(steps):,.0f})" if steps else "")
        for record, steps in zip(shown, after, strict=True)
    ]
    early = [record for record in shown if record.row.loss == "softmax"]
    logits = ", ".join(f"{median(record.at('logit_norm', EARLY)):.2g} ({record.row.title})" for record in early)
    differ = (
        f" With softmax they differ early: at step {EARLY} the norm of logits, the median over seeds, is {logits}; "
        f"accuracy on training pairs is {_each(early, 'train_accuracy', EARLY)}."
    )
    return (
        f"Test accuracy reaches {GENERALIZES:.0%} with {', '.join(who)}. "
        f"Accuracy on training pairs at the end: {_each(shown, 'train_accuracy')}." + (differ if len(early) > 1 else "")
    )


def _each(records: Sequence[Record], measure: str, step: int | None = None) -> str:
    return ", ".join(f"{_share(record.at(measure, step))} ({record.row.title})" for record in records)


def predictions_table(records: Records) -> str:
    """Each prediction written before the runs, beside the result."""
    return markdown_table(["prediction", "measured", "outcome"], predicted(records))


def grokking_summary(results: Path) -> str:
    """The sentences of docs/grokking.md."""
    return summary(_committed(results)) + "\n"


def grokking_short(results: Path) -> str:
    """The line of README.md: how many seeds of the rows of a quick run generalize."""
    records = _committed(results)
    counts = [_count(records[name]) for name in QUICK_ON_A_GPU if name in records]
    return f"- Seeds with a test accuracy of at least {GENERALIZES:.0%}. {'; '.join(counts)}.\n"


def _count(record: Record) -> str:
    steps = [step for step in record.steps_to_generalize() if step is not None]
    when = f", median step {median(steps):,.0f}" if steps else f" in {record.row.steps:,} steps"
    return f"{record.row.title}: {len(steps)} of {len(record.seeds)}{when}"


def grokking_results(results: Path) -> str:
    """The table of rows of docs/grokking.md."""
    return results_table(_committed(results))


def grokking_verdicts(results: Path) -> str:
    """The verdicts of docs/grokking.md."""
    return verdicts_table(_committed(results))


def grokking_predictions(results: Path) -> str:
    """The predictions of docs/grokking.md."""
    return predictions_table(_committed(results))


def write_figures(records: Records, folder: Path) -> list[Path]:
    """Draw the figures into a folder; their paths."""
    make_folder(folder)
    paths = {folder / "mechanism.png": mechanism_figure, folder / "accuracy.png": accuracy_figure}
    for path, draw in paths.items():
        save_figure(draw(records), path)
    return list(paths)


def committed_figures(results: Path, folder: Path) -> list[Path]:
    """Draw the figures of docs/grokking.md; their paths."""
    return write_figures(_committed(results), folder)


def _committed(results: Path) -> Records:
    return read_records([results / "grokking"])


def write_page(records: Records, folder: Path) -> list[Path]:
    """Write the tables and the figures of these records into a folder; their paths."""
    figures = write_figures(records, folder)
    mechanism, accuracy = (f"![{path.stem}: {BANDS}]({path.name})" for path in figures)
    parts = ["# Grokking", summary(records), mechanism, results_table(records), accuracy, "## Verdicts"]
    parts += [verdicts_table(records), "".join(f"- {rule}\n" for rule in RULE)]
    parts += ["## Predictions", predictions_table(records)]
    text = "\n\n".join(part.rstrip("\n") for part in parts) + "\n"
    return [write_text(folder / "grokking.md", text), *figures]
