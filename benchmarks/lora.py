"""⊥Grad on the adapters of LoRA: scikit-learn's digits, upright for the base network, rotated for fine-tuning.

A small network learns upright digits. Then peft's adapters learn 200 digits that are rotated by 90°, with ⊥Grad on
none, all, A alone, B alone, or A and B of a layer as one vector. Runs of a seed share images, base network, initial
adapters and batches. A few minutes on two cores:

    python benchmarks/lora.py --record docs/results/lora.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import peft
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import orthograd
from orthograd import calibration
from orthograd.paper.studies.when_it_hurts import environment

BASE_IMAGES, TUNING_IMAGES, BASE_STEPS, STEPS, BATCH = 900, 200, 600, 300, 32
METRICS = ("top1_accuracy", "loss", "ece", "max_softmax")

Samples = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Case:
    """Settings of the adapters."""

    rank: int = 8
    rate: float = 3e-3
    has_magnitudes: bool = False

    @property
    def name(self) -> str:
        """What the record calls it."""
        return f"{'DoRA' if self.has_magnitudes else 'LoRA'}, rank {self.rank}, rate {self.rate:g}"


CASES = (Case(), Case(rate=1e-3), Case(rate=1e-2), Case(rank=1), Case(has_magnitudes=True))
Optimizer = torch.optim.Optimizer


def _attached(optimizer: Optimizer, model: nn.Module, letters: str) -> None:
    """Attach ⊥Grad to the adapters of these letters."""
    names = tuple(f"lora_{letter}" for letter in letters)
    orthograd.attach(optimizer, named_parameters=model.named_parameters(), where=lambda name, _: _part(name) in names)


def _part(name: str) -> str:
    """lora_A, lora_B or lora_magnitude_vector, of the name of a parameter."""
    return next(part for part in name.split(".") if part.startswith("lora_"))


METHODS: dict[str, Callable[[Optimizer, nn.Module], object]] = {
    "AdamW": lambda optimizer, model: None,
    "all": lambda optimizer, model: orthograd.attach(optimizer),
    "A": lambda optimizer, model: _attached(optimizer, model, "A"),
    "B": lambda optimizer, model: _attached(optimizer, model, "B"),
    "A and B as one": lambda optimizer, model: orthograd.attach(optimizer, granularity="group"),
}
"""Attaches ⊥Grad, by the name of a method."""


def digits(seed: int) -> tuple[Samples, Samples, Samples]:
    """Upright digits for the base network; rotated ones for tuning and for testing."""
    data = load_digits()
    images, labels = torch.tensor(data.images, dtype=torch.float32) / 16, torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    base, tuning, testing = order.tensor_split([BASE_IMAGES, BASE_IMAGES + TUNING_IMAGES])
    turned = images.rot90(1, (1, 2))
    return (
        (images[base].flatten(1), labels[base]),
        (turned[tuning].flatten(1), labels[tuning]),
        (turned[testing].flatten(1), labels[testing]),
    )


def steps(optimizer: Optimizer, model: nn.Module, samples: Samples, count: int, seed: int) -> None:
    """Train for this many steps on random batches."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        chosen = torch.randint(len(samples[1]), (BATCH,), generator=generator)
        optimizer.zero_grad()
        cross_entropy(model(samples[0][chosen]), samples[1][chosen]).backward()
        optimizer.step()


@cache
def base_network(seed: int) -> nn.Sequential:
    """A network that knows upright digits."""
    samples, _, _ = digits(seed)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    steps(torch.optim.AdamW(model.parameters(), lr=1e-3), model, samples, BASE_STEPS, seed)
    return model


def adapted(base: nn.Module, case: Case, seed: int) -> Any:
    """The base network with adapters on every layer."""
    torch.manual_seed(seed)
    config = peft.LoraConfig(
        target_modules=["0", "2", "4"], r=case.rank, lora_alpha=2 * case.rank, use_dora=case.has_magnitudes
    )
    return peft.get_peft_model(base, config)


def groups(model: nn.Module) -> list[dict[str, Any]]:
    """A param group for the adapters of each layer."""
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    layers = dict.fromkeys(name.partition(".lora_")[0] for name, _ in trained)
    return [{"params": [p for name, p in trained if name.startswith(f"{layer}.lora_")]} for layer in layers]


def growth(model: Any) -> float:
    """The norm of all updates BA over that of the weights that they are added to."""
    layers = [module for module in model.modules() if isinstance(module, peft.tuners.lora.Linear)]
    updates = sum(float(layer.get_delta_weight("default").detach().square().sum()) for layer in layers)
    return (updates / sum(float(layer.base_layer.weight.detach().square().sum()) for layer in layers)) ** 0.5


def run(case: Case, method: str, seed: int) -> dict[str, float]:
    """Fine-tune once; its metrics on rotated test images, the training loss and the size of the updates."""
    _, tuning, testing = digits(seed)
    model = adapted(deepcopy(base_network(seed)), case, seed)
    optimizer = torch.optim.AdamW(groups(model), lr=case.rate, weight_decay=0.0)
    METHODS[method](optimizer, model)
    steps(optimizer, model, tuning, STEPS, seed)
    model.eval()
    with torch.no_grad():
        metrics = calibration.evaluate(model(testing[0]).double(), testing[1], metrics=METRICS).as_row()
        training = float(cross_entropy(model(tuning[0]), tuning[1]))
        values = {name: metrics[name] for name in METRICS} | {"training_loss": training, "growth": growth(model)}
    return {name: float(f"{value:.5g}") for name, value in values.items()}


def record(seeds: int) -> dict[str, Any]:
    """The runs by case and method, with their environment."""
    runs: dict[str, dict[str, list[dict[str, float]]]] = {case.name: {} for case in CASES}
    for case, method in _progress(list(product(CASES, METHODS))):
        runs[case.name][method] = [run(case, method, seed) for seed in range(seeds)]
    return {"environment": {**environment(), "peft": peft.__version__}, "steps": STEPS, "runs": runs}


def _progress(cells: list[tuple[Case, str]]) -> Iterator[tuple[Case, str]]:
    for number, (case, method) in enumerate(cells, 1):
        yield case, method
        print(f"{number} of {len(cells)}: {case.name}, {method}", flush=True)


def main() -> None:
    """Run all cases and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds (default: 10)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.record.write_text(json.dumps(record(options.seeds), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
