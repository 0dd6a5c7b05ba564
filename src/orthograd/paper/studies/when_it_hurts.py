"""Training with and without ⊥Grad, evaluated after several epochs as if training had stopped there.

Scikit-learn's digits, ten images per class, the recipe of `orthograd compare`. Its learning rate is constant, so
stopping early is the same as shorter training. With a cosine schedule only the last epoch is a realistic end. Runs of a
seed share their images, initial weights and batches. docs/figures/method.svg shows some of these runs. Ten to thirty
minutes on two cores:

    python -m orthograd.paper.studies.when_it_hurts --record docs/results/when.json
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from ... import calibration
from ...lab.runs.prediction import logits
from ...lab.training.batches import Draws
from ...lab.training.config import Config
from ...lab.training.methods import method_named
from ...lab.training.steps import EagerSteps, set_rate
from ...lab.training.task import Task
from ...lab.versions import versions

EPOCHS = (1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 56, 80, 110, 150, 210, 300)
PLAIN = Config(model="cnn", shifts="none")
WITH_NORM = replace(PLAIN, model="cnn_batchnorm")
ADAM: dict[str, Any] = {"optimizer": "adamw", "learning_rate": 0.001, "weight_decay": 0.01}
CASES = {
    "plain CNN": (PLAIN, "baseline", "orthograd"),
    "CNN with batch norm": (WITH_NORM, "baseline", "orthograd"),
    "plain CNN, falling rate": (replace(PLAIN, schedule="cosine"), "baseline", "orthograd"),
    "CNN with batch norm, falling rate": (replace(WITH_NORM, schedule="cosine"), "baseline", "orthograd"),
    "plain CNN, no weight decay": (replace(PLAIN, weight_decay=0.0), "baseline", "orthograd"),
    "CNN with batch norm, no weight decay": (replace(WITH_NORM, weight_decay=0.0), "baseline", "orthograd"),
    "plain CNN, ten times the decay": (replace(PLAIN, weight_decay=5e-3), "baseline", "orthograd"),
    "CNN with batch norm, ten times the decay": (replace(WITH_NORM, weight_decay=5e-3), "baseline", "orthograd"),
    "plain CNN, ten times the decay, on convolutions only": (
        replace(PLAIN, weight_decay=5e-3),
        "decay_conv_only",
        "decay_conv_only_orthograd",
    ),
    "CNN with batch norm, ten times the decay, on convolutions only": (
        replace(WITH_NORM, weight_decay=5e-3),
        "decay_conv_only",
        "decay_conv_only_orthograd",
    ),
    "plain CNN, its head alone": (PLAIN, "baseline", "orthograd_head"),
    "CNN with batch norm, its head alone": (WITH_NORM, "baseline", "orthograd_head"),
    "plain CNN, AdamW": (replace(PLAIN, **ADAM), "baseline", "orthograd"),
    "plain CNN, AdamW's update": (replace(PLAIN, **ADAM), "baseline", "orthograd_update"),
    "CNN with batch norm, AdamW": (replace(WITH_NORM, **ADAM), "baseline", "orthograd"),
    "CNN with batch norm, AdamW's update": (replace(WITH_NORM, **ADAM), "baseline", "orthograd_update"),
    "plain CNN, label smoothing": (PLAIN, "label_smoothing", "label_smoothing_orthograd"),
    "plain CNN, focal loss": (PLAIN, "focal", "focal_orthograd"),
    "plain CNN, last batch weighted": (replace(PLAIN, last_batch="weighted"), "baseline", "orthograd"),
    "CNN with batch norm, last batch weighted": (replace(WITH_NORM, last_batch="weighted"), "baseline", "orthograd"),
    "CNN with batch norm, last batch on running statistics": (
        replace(WITH_NORM, last_batch="running_statistics"),
        "baseline",
        "orthograd",
    ),
}
"""Configuration, baseline and candidate by case. SGD makes the plain CNN overconfident, the BatchNorm CNN hardly. Both
are also run with a cosine schedule, without weight decay, with ten times the decay (on all parameters or convolutions
only), with ⊥Grad on the last layer only, and with AdamW (⊥Grad of the gradient or of the update). Label smoothing and
focal loss keep the plain CNN underconfident. The last batch has 4 of the 100 images, the others 32."""
KEPT = ("top1_accuracy", "loss", "ece", "entropy", "max_softmax", "max_logit")


def history(config: Config) -> dict[str, list[float]]:
    """Metrics of a run after each of `EPOCHS`: a list of values by name."""
    torch.set_num_threads(1)
    task, method, order = Task.of(config), method_named(config.method), torch.Generator().manual_seed(config.seed)
    moments = []
    steps = EagerSteps(config, task)
    for epoch in range(1, EPOCHS[-1] + 1):
        set_rate(steps.optimizer, config.rate_in(epoch - 1))
        loss = steps.epoch(Draws.of(config, method, len(task.labels), order))
        if epoch in EPOCHS:
            moments.append({"training_loss": loss, **evaluated(steps.model, task, config)})
    return {name: [float(f"{values[name]:.5g}") for values in moments] for name in moments[0]}


@torch.no_grad()
def evaluated(model: nn.Module, task: Task, config: Config) -> dict[str, Any]:
    """Metrics on the test images, the loss on held-out images, and the ECE after temperature scaling on those."""
    model.eval()
    tested, held_out = (
        logits(model, task.dataset, images, config) for images in (task.dataset.test_images, task.held_out_images)
    )
    model.train()
    labels = task.dataset.test_labels
    fit = calibration.fit_temperatures(held_out[None], task.held_out_labels)[0]
    scaled = calibration.evaluate(tested.double() / fit.temperature, labels, bins=10, metrics=["ece"]).as_row()
    metrics = calibration.evaluate(tested, labels, bins=10, metrics=KEPT).as_row()
    stopping = {"held_out_loss": float(cross_entropy(held_out.double(), task.held_out_labels))}
    repaired = {"temperature": float(fit.temperature), "ece_scaled": scaled["ece"]}
    return {**{name: metrics[name] for name in KEPT}, **stopping, **repaired}


def record(seeds: Sequence[int], cases: Sequence[str]) -> dict[str, Any]:
    """The runs of these cases, with their environment."""
    keys = [(case, method) for case in cases for method in CASES[case][1:]]
    configs = [replace(CASES[case][0], seed=seed, method=method) for (case, method), seed in product(keys, seeds)]
    with ProcessPoolExecutor(2) as pool:
        histories = []
        for config, run in zip(configs, pool.map(history, configs), strict=True):
            histories.append(run)
            print(f"{len(histories)} of {len(configs)}:", config.model, config.method, config.seed, flush=True)
    runs: dict[str, dict[str, Any]] = {case: {} for case in cases}
    for i, (case, method) in enumerate(keys):
        runs[case][method] = histories[i * len(seeds) : (i + 1) * len(seeds)]
    return {"environment": environment(), "epochs": EPOCHS, "seeds": list(seeds), "runs": runs}


def environment() -> dict[str, Any]:
    """Return the versions and the machine that a record is made with."""
    return {**versions(), "device": f"{platform.machine()} CPU", "threads": 1}


def main() -> None:
    """Run the cases and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds (default: 10)")
    parser.add_argument(
        "--only", default="", help="run only cases whose name contains this; the record keeps the others"
    )
    options = parser.parse_args()
    made = record(range(options.seeds), [case for case in CASES if options.only in case])
    if options.only:
        before = json.loads(options.record.read_text(encoding="utf-8"))
        sources = [each["environment"].pop("source", "not recorded") for each in (before, made)]
        facts = {name: value for name, value in json.loads(json.dumps(made)).items() if name != "runs"}
        if facts != {name: value for name, value in before.items() if name != "runs"}:
            parser.error("expected a record with the same machine, versions and seeds")
        together = before["runs"] | made["runs"]
        made["runs"] = {case: together[case] for case in CASES}
        made["environment"]["source"] = ", ".join(dict.fromkeys(sources))
    text = json.dumps(made, ensure_ascii=False)
    options.record.write_text(text.replace('{"training_loss"', '\n{"training_loss"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
