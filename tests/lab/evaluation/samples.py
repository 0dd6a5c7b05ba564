"""Evaluated files for the tests of the page."""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from orthograd.calibration.files.evaluation import Settings, evaluated
from orthograd.calibration.files.reading import PredictionsFile, read_predictions
from orthograd.calibration.inputs import Form
from orthograd.lab.evaluation.seeds import Method, seed_pairs

SAMPLES = next((Path(__file__).parents[2] / "calibration" / "files").glob("samples_docs_endings_*.jsonl"))
QUICK = Settings(resamples=50)


def digits():
    """Two digit classifiers, the second three times as confident."""
    images, labels = load_digits(return_X_y=True)
    model = LogisticRegression(max_iter=200).fit(images[:600] / 16, labels[:600])
    logits, truth = torch.from_numpy(model.decision_function(images[600:] / 16)), torch.from_numpy(labels[600:])
    files = [
        PredictionsFile(Path(f"{name}.npz"), factor * logits, truth, False, "logits 'logits', labels 'labels'")
        for name, factor in (("plain", 1), ("sharp", 3))
    ]
    return evaluated(files, [], QUICK)


def choices():
    """A language model's multiple choice."""
    return evaluated([read_predictions(SAMPLES)], [], QUICK)


def masks():
    """Four maps of 16 × 16 pixels and three classes, with an ignored row."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 3, 16, 16, generator=generator)
    labels = (logits + torch.randn(4, 3, 16, 16, generator=generator)).argmax(1)
    labels[:, 0] = 255
    file = PredictionsFile(Path("masks.npz"), 3 * logits, labels, False, "maps", Form("multiclass", 1, 255))
    return evaluated([file], [], QUICK)


def seeds():
    """Three seeds of two methods, a and b; b is three times as confident."""
    methods = (Method(name, {str(seed): Path(f"{name}-{seed}") for seed in range(3)}) for name in "ab")
    return seed_pairs(*methods, _seed, QUICK)


def _seed(path):
    name, seed = str(path).split("-")
    generator = torch.Generator().manual_seed(int(seed))
    logits = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return PredictionsFile(path, {"a": 1, "b": 3}[name] * logits, labels, False, "logits 'logits', labels 'labels'")
