"""The command ``orthograd evaluate``: calibration metrics of stored predictions."""

from __future__ import annotations

import csv
import json
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..imports import require
from .options import device_named

if TYPE_CHECKING:
    from rich.console import Console

    from ..calibration import ReliabilityCurve
    from ..calibration.files.evaluation import Settings
    from ..calibration.files.reading import PredictionsFile

FORM, CALIBRATION, OUTPUT = "Form of the predictions", "Bins, calibrators and intervals", "Output"
LARGE = 1 << 20
"""Bytes from which on reading a file shows its progress."""


def evaluate(
    files: Annotated[
        Optional[list[Path]],  # noqa: UP045 typer reads it on 3.10
        typer.Argument(metavar="FILE", show_default=False, help="Files of predictions."),
    ] = None,
    pair: Annotated[
        Optional[tuple[str, str]],  # noqa: UP045
        typer.Option(
            metavar="BASELINE CANDIDATE",
            show_default=False,
            help="Compare two methods over seeds instead: NAME=PATTERN of each, such as 'sgd=sgd-*.npz'. The part that "
            "* stands for is the seed.",
        ),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", rich_help_panel=FORM, help="The files hold probabilities, not logits.")
    ] = False,
    scores_key: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(rich_help_panel=FORM, help="Name of the logits or probabilities in the file, if not the default."),
    ] = None,
    labels_key: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(rich_help_panel=FORM, help="Name of the labels in the file, if not the default."),
    ] = None,
    classes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="COLUMNS",
            rich_help_panel=FORM,
            help="Columns of the classes in a table, in the order of the labels, such as cat,dog. "
            "'class_*' means class_0, class_1, …",
        ),
    ] = None,
    task: Annotated[
        str,
        typer.Option(
            metavar="TASK",
            rich_help_panel=FORM,
            help="multiclass; binary: one score per label; multilabel: scores and labels (n, labels); or "
            "multiple_choice: any number of choices in each row.",
        ),
    ] = "multiclass",
    classes_dim: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            rich_help_panel=FORM,
            help="Dimension of the classes if there are more than two: 1 for maps (n, classes, height, width), "
            "-1 for tokens (n, length, classes).",
        ),
    ] = None,
    ignore_index: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(rich_help_panel=FORM, help="Leave out positions with this label; -100 in Transformers."),
    ] = None,
    normalize: Annotated[
        str,
        typer.Option(
            metavar="UNIT",
            rich_help_panel=FORM,
            help="Divide the log-likelihoods of lm-evaluation-harness by the length of the choice: none as acc, "
            "characters as acc_norm, bytes as acc_bytes.",
        ),
    ] = "none",
    bins: Annotated[
        int, typer.Option(min=1, max=1000, rich_help_panel=CALIBRATION, help="Confidence bins of equal width.")
    ] = 10,
    fit: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(
            "--fit",
            "--fit-temperature",
            metavar="FILE",
            rich_help_panel=CALIBRATION,
            help="Held-out predictions to fit a temperature on, and every calibrator of the page; the files are then "
            "also evaluated with it. Give it once for all files, or once per file, in order.",
        ),
    ] = None,
    resamples: Annotated[
        int,
        typer.Option(
            min=0,
            max=10**6,
            rich_help_panel=CALIBRATION,
            help="Bootstrap resamples for the 95% intervals; 0 for none.",
        ),
    ] = 1000,
    seed: Annotated[
        int,
        typer.Option(min=0, max=2**63 - 1, rich_help_panel=CALIBRATION, help="Seed of the bootstrap and of the folds."),
    ] = 0,
    out: Annotated[
        Path, typer.Option(rich_help_panel=OUTPUT, help="Folder for evaluation.json and reliability.png.")
    ] = Path("evaluation"),
    page: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FILE.html",
            rich_help_panel=OUTPUT,
            help="Write a report: the verdict, reliability diagrams, risk–coverage curves, every calibrator, data as "
            "CSV. One file, no JavaScript.",
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(rich_help_panel=OUTPUT, help="cpu, cuda, or auto for the GPU if there is one.")
    ] = "auto",
    explain: Annotated[
        bool, typer.Option("--explain", rich_help_panel=OUTPUT, help="Print the definition of each metric.")
    ] = False,
) -> None:
    """Measure calibration and accuracy from stored predictions.

    A .npz or .safetensors file holds the arrays logits (n, classes) and labels
    (n,), integers from 0; predictions and label_ids of Hugging Face's Trainer
    are read too. A .csv or .parquet file has a column label and one column per
    class: class_0, class_1, … or 0, 1, …; use --classes for other names, which
    may also be the labels. A .parquet file may hold the logits as lists in a
    column logits. A .jsonl file has one object per line, with a list logits and
    a label; the samples of lm-evaluation-harness are such files. With
    --probabilities, the array is called probabilities instead of logits.

    With several files, each is compared with the first on the same samples;
    differences are file − first file. With --pair, several files are the seeds
    of two methods; differences are candidate − baseline.

    In Python: numpy.savez("test.npz", logits=logits, labels=labels)

    Examples:

    orthograd evaluate test.npz --page report.html
    orthograd evaluate test.npz --fit held-out.npz
    orthograd evaluate sgd.npz orthograd.npz
    orthograd evaluate --pair 'sgd=sgd-*.npz' 'orthograd=orthograd-*.npz'
    orthograd evaluate samples_arc_easy_*.jsonl --page report.html
    orthograd evaluate tokens.npz --classes-dim -1 --ignore-index -100
    orthograd evaluate masks.npz --classes-dim 1 --page report.html
    """
    require("matplotlib", "PIL", "numpy", "scipy")
    from rich.console import Console

    from ..calibration.files.evaluation import Settings
    from ..calibration.files.reading import read_predictions

    console, chosen = Console(), device_named(device)
    options: dict[str, Any] = {"scores_key": scores_key, "labels_key": labels_key, "probabilities": probabilities}
    options |= {"task": task, "classes_dim": classes_dim, "ignore_index": ignore_index, "normalize": normalize}

    def read(path: Path) -> PredictionsFile:
        options["classes"] = None if classes is None else _names(classes)
        with _reading(console, path) as report:
            return read_predictions(path, **options, report=report).to(chosen)

    with _refusing():
        if page is not None and page.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"expected a file name that ends in .html for --page, got {page}")
        job = _Job(console, read, Settings(bins=bins, resamples=resamples, seed=seed), out, page)
        if pair is None:
            _evaluate(job, files or [], fit or [], explain=explain)
        elif files:
            raise ValueError(
                f"expected --pair alone, got files with it, such as {files[0]}: quote the patterns, such "
                "as 'sgd=sgd-*.npz', so that the shell does not expand them"
            )
        elif fit or explain:
            raise ValueError("expected --pair alone, got --fit or --explain with it: remove them")
        else:
            _compare(job, *pair)


@dataclass(frozen=True)
class _Job:
    """What both ways of evaluating need."""

    console: Console
    read: Callable[[Path], PredictionsFile]
    settings: Settings
    out: Path
    page: Path | None


@contextmanager
def _refusing() -> Iterator[None]:
    """Print errors about the input in one line, and exit."""
    from ..calibration import InputWarning

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)  # the doubts that are printed say the same
            yield
    except (ValueError, OSError, ImportError) as error:
        typer.echo(f"orthograd evaluate: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None


@contextmanager
def _reading(console: Console, path: Path) -> Iterator[Callable[[int], object]]:
    """A progress bar for a large file; yields what the reader reports to."""
    from rich import progress

    size = path.stat().st_size if path.is_file() else 0
    if size < LARGE:
        yield lambda _: None
        return
    columns = progress.TextColumn("reading {task.description}"), progress.BarColumn(), progress.DownloadColumn()
    with progress.Progress(
        *columns, progress.TimeRemainingColumn(), console=console, disable=not console.is_terminal, transient=True
    ) as bar:
        line = bar.add_task(path.name, total=size)
        yield lambda done: bar.update(line, completed=done)


def _evaluate(job: _Job, files: Sequence[Path], fit: Sequence[Path], *, explain: bool) -> None:
    """Evaluate each file, and write and print the results."""
    from ..calibration.files.evaluation import evaluated
    from ..calibration.files.record import as_record
    from .evaluation import print_results

    if not files:
        raise ValueError("expected at least one file of predictions, got none")
    held_out, predictions = [job.read(path) for path in fit], [job.read(path) for path in files]
    with job.console.status("evaluating …") as status:
        results = evaluated(predictions, held_out, job.settings)
        status.update("drawing …")
        written = _written(job, as_record(results), {column.name: [column.curve] for column in results.columns})
        if job.page is not None:
            from ..lab.evaluation.document import evaluation_page
            from ..lab.files import write_text

            status.update("fitting calibrators …")
            written.append(write_text(job.page, evaluation_page(results, _command())))
    print_results(job.console, results, written, explain=explain)


def _compare(job: _Job, baseline: str, candidate: str) -> None:
    """Compare two methods over the seeds that their files are, and write and print the results."""
    from ..lab.comparison.output import console_table
    from ..lab.comparison.pair import verdict
    from ..lab.evaluation.pair_document import pair_page
    from ..lab.evaluation.seeds import GIVEN, method_of, seed_pairs
    from ..lab.files import write_text

    methods = method_of(baseline), method_of(candidate)
    with job.console.status("evaluating …"):
        pairs = seed_pairs(*methods, job.read, job.settings)
        curves = dict(
            zip(pairs.names, ([column.curve for column in each] for each in pairs.columns[GIVEN]), strict=True)
        )
        written = _written(job, pairs.as_record(), curves)
        if job.page is not None:
            written.append(write_text(job.page, pair_page(pairs, _command())))
    for doubt in pairs.doubts:
        job.console.print(doubt, markup=False)
    for when, table in pairs.tables.items():
        job.console.print(console_table(when, table, pairs.names))
    job.console.print(verdict(pairs.tables[GIVEN], baseline=pairs.names[0], candidate=pairs.names[1]), markup=False)
    job.console.print(" ".join(pairs.remarks), markup=False)
    job.console.print(f"Written: {', '.join(map(str, written))}", soft_wrap=True, markup=False)


def _command() -> str:
    return shlex.join(["orthograd", *sys.argv[1:]])


def _names(classes: str) -> list[str]:
    """The names in a list such as cat,"dog, big"."""
    try:
        return next(csv.reader([classes], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise ValueError(f"expected --classes as names separated by commas, got {classes!r}: {error}") from error


def _written(job: _Job, record: dict[str, Any], curves: dict[str, list[ReliabilityCurve]]) -> list[Path]:
    """Write evaluation.json and reliability.png into the folder; their paths."""
    from ..figures.reliability import reliability_figure
    from ..figures.style import save_figure
    from ..lab.files import replacing, write_text

    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    path, figure = write_text(job.out / "evaluation.json", text + "\n"), job.out / "reliability.png"
    with replacing(figure) as unfinished:
        save_figure(reliability_figure(curves), unfinished)
    return [path, figure]
