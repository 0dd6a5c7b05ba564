"""Records of runs that never were, small and the same each time."""

from __future__ import annotations

import random

from orthograd.calibration import CONVENTIONS


def curve(shift=0.0):
    """A reliability curve as a record keeps it; the lowest bin is empty."""
    accuracy = [None, 0.3, 0.5, 0.7, 0.85]
    return {
        "share": [0.0, 0.1, 0.2, 0.3, 0.4],
        "confidence": [None, 0.35 + shift, 0.5, 0.75, 0.95],
        "accuracy": accuracy,
        "low": [value and value - 0.1 for value in accuracy],
        "high": [value and value + 0.1 for value in accuracy],
        "band": "a band",
        "top1_accuracy": 60.0,
        "mean_confidence": 0.7,
        "ece": 0.1,
        "ece_by_chance": 0.01,
        "ece_by_chance_limit": 0.02,
        "samples": 100,
        "runs": 1,
    }


def metrics(chance, **given):
    """Every metric, a little different in each run, but for those given."""
    return {name: 0.5 + chance.uniform(-0.05, 0.05) for name in CONVENTIONS} | given


def record(method, seed, *, model="cnn", shifts=("noise", "blur"), epochs=4, **given):
    """What a run would have reported, without hashes."""
    chance = random.Random(f"{method} {seed}")
    sets = {f"{shift}.{level}": metrics(chance) for shift in shifts for level in (1, 2)}
    return {
        "config": {"method": method, "seed": seed, "model": model, "dataset": "digits", "epochs": epochs},
        "hash": f"{method}-{seed}",
        "evaluated": {"samples": 100, "classes": 10, "bins": 5},
        "metrics": {"clean": metrics(chance, **given), **sets},
        "after_temperature": {"temperature": 1.5, "certificate": "", "metrics": metrics(chance)},
        "reliability": {"clean": curve(), "after_temperature": curve(0.01), "shifted": curve(0.02) if shifts else None},
        "losses": [2.0 / 10**epoch for epoch in range(epochs)],
        "parameters": 1000,
        "versions": {"torch": "2.4", "python": "3.11"},
        "hardware": {"machine": "x86_64", "threads": 1},
        "seconds": {"training": 1.0 + seed, "evaluation": 0.5},
    }


def runs(methods=("baseline", "orthograd"), seeds=range(3), **options):
    """A run of each method and seed."""
    return [record(method, seed, **options) for method in methods for seed in seeds]
