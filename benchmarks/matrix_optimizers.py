"""⊥Grad with optimizers that orthogonalize or precondition matrices: before their step, or after it.

Muon, SOAP and Shampoo change the direction of a gradient, so that they can make an update of an orthogonal gradient
that is not orthogonal. Compared are no ⊥Grad, `project="gradient"` (before) and `project="update"` (after): an MLP on
scikit-learn's digits, and a small byte-level transformer on the text of Python's language reference. Runs of a seed
share initial weights and batches. The rate of an optimizer is the best of `RATES` without ⊥Grad, by the test loss of
seeds that are not used again; then again with the best rate of each projection. About half an hour on two cores:

    python benchmarks/matrix_optimizers.py --record docs/results/matrix-optimizers.json
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from pydoc_data.topics import topics
from statistics import fmean
from typing import Any

import pytorch_optimizer
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import orthograd
from orthograd import calibration
from orthograd.paper.studies.when_it_hurts import environment

RATES, TUNING_SEEDS = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1), (100, 101)
PROJECTIONS = ("none", "gradient", "update")
METRICS = ("top1_accuracy", "loss", "ece", "max_softmax")
CONTEXT, WIDTH, LAYERS, HEADS, BYTES = 32, 64, 2, 4, 128
STEPS, BATCH = 300, 32

Batch = tuple[Tensor, Tensor]


class Transformer(nn.Module):
    """A byte-level language model."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(BYTES, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, BYTES)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch · length, bytes) of the next byte."""
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.bytes(tokens) + self.places(torch.arange(length))
        return self.head(self.layers(hidden, mask=mask, is_causal=True)).flatten(0, 1)  # type: ignore[no-any-return]


def mlp() -> nn.Module:
    """A network for digits."""
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))


@dataclass(frozen=True)
class Run:
    """One training run."""

    task: str
    optimizer: str
    rate: float
    projection: str
    seed: int


def digits(seed: int) -> tuple[Callable[[torch.Generator], Batch], Batch]:
    """Random batches of 300 digits, and the others for testing."""
    data = load_digits()
    images, labels = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    train, test = order[:300], order[300:]

    def batch(generator: torch.Generator) -> Batch:
        chosen = train[torch.randint(len(train), (BATCH,), generator=generator)]
        return images[chosen], labels[chosen]

    return batch, (images[test], labels[test])


def text(_seed: int) -> tuple[Callable[[torch.Generator], Batch], Batch]:
    """Random pieces of the first nine tenths of the text, and pieces of the rest for testing."""
    whole = "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "ignore")
    tokens = torch.tensor(list(whole))
    train, test = tokens[: len(tokens) * 9 // 10], tokens[len(tokens) * 9 // 10 :]

    def pieces(source: Tensor, starts: Tensor) -> Batch:
        windows = source[starts[:, None] + torch.arange(CONTEXT + 1)]
        return windows[:, :-1], windows[:, 1:].flatten()

    def batch(generator: torch.Generator) -> Batch:
        return pieces(train, torch.randint(len(train) - CONTEXT, (BATCH,), generator=generator))

    return batch, pieces(test, torch.arange(0, len(test) - CONTEXT, CONTEXT)[:300])


TASKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[Callable[[torch.Generator], Batch], Batch]]]] = {
    "digits": (mlp, digits),
    "text": (Transformer, text),
}
OPTIMIZERS: dict[str, Callable[[list[nn.Parameter], float], torch.optim.Optimizer]] = {
    "Muon": lambda matrices, rate: torch.optim.Muon(
        matrices, lr=rate, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"
    ),
    "SOAP": lambda matrices, rate: pytorch_optimizer.SOAP(matrices, lr=rate, weight_decay=0.0),
    "Shampoo": lambda matrices, rate: pytorch_optimizer.ScalableShampoo(matrices, lr=rate, weight_decay=0.0),
}
"""Made for the matrices of hidden layers. AdamW trains the rest, at the same rate."""


def optimizers_of(run: Run, model: nn.Module) -> list[torch.optim.Optimizer]:
    """The optimizer of the run for hidden matrices, with ⊥Grad if it has any, and AdamW without it for the rest."""
    outer = ("bytes", "places", "head")
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and not name.startswith(outer)]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or name.startswith(outer)]
    optimizer = OPTIMIZERS[run.optimizer](matrices, run.rate)
    if run.projection != "none":
        orthograd.attach(optimizer, project=run.projection)
    return [optimizer, torch.optim.AdamW(others, lr=run.rate, weight_decay=0.0)]


def trained(run: Run) -> dict[str, float] | None:
    """Train once; metrics on the test data, and the growth of the matrices. None if it diverged."""
    torch.set_num_threads(1)
    network, data = TASKS[run.task]
    batch, (inputs, targets) = data(run.seed)
    torch.manual_seed(run.seed)
    model, generator = network(), torch.Generator().manual_seed(run.seed)
    optimizers = optimizers_of(run, model)
    matrices = optimizers[0].param_groups[0]["params"]
    before = _norm(matrices)
    for _ in range(STEPS):
        seen, wanted = batch(generator)
        model.zero_grad()
        cross_entropy(model(seen), wanted).backward()
        for optimizer in optimizers:
            optimizer.step()
    model.eval()
    with torch.no_grad():
        logits = model(inputs).double()
    if not logits.isfinite().all():
        return None
    metrics = calibration.evaluate(logits, targets, metrics=METRICS).as_row()
    values = {name: metrics[name] for name in METRICS} | {"growth": _norm(matrices) / before}
    return {name: float(f"{value:.5g}") for name, value in values.items()}


def _norm(parameters: Iterable[Tensor]) -> float:
    return float(sum(p.detach().square().sum() for p in parameters)) ** 0.5


def loss_of(run: Run) -> float:
    """The test loss of a run; infinite if it diverged."""
    metrics = trained(run)
    return math.inf if metrics is None else metrics["loss"]


def tuned(pool: ProcessPoolExecutor, base: Run) -> float:
    """The rate with the lowest test loss, over seeds that are not used again."""
    runs = [replace(base, rate=rate, seed=seed) for rate, seed in product(RATES, TUNING_SEEDS)]
    losses = list(pool.map(loss_of, runs))
    means = [fmean(losses[i : i + len(TUNING_SEEDS)]) for i in range(0, len(losses), len(TUNING_SEEDS))]
    return min(zip(means, RATES, strict=True))[1]


def cell(pool: ProcessPoolExecutor, task: str, optimizer: str, seeds: int) -> dict[str, Any]:
    """The runs by projection: ``shared`` at the rate that is best without ⊥Grad, ``own`` at the best of each."""
    bases = {each: Run(task, optimizer, 0.0, each, 0) for each in PROJECTIONS}
    own = {each: replace(base, rate=tuned(pool, base)) for each, base in bases.items()}
    shared = {each: replace(base, rate=own["none"].rate) for each, base in bases.items()}

    def trained_all(base: Run) -> dict[str, Any]:
        runs = [replace(base, seed=seed) for seed in range(seeds)]
        return {"rate": base.rate, "runs": list(pool.map(trained, runs))}

    return {
        name: {each: trained_all(base) for each, base in by.items()} for name, by in (("shared", shared), ("own", own))
    }


def record(seeds: int) -> dict[str, Any]:
    """The runs by task, optimizer and projection, with the rates and the environment."""
    cells: dict[str, dict[str, Any]] = {task: {} for task in TASKS}
    with ProcessPoolExecutor(2) as pool:
        for task, optimizer in product(TASKS, OPTIMIZERS):
            made = cells[task][optimizer] = cell(pool, task, optimizer, seeds)
            rates = ", ".join(f"{each} {runs['rate']:g}" for each, runs in made["own"].items())
            print(f"{task}, {optimizer}: best rates {rates}", flush=True)
    packages = {"pytorch_optimizer": version("pytorch_optimizer")}
    return {"environment": {**environment(), **packages}, "steps": STEPS, "cells": cells}


def main() -> None:
    """Run everything and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds (default: 10)")
    options = parser.parse_args()
    options.record.write_text(json.dumps(record(options.seeds), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
