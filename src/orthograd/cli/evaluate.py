"""The command ``orthograd evaluate``: calibration metrics of stored predictions."""

from __future__ import annotations

import csv
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..imports import require
from .options import device_named

if TYPE_CHECKING:
    from ..calibration.files.evaluation import Results


def evaluate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", show_default=False, help="Files of predictions.")],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="The files hold probabilities, not logits.")
    ] = False,
    scores_key: Annotated[
        Optional[str],  # noqa: UP045 typer reads it on 3.10
        typer.Option(help="Name of the logits or probabilities in the file, if not the default."),
    ] = None,
    labels_key: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Name of the labels in the file, if not the default."),
    ] = None,
    classes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="COLUMNS",
            help="Columns of the classes in a table, in the order of the labels, such as cat,dog. "
            "'class_*' means class_0, class_1, …",
        ),
    ] = None,
    bins: Annotated[int, typer.Option(min=1, max=1000, help="Confidence bins of equal width.")] = 10,
    fit_temperature: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="Held-out predictions to fit a temperature on; the files are then also evaluated with it. "
            "Give it once for all files, or once per file, in order.",
        ),
    ] = None,
    resamples: Annotated[
        int, typer.Option(min=0, max=10**6, help="Bootstrap resamples for the 95% intervals; 0 for none.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the bootstrap.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for evaluation.json and reliability.png.")] = Path("evaluation"),
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the GPU if there is one.")] = "auto",
    explain: Annotated[bool, typer.Option("--explain", help="Print the definition of each metric.")] = False,
) -> None:
    """Measure calibration and accuracy from stored predictions.

    A .npz or .safetensors file holds the arrays logits (n, classes) and labels
    (n,), integers from 0. A .csv or .parquet file has a column label and one
    column per class: class_0, class_1, … or 0, 1, …; use --classes for other
    names. A .parquet file may hold the logits as lists in a column logits.
    With --probabilities, the array is called probabilities instead of logits.

    With several files, each is compared with the first on the same samples;
    differences are file − first file.

    In Python: numpy.savez("test.npz", logits=logits, labels=labels)

    Examples:

    orthograd evaluate test.npz
    orthograd evaluate test.npz --fit-temperature held-out.npz
    orthograd evaluate sgd.npz orthograd.npz
    """
    require("matplotlib", "PIL", "numpy")
    from rich.console import Console

    from ..calibration import InputWarning
    from ..calibration.files.evaluation import Settings, evaluated
    from ..calibration.files.reading import PredictionsFile, read_predictions
    from .evaluation import print_results

    console, chosen = Console(), device_named(device)

    def read(path: Path) -> PredictionsFile:
        file = read_predictions(
            path,
            scores_key=scores_key,
            labels_key=labels_key,
            classes=None if classes is None else _names(classes),
            probabilities=probabilities,
        )
        return replace(file, scores=file.scores.to(chosen), labels=file.labels.to(chosen))

    try:
        with console.status("reading …") as status, warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)  # a note below the table says the same
            held_out, predictions = [read(path) for path in fit_temperature or []], [read(path) for path in files]
            status.update("evaluating …")
            results = evaluated(predictions, held_out, Settings(bins=bins, resamples=resamples, seed=seed))
            status.update("drawing …")
            written = _written(results, out)
    except (ValueError, OSError, ImportError) as error:
        typer.echo(f"orthograd evaluate: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None
    print_results(console, results, written, explain=explain)


def _names(classes: str) -> list[str]:
    """The names in a list such as cat,"dog, big"."""
    try:
        return next(csv.reader([classes], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise ValueError(f"expected --classes as names separated by commas, got {classes!r}: {error}") from error


def _written(results: Results, folder: Path) -> list[Path]:
    """Write evaluation.json and reliability.png into the folder; their paths."""
    from ..calibration.files.record import as_record
    from ..figures.reliability import reliability_figure
    from ..figures.style import save_figure
    from ..lab.files import replacing, write_text

    text = json.dumps(as_record(results), indent=1, ensure_ascii=False, allow_nan=False)
    record, figure = write_text(folder / "evaluation.json", text + "\n"), folder / "reliability.png"
    with replacing(figure) as unfinished:
        save_figure(reliability_figure({column.name: column.curve for column in results.columns}), unfinished)
    return [record, figure]
