"""Measurements of networks in training: accuracy, calibration, and the signs of softmax collapse."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...calibration.binned import bin_of, ece
from ...losses import stablemax
from .networks import Data, Networks

BINS = 10

MEASURES = {
    "train_accuracy": "accuracy on training pairs",
    "test_accuracy": "accuracy on test pairs",
    "train_loss": "mean loss on training pairs, in the row's own precision",
    "test_loss": "mean loss on test pairs, in the row's own precision",
    "zero_loss": "share of training pairs whose loss is exactly zero",
    "zero_gradient": "share of training pairs whose gradient with respect to the logits is exactly zero",
    "radial": "share of the gradient's energy that ⊥Grad removes: Σ cos² ‖g‖² / Σ ‖g‖² over layers",
    "cosine": "cosine of all weights and the step of gradient descent, −g",
    "weight_norm": "norm of all weights",
    "logit_norm": "mean norm of the logits of a training pair",
    "confidence": "mean confidence on test pairs, by the row's own softmax or StableMax",
    "ece": "ECE on test pairs, ten bins",
}


def measured(
    networks: Networks, data: Data, losses: Callable[[Tensor, Tensor], Tensor], loss: str
) -> dict[str, Tensor]:
    """The value of each of `MEASURES` for each seed, without dropout."""
    with torch.no_grad():
        test = networks.logits(data.test[0])
        probabilities = stablemax(test) if loss == "stablemax" else test.softmax(-1)
        values = {"test_loss": losses(test, data.test[1]).double().mean(1), **calibrated(probabilities, data.test[1])}
    values |= _trained(networks, data, losses)
    return {name: values[name].double().cpu() for name in MEASURES}


def calibrated(probabilities: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Accuracy, mean confidence and ECE of each seed, from probabilities (seeds, n, classes)."""
    confidence, prediction = probabilities.max(-1)
    hits, place, confidence = (prediction == labels).double(), bin_of(confidence, BINS), confidence.double()
    sums = [
        torch.zeros(len(labels), BINS, dtype=torch.float64, device=labels.device).scatter_add_(1, place, each)
        for each in (torch.ones_like(hits), hits, confidence)
    ]
    return {"test_accuracy": hits.mean(1), "confidence": confidence.mean(1), "ece": ece(*sums)}


def _trained(networks: Networks, data: Data, losses: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Tensor]:
    """Measures of the training pairs, of the gradient and of the weights."""
    inputs, labels = data.train
    logits = networks.logits(inputs)
    each = losses(logits, labels)
    of_logits, *gradients = torch.autograd.grad(each.mean(1).sum(), [logits, *networks.parameters.values()])
    return {
        "train_accuracy": (logits.argmax(-1) == labels).double().mean(1),
        "train_loss": each.detach().double().mean(1),
        "zero_loss": (each.detach() == 0).double().mean(1),
        "zero_gradient": (of_logits == 0).all(-1).double().mean(1),
        "logit_norm": logits.detach().norm(dim=-1).double().mean(1),
        **_directions(gradients, list(networks.parameters.values())),
    }


def _directions(gradients: list[Tensor], weights: list[Tensor]) -> dict[str, Tensor]:
    """Angles of gradient and weight, and norms, of each seed; a layer is a row of a stacked parameter."""
    pairs = [(g.double().flatten(1), w.detach().double().flatten(1)) for g, w in zip(gradients, weights, strict=True)]
    products = torch.stack([(g * w).sum(1) for g, w in pairs])
    energies, squares = (torch.stack([each[k].square().sum(1) for each in pairs]) for k in (0, 1))
    removed = products.square() / torch.where(squares > 0, squares, 1)
    energy, square = energies.sum(0), squares.sum(0)
    return {
        "radial": removed.sum(0) / torch.where(energy > 0, energy, torch.nan),
        "cosine": -products.sum(0) / torch.where(energy > 0, (energy * square).sqrt(), torch.nan),
        "weight_norm": square.sqrt(),
    }
