"""The command ``orthograd evaluate``: calibration of anyone's logits and labels."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NoReturn, Optional

import typer
from rich.console import Console
from rich.text import Text

from ..predictions_file import PredictionsFile, read_predictions
from .computing import evaluated
from .devices import device_named
from .record import write_figure, write_record
from .results import Results, Settings
from .table import explanations, notes, tables


def evaluate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", show_default=False, help="Predictions to evaluate.")],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="The files hold probabilities, not logits.")
    ] = False,
    scores_key: Annotated[Optional[str], typer.Option(help="Name of the scores, if it is another one.")] = None,  # noqa: UP045 typer reads it on 3.10
    labels_key: Annotated[Optional[str], typer.Option(help="Name of the labels, if it is another one.")] = None,  # noqa: UP045
    bins: Annotated[int, typer.Option(min=1, help="Bins of equal width.")] = 10,
    fit_temperature: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="Fit a temperature on these held-out predictions and evaluate with it too. "
            "Once for all files, or once for each, in order.",
        ),
    ] = None,
    resamples: Annotated[int, typer.Option(min=0, help="Bootstrap resamples for the intervals; 0 for none.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resamples.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for evaluation.json and reliability.png.")] = Path("evaluation"),
    device: Annotated[str, typer.Option(help="cpu, cuda or auto: the GPU where there is one.")] = "auto",
    explain: Annotated[bool, typer.Option("--explain", help="Say what each number means.")] = False,
) -> None:
    """Measure how honest a classifier's probabilities are, from its predictions.

    A .npz or .safetensors file holds logits (n, classes) and labels (n,),
    whole numbers from 0, under these names. A .csv or .parquet file has a
    column label, and every other column is a class, in order; a .parquet may
    have the logits of a sample as a list in a column logits instead.
    With --probabilities the name is probabilities instead of logits.

    In Python: numpy.savez("test.npz", logits=logits, labels=labels)

    orthograd evaluate test.npz --fit-temperature held-out.npz
    orthograd evaluate sgd.npz orthograd.npz

    The first also evaluates with the temperature that suits other predictions
    of the same model best; the second compares two models, sample by sample.
    """
    console = Console()
    chosen = device_named(device)

    def read(path: Path) -> PredictionsFile:
        file = read_predictions(path, scores_key=scores_key, labels_key=labels_key, probabilities=probabilities)
        return replace(file, scores=file.scores.to(chosen), labels=file.labels.to(chosen))

    try:
        if find_spec("matplotlib") is None:
            raise ImportError("the figure needs matplotlib: pip install 'orthograd[lab]'")
        with console.status("reading …") as status:
            held_out = [read(path) for path in fit_temperature or ()]
            found = [read(path) for path in files]
            status.update("evaluating …")
            results = evaluated(found, held_out, Settings(bins=bins, resamples=resamples, seed=seed))
            status.update("drawing …")
            written = [write_record(results, out), write_figure(results, out)]
    except (ValueError, OSError, ImportError) as error:
        _refuse(error)
    _print(console, results, written, explain=explain)


def _refuse(error: Exception) -> NoReturn:
    typer.echo(f"orthograd evaluate: {' '.join(str(error).split())}", err=True)
    raise typer.Exit(2)


def _print(console: Console, results: Results, written: list[Path], *, explain: bool) -> None:
    for table in tables(results, width=console.width):
        console.print(table)
    for note in notes(results):
        console.print(Text(note, "dim"))
    if explain:
        for name, meaning in explanations(results):
            console.print(Text.assemble((name, "bold"), f": {meaning}"))
    console.print(Text(f"Written: {', '.join(map(str, written))}"), soft_wrap=True)
