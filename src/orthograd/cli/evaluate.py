"""The command ``orthograd evaluate``: calibration of anyone's logits and labels."""

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
    files: Annotated[list[Path], typer.Argument(metavar="FILE", show_default=False, help="Predictions to evaluate.")],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="The files hold probabilities, not logits.")
    ] = False,
    scores_key: Annotated[Optional[str], typer.Option(help="Name of the scores, if it is another one.")] = None,  # noqa: UP045 typer reads it on 3.10
    labels_key: Annotated[Optional[str], typer.Option(help="Name of the labels, if it is another one.")] = None,  # noqa: UP045
    classes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="COLUMNS",
            help="Columns of the classes in a table, in the order of the labels: cat,dog. "
            "'class_*' stands for class_0, class_1 …",
        ),
    ] = None,
    bins: Annotated[int, typer.Option(min=1, max=1000, help="Bins of equal width.")] = 10,
    fit_temperature: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="Fit a temperature on these held-out predictions and evaluate with it too. "
            "Once for all files, or once for each, in order.",
        ),
    ] = None,
    resamples: Annotated[
        int, typer.Option(min=0, max=10**6, help="Bootstrap resamples for the intervals; 0 for no intervals.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the resamples.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for evaluation.json and reliability.png.")] = Path("evaluation"),
    device: Annotated[str, typer.Option(help="cpu, cuda or auto: the GPU where there is one.")] = "auto",
    explain: Annotated[bool, typer.Option("--explain", help="Say what each number means.")] = False,
) -> None:
    """Measure how honest a classifier's probabilities are, from its predictions.

    A .npz or .safetensors file holds logits (n, classes) and labels (n,),
    whole numbers from 0, under these names. A .csv or .parquet file has a
    column label, and a column for each class: class_0, class_1 … or 0, 1 …
    If there are other columns, or other names, name the classes: --classes.
    A .parquet may have the logits of a sample as a list in a column logits.
    With --probabilities the name is probabilities instead of logits.

    In Python: numpy.savez("test.npz", logits=logits, labels=labels)

    orthograd evaluate test.npz --fit-temperature held-out.npz
    orthograd evaluate sgd.npz orthograd.npz

    The first also evaluates with the temperature that suits other predictions
    of the same model best; the second compares two models, sample by sample.
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
            warnings.simplefilter("ignore", InputWarning)  # a note says the same
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
    """Columns as in cat,"dog, big"."""
    try:
        return next(csv.reader([classes], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise ValueError(f"expected --classes as names with commas between them, got {classes!r}: {error}") from error


def _written(results: Results, folder: Path) -> list[Path]:
    """Write the numbers to evaluation.json and the reliability diagrams to reliability.png in the folder."""
    from ..calibration.files.record import as_record
    from ..figures.reliability import reliability_figure
    from ..figures.style import save_figure
    from ..lab.files import replacing, write_text

    text = json.dumps(as_record(results), indent=1, ensure_ascii=False, allow_nan=False)
    record, figure = write_text(folder / "evaluation.json", text + "\n"), folder / "reliability.png"
    with replacing(figure) as unfinished:
        save_figure(reliability_figure({column.name: column.curve for column in results.columns}), unfinished)
    return [record, figure]
