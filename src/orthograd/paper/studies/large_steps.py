"""⊥Grad at larger learning rates: the norm of the head, and whether the network still learns.

Scikit-learn's digits, ten images per class, the recipe of `orthograd compare` except learning rate and epochs. Warm-up
raises the rate linearly from zero. Runs of a seed share their images, initial weights and batches. Where runs fail,
they are repeated with ⊥Grad on single layer types, and with a hidden layer whose units cannot die. About 15 minutes
on two cores:

    python -m orthograd.paper.studies.large_steps --record docs/results/large-steps.json
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ... import calibration
from ...lab.networks import MODELS
from ...lab.runs.prediction import logits
from ...lab.training.batches import Draws
from ...lab.training.config import Config
from ...lab.training.layers import parameters_of
from ...lab.training.methods import method_named
from ...lab.training.steps import EagerSteps, set_rate
from ...lab.training.task import Task
from .when_it_hurts import PLAIN, WITH_NORM, environment

EPOCHS, WARM_UP = 100, 10
NETWORKS = {"plain CNN": PLAIN, "CNN with batch norm": WITH_NORM}
CASES = {
    f"{network}, rate {rate:g}{', warm-up' if warm_up else ''}": (replace(config, learning_rate=rate), warm_up)
    for network, config in NETWORKS.items()
    for rate, warm_up in ((0.01, 0), (0.03, 0), (0.06, 0), (0.1, 0), (0.1, WARM_UP))
}
METHODS = ("baseline", "orthograd", "orthograd_skip_1d", "orthograd_update", "orthograd_update_skip_1d")
FAILING = "CNN with batch norm, rate 0.1"
LAYER_TYPES = (
    "orthograd_head",
    "orthograd_norm_weight",
    "orthograd_norm_bias",
    "orthograd_convolution",
    "orthograd_row",
)
HIDDEN = {f"{FAILING}, leaky": "leaky", f"{FAILING}, norm in the hidden layer": "normed"}
"""Cases whose hidden units cannot die, and the functions below that make their networks."""
CASES |= {
    case: (replace(WITH_NORM, model=f"orthograd.paper.studies.large_steps:{function}", learning_rate=0.1), 0)
    for case, function in HIDDEN.items()
}
WANTED = dict.fromkeys(CASES, METHODS) | {FAILING: METHODS + LAYER_TYPES}
"""The methods that are run, by case."""
KEPT = ("top1_accuracy", "loss", "ece", "max_softmax", "max_logit")


def leaky(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """The BatchNorm network with leaky ReLU, so that a hidden unit that is off still learns."""
    return _with_hidden(shape, classes, nn.LeakyReLU(0.1))


def normed(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """The BatchNorm network with BatchNorm in the hidden layer too, so that about half of the images turn a unit on."""
    return _with_hidden(shape, classes, nn.BatchNorm1d(64), nn.ReLU())


def _with_hidden(shape: tuple[int, int, int], classes: int, *activation: nn.Module) -> nn.Module:
    *layers, _, head = MODELS["cnn_batchnorm"](shape, classes).children()
    return nn.Sequential(*layers, *activation, head)


def end_of(config: Config, warm_up: int) -> dict[str, float | None]:
    """The final state of a run: training losses, norms of its weights, and metrics on the test images."""
    torch.set_num_threads(1)
    task, method, order = Task.of(config), method_named(config.method), torch.Generator().manual_seed(config.seed)
    losses = []
    steps = EagerSteps(config, task)
    for epoch in range(1, EPOCHS + 1):
        set_rate(steps.optimizer, config.learning_rate * min(1.0, epoch / max(1, warm_up)))
        losses.append(steps.epoch(Draws.of(config, method, len(task.labels), order)))
    with torch.no_grad():
        model, data = steps.model.eval(), task.dataset
        assert isinstance(model, nn.Sequential)
        scales = [layer.weight for layer in model if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
        norms = {"head": norm_of(parameters_of(model, "head")), "scales": norm_of(scales)}
        hidden = model[:-1](data.normalized(task.images))
        tested = logits(model, data, data.test_images, config)
    metrics: dict[str, Any] = dict.fromkeys(KEPT)
    if tested.isfinite().all():
        metrics = calibration.evaluate(tested, data.test_labels, bins=10, metrics=KEPT).as_row()
    learned = {
        "highest_training_loss": max(filter(math.isfinite, losses)),
        "training_loss": losses[-1],
        **norms,
        "off": share_off(hidden),
    }
    return {name: rounded(value) for name, value in (learned | {name: metrics[name] for name in KEPT}).items()}


def norm_of(parameters: Iterable[Tensor]) -> float:
    """The norm of all parameters together; 0 where there are none."""
    return float(torch.cat([torch.zeros(1), *(each.flatten() for each in parameters)]).norm())


def share_off(hidden: Tensor) -> float:
    """The share of hidden units that no training image turns on."""
    return float((hidden.amax(0) <= 0).float().mean())


def rounded(value: float | None) -> float | None:
    """The value with five digits; None where a diverged run has none."""
    return float(f"{value:.5g}") if value is not None and math.isfinite(value) else None


def main() -> None:
    """Run all cases and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds (default: 10)")
    options = parser.parse_args()
    wanted = [(case, *rest) for case, methods in WANTED.items() for rest in product(methods, range(options.seeds))]
    configs = [replace(CASES[case][0], method=method, seed=seed) for case, method, seed in wanted]
    runs: dict[str, dict[str, list[Any]]] = {
        case: {method: [] for method in methods} for case, methods in WANTED.items()
    }
    with ProcessPoolExecutor(2) as pool:
        ends = pool.map(end_of, configs, [CASES[case][1] for case, _, _ in wanted])
        for (case, method, seed), end in zip(wanted, ends, strict=True):
            runs[case][method].append(end)
            print(case, method, seed, end, flush=True)
    record = {"environment": environment(), "epochs": EPOCHS, "warm_up": WARM_UP, "runs": runs}
    text = json.dumps(record, ensure_ascii=False).replace('{"highest', '\n{"highest')
    options.record.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
