"""Records of runs that never were, sound in every hash, with the means that one asks for."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from orthograd.calibration import CONVENTIONS
from orthograd.lab.jobs.files import canonical_json, config_hash, sha256
from orthograd.paper.plan import EXPERIMENTS
from orthograd.paper.verdicts.claims import sections
from tests.lab.comparison.records import curve

CORRUPTIONS = ("fog", "snow")


def made_run(config: Mapping[str, Any], means: Mapping[str, float], *, spread: float = 0.01) -> dict[str, Any]:
    """A record whose clean metrics lie around the means, by ``spread`` of themselves."""
    chance = random.Random(f"{config['method']} {config['seed']}")

    def metrics() -> dict[str, float]:
        return {name: means.get(name, 0.5) * (1 + spread * chance.uniform(-1, 1)) for name in CONVENTIONS}

    record = {
        "config": dict(config),
        "hash": config_hash(dict(config)),
        "files": {},
        "evaluated": {"samples": 100, "classes": 10, "bins": 5},
        "metrics": {"clean": metrics()} | {f"{name}.{i}": metrics() for name in CORRUPTIONS for i in range(1, 6)},
        "after_temperature": {"temperature": 2.7 + chance.uniform(-0.1, 0.1), "certificate": "", "metrics": metrics()},
        "reliability": {"clean": curve(), "after_temperature": curve(0.01), "shifted": curve(0.02)},
        "losses": [chance.random() for _ in range(3)],
        "weight_norm": 79.7 + chance.uniform(-0.1, 0.1),
        "parameters": 10,
        "versions": {"torch": "2.9", "python": "3.11", "orthograd": "0"},
        "hardware": {"machine": "x86_64", "threads": 1, "gpu": "a GPU"},
        "shifts": "made",
        "seconds": {"training": 30.0, "evaluation": 2.0},
    }
    return {**record, "sha256": sha256(canonical_json(record).encode())}


def made_table1() -> list[dict[str, Any]]:
    """Forty runs with the means of the paper's table 1."""
    rows = [row for row in sections()["table1_resnet18"].rows if row.quantity.startswith("clean.")]
    means = {
        "baseline": {row.quantity.removeprefix("clean."): row.baseline.value for row in rows},
        "orthograd": {row.quantity.removeprefix("clean."): row.candidate.value for row in rows},
    }
    configs = EXPERIMENTS["table1"].configs()
    return [made_run(config.as_dict(), means[config.method]) for config in configs]
