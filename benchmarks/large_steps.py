"""What a larger learning rate does to ⊥Grad: how long the head gets, and whether the network still learns.

Scikit-learn's digits, ten images a class, the recipe of `orthograd compare` but for rate and epochs. A warm-up raises
the rate from nothing, linearly. Runs of a seed share their images, initial weights and batches. Some ten minutes on two
cores.
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch
from when_it_hurts import PLAIN, WITH_NORM, environment

from orthograd import calibration
from orthograd.training import Task
from orthograd.training.arms import arm_named
from orthograd.training.draws import Draws
from orthograd.training.layers import parameters_of
from orthograd.training.objective import set_rate
from orthograd.training.prediction import logits
from orthograd.training.steps import steps_of

EPOCHS, WARM_UP = 100, 10
NETWORKS = {"plain CNN": PLAIN, "CNN with batch norm": WITH_NORM}
CASES = {
    f"{network}, rate {rate:g}{', warm-up' if warm_up else ''}": (replace(config, learning_rate=rate), warm_up)
    for network, config in NETWORKS.items()
    for rate, warm_up in ((0.01, 0), (0.03, 0), (0.06, 0), (0.1, 0), (0.1, WARM_UP))
}
ARMS = ("baseline", "orthograd", "orthograd_weight", "orthograd_update", "orthograd_update_weight")


def end_of(config, warm_up):
    """What became of a run: how it learned, how long its head got, and how it does on the test images."""
    torch.set_num_threads(1)
    task, arm, order = Task.of(config), arm_named(config.arm), torch.Generator().manual_seed(config.seed)
    losses = []
    with steps_of(config, task) as steps:
        for epoch in range(1, EPOCHS + 1):
            set_rate(steps.optimizer, config.learning_rate * min(1.0, epoch / max(1, warm_up)))
            losses.append(steps.epoch(Draws.of(config, arm, len(task.labels), order)))
        head = torch.cat([parameter.detach().flatten() for parameter in parameters_of(steps.model, "head")]).norm()
        with torch.no_grad():
            tested = logits(steps.model.eval(), task.dataset, task.dataset.test_images, config)
    kept = ("top1_accuracy", "loss", "ece", "max_softmax", "max_logit")
    found = calibration.evaluate(tested, task.dataset.test_labels, bins=10, metrics=kept).as_row()
    story = {"highest_training_loss": max(losses), "training_loss": losses[-1], "head": float(head)}
    return {name: float(f"{value:.5g}") for name, value in (story | {name: found[name] for name in kept}).items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, required=True, help="a JSON file for what was found")
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    wanted = list(product(CASES, ARMS, range(options.seeds)))
    configs = [replace(CASES[case][0], arm=arm, seed=seed) for case, arm, seed in wanted]
    runs = {case: {arm: [] for arm in ARMS} for case in CASES}
    with ProcessPoolExecutor(2) as pool:
        ends = pool.map(end_of, configs, [CASES[case][1] for case, _, _ in wanted])
        for (case, arm, seed), found in zip(wanted, ends, strict=True):
            runs[case][arm].append(found)
            print(case, arm, seed, found, flush=True)
    record = {"environment": environment(), "epochs": EPOCHS, "warm_up": WARM_UP, "runs": runs}
    text = json.dumps(record, ensure_ascii=False).replace('{"highest', '\n{"highest')
    options.record.write_text(text + "\n", encoding="utf-8")
