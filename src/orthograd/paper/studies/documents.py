"""The tables of README.md, docs/ and notes/, and two figures of docs/, from the committed records: `make tables`.

Only the text between the marks of a table is replaced. `orthograd.paper.document` writes the pages of the reproduction.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from ...calibration import CONVENTIONS
from ...lab.bench import document, training_tables
from ...lab.bench.claim import EPOCH_IMAGES
from ...lab.jobs.bundles import read_bundles
from ...lab.networks import resnet18
from ...statistics.table import markdown_table
from ..evidence import shares
from ..grokking import page as grokking
from . import advice, last_batch, lora, matrix_optimizers, method_tables, norms, pooled_runs
from .method_figure import method_figure

BATCH, RUNS, IMAGES_A_RUN = 64, 40, 100 * EPOCH_IMAGES
BF16_RATE = 790e12  # assumed, not measured: the reported rate of large matrix products on an H200
DIGITS_METRICS = ("top1_accuracy", "loss", "ece", "ece_by_chance", "ece_by_chance_limit", "smooth_ece", "brier", "aurc")
TABLE_1 = (
    ("tf32", "clean", "table1-tf32", 10),
    ("bf16", "clean", "more-seeds-bf16", 5),
    ("tf32", "clean and corrupted", "table1-tf32-corrupted", None),
    ("bf16", "clean and corrupted", "table1-bf16", None),
)
"""Runs of the paper's recipe: precision, test images, folder of records, and target in minutes."""


def conventions(_results: Path) -> str:
    """The definition of each metric."""
    rows = []
    for name, convention in CONVENTIONS.items():
        definition = convention.definition.format(bins=10, k=5)
        rows.append([f"`{name}`", definition, convention.unit, convention.better or ""])
    return markdown_table(["metric", "what it is", "unit", "better"], rows)


def digits(results: Path) -> str:
    """The example's metrics, from the record that `orthograd evaluate` wrote."""
    rows = []
    for file in json.loads((results / "digits/evaluation.json").read_text(encoding="utf-8"))["files"]:
        name = file["path"].removesuffix("-test.npz")
        name += "" if file["temperature"] is None else f", T = {file['temperature']['value']:.2f}"
        values = (f"{file['metrics'][metric]:.{CONVENTIONS[metric].digits}f}" for metric in DIGITS_METRICS)
        rows.append([name, *values])
    return markdown_table(["network", *(f"`{name}`" for name in DIGITS_METRICS)], rows)


def whole(results: Path) -> str:
    """The time of the runs of table 1; concurrent runs share it."""
    rows = []
    for precision, images, folder, target in TABLE_1:
        seconds = [sum(share.values()) for share in shares(list(read_bundles(results / folder).values()))]
        each = sum(seconds) / len(seconds)
        minutes = each * RUNS / 60
        bound = "" if target is None else f"≤ {target}" + ("" if minutes <= target else ", **missed**")
        shown = str(len(seconds)), f"{sum(seconds) / 60:.1f}", f"{each:.1f}", f"{minutes:.1f}"
        rows.append([precision, images, *shown, bound])
    columns = ["runs", "minutes", "seconds per run", f"minutes for {RUNS} at that pace", "target"]
    return markdown_table(["precision", "evaluated on", *columns], rows)


def floors(_results: Path) -> str:
    """The least time of table 1 on a GPU that only does its matrix products."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        resnet18((3, 32, 32), 10)(torch.empty(1, 3, 32, 32))
    forward = counter.get_total_flops()
    total = 3 * forward * IMAGES_A_RUN * RUNS  # the backward pass has two products for each of the forward pass
    rows = [
        ["forward pass of an image", f"{forward / 1e9:.2f} GFLOP"],
        [f"step of training, {BATCH} images", f"{3 * BATCH * forward / 1e9:.0f} GFLOP"],
        [f"{RUNS} runs of 100 epochs", f"{total / 1e15:.0f} PFLOP"],
        [f"the same at {BF16_RATE / 1e12:.0f} TFLOP/s, the rate assumed for bf16", f"{total / BF16_RATE:.0f} s"],
    ]
    return markdown_table(["ResNet-18 for 32 × 32", "additions and multiplications counted separately"], rows)


Maker = Callable[[Path], str]
DOCUMENTS: dict[str, Sequence[Maker]] = {
    "README.md": (grokking.grokking_short, advice.advice_short, advice.table1, document.costs),
    "docs/should-i-use-it.md": (
        advice.advice,
        pooled_runs.table1_sets,
        pooled_runs.corrupted_scaled,
        advice.comparisons,
    ),
    "docs/last-batch.md": (
        last_batch.last_batch,
        last_batch.last_batch_why,
        last_batch.last_batch_digits,
        last_batch.last_batch_elsewhere,
        last_batch.last_batch_predictions,
    ),
    "docs/norms.md": (
        norms.norms,
        norms.norms_predicted,
        norms.norms_predictions,
        norms.norms_warnings,
        norms.norms_limit,
    ),
    "docs/grokking.md": (
        grokking.grokking_summary,
        document.seeds_costs,
        grokking.grokking_results,
        grokking.grokking_verdicts,
        grokking.grokking_predictions,
    ),
    "docs/method.md": (
        method_tables.expected,
        method_tables.when,
        method_tables.lengths,
        method_tables.large_steps,
        method_tables.hidden_units,
        method_tables.decay_conv_only,
        document.update_cosines,
        method_tables.diagnosed,
        document.recorder_costs,
    ),
    "docs/howto/trainers.md": (lora.lora, lora.lora_predictions),
    "docs/optimizers.md": (
        matrix_optimizers.matrix_optimizers,
        matrix_optimizers.matrix_optimizers_own,
        matrix_optimizers.matrix_optimizer_predictions,
    ),
    "docs/performance.md": (
        document.answer,
        document.loop_costs,
        document.step_costs,
        document.fused_costs,
        document.memory_costs,
        document.metrics_costs,
        document.training_speeds,
    ),
    "notes/performance.md": (
        whole,
        floors,
        training_tables.speeds,
        training_tables.concurrent_runs,
        training_tables.bounds,
        training_tables.overheads,
        training_tables.products,
        training_tables.kernels,
        training_tables.evaluation,
    ),
    "docs/calibration.md": (conventions, digits, document.calibration_costs),
    "docs/scale.md": (document.distributed_steps, document.ray_costs),
}
END = "<!-- end -->\n"


def with_tables(text: str, makers: Sequence[Maker], results: Path) -> str:
    """The text with each maker's table between its marks.

    >>> print(with_tables("<!-- a: written by make tables -->\\nold\\n<!-- end -->\\n", [], Path()), end="")
    <!-- a: written by make tables -->
    old
    <!-- end -->
    """
    for maker in makers:
        begin = f"<!-- {maker.__name__}: written by make tables -->\n"
        head, rest = text.split(begin)
        text = head + begin + maker(results) + END + rest.split(END, 1)[1]
    return text


def expected_files(root: Path) -> dict[Path, str]:
    """Every file with such tables, and the figures, with the text that the records give."""
    results = root / "docs/results"
    texts = {root / name: (root / name).read_text(encoding="utf-8") for name in DOCUMENTS}
    made = {root / name: with_tables(texts[root / name], makers, results) for name, makers in DOCUMENTS.items()}
    record = json.loads((results / "when.json").read_text(encoding="utf-8"))
    figures = {"method": method_figure(record), "norms": norms.norms_figure(results)}
    return {**made, **{root / f"docs/figures/{name}.svg": figure for name, figure in figures.items()}}


def main() -> None:
    """Write all files."""
    parser = argparse.ArgumentParser(prog="python -m orthograd.paper.studies.documents", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout (default: the current folder)")
    root = parser.parse_args().root
    for path, text in expected_files(root).items():
        path.write_text(text, encoding="utf-8")
        print(path)
    for path in grokking.committed_figures(root / "docs/results", root / "docs/figures/grokking"):
        print(path)


if __name__ == "__main__":
    main()
