"""The command ``orthograd evaluate``: calibration of anyone's logits and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from ..imports import require


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
    from ..calibration.files.evaluation import Settings
    from .evaluation import Names, printed_evaluation  # with torch, which help does not wait for

    printed_evaluation(
        files,
        fit_temperature or [],
        Settings(bins=bins, resamples=resamples, seed=seed),
        Names(scores_key, labels_key, classes, probabilities=probabilities),
        out=out,
        device=device,
        explain=explain,
    )
