"""The command ``orthograd compare``: the same networks trained with and without ⊥Grad, and a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from ..training import ARMS, Config

DEFAULT = Config()


def compare(
    seeds: Annotated[int, typer.Option(min=2, help="Seeds of each arm; runs that share a seed are pairs.")] = 10,
    candidate: Annotated[
        str, typer.Option(help=f"What to compare with the baseline: {', '.join(ARMS)}.")
    ] = "orthograd",
    baseline: Annotated[str, typer.Option(help="What to compare it with.")] = "baseline",
    dataset: Annotated[str, typer.Option(help="digits, or package.module:function.")] = DEFAULT.dataset,
    model: Annotated[str, typer.Option(help="cnn, cnn_batchnorm, mlp, or package.module:function.")] = DEFAULT.model,
    labels_per_class: Annotated[int, typer.Option(min=0, help="Training images a class; 0: all.")] = (
        DEFAULT.labels_per_class
    ),
    epochs: Annotated[int, typer.Option(min=1)] = DEFAULT.epochs,
    batch_size: Annotated[int, typer.Option(min=1)] = DEFAULT.batch_size,
    optimizer: Annotated[str, typer.Option(help="sgd or adamw.")] = DEFAULT.optimizer,
    learning_rate: Annotated[float, typer.Option()] = DEFAULT.learning_rate,
    momentum: Annotated[float, typer.Option(help="Of sgd.")] = DEFAULT.momentum,
    weight_decay: Annotated[float, typer.Option()] = DEFAULT.weight_decay,
    out: Annotated[Path, typer.Option(help="Folder for the runs, tables and figures.")] = Path("comparison"),
    workers: Annotated[Optional[int], typer.Option(min=1, help="Processes; one a core if not given.")] = None,  # noqa: UP045 typer reads it on 3.10
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and how long it takes.")] = False,
) -> None:
    """Train the same network with and without ⊥Grad over seeds, and test the difference.

    Both runs of a seed share their few training images, their initial weights
    and the order of their batches, so they are pairs. Each is evaluated on
    clean test images and on shifted ones at five severities, as it is and
    after temperature scaling. What is finished is never done again: stop with
    Ctrl-C and repeat the command to go on.

    orthograd compare
    orthograd compare --model cnn_batchnorm --out batchnorm
    orthograd compare --candidate label_smoothing
    orthograd compare --model mypackage.nets:small --dataset mypackage.data:mine
    """
    from ..experiment import StoreError
    from .comparing import compared  # with scipy and matplotlib, which no other command waits for

    try:
        base = Config(
            dataset=dataset,
            model=model,
            labels_per_class=labels_per_class,
            epochs=epochs,
            batch_size=batch_size,
            optimizer=optimizer,
            learning_rate=learning_rate,
            momentum=momentum,
            weight_decay=weight_decay,
        )
        code = compared(base, (baseline, candidate), seeds=seeds, folder=out, workers=workers, dry_run=dry_run)
    except (ValueError, TypeError, OSError, StoreError) as error:
        typer.echo(f"orthograd compare: {error}", err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(code)
