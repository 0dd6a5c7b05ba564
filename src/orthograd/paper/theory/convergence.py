"""Theorem 3.1 on three losses: bounds on each step, on the sum of all steps, and on the end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .descent import EPS, Path, Problem, descend, logistic, network, quadratic
from .statement import Demonstration, Statement, thinned

STEPS = 1500
TITLE = "Theorem 3.1: ⊥Grad without renormalization, η < 1/k"
Runs = dict[tuple[str, bool], tuple[Problem, Path]]


def convergence(steps: int = STEPS) -> Demonstration:
    """Loss, Σ‖g⊥‖², angle and norm, for the whole vector and layer by layer, and controls that must fail."""
    runs = descended(steps)
    curves = {f"{name}, {_form(layerwise)}": _curves(*run) for (name, layerwise), run in runs.items()}
    return Demonstration("convergence", TITLE, (*statements(runs), *controls(min(steps, 300))), curves)


def descended(steps: int) -> Runs:
    """⊥Grad on each problem, whole and layer by layer: η = 0.9/k, or by backtracking where there is no k."""
    runs: Runs = {}
    for problem in (quadratic(), logistic(), network()):
        rate = None if problem.lipschitz is None else 0.9 / problem.lipschitz
        for layerwise in (False, True):
            runs[problem.name, layerwise] = problem, descend(problem, steps=steps, layerwise=layerwise, rate=rate)
    return runs


def statements(runs: Runs) -> list[Statement]:
    """The four claims of the theorem's proof that hold, for every run."""
    claims = []
    for (name, layerwise), (problem, path) in runs.items():
        where = f"{name}, {_form(layerwise)}"
        claims += [
            Statement(
                "each step lowers the loss by η(1 − ηk/2)‖g⊥‖² or more",
                f"largest excess, {where}",
                float(path.excess.max()),
                "≤",
                2 * problem.rounding,  # of the two losses that are subtracted
            ),
            Statement(
                "Σ‖g⊥‖² stays below (L(θ₀) − inf L) / (η(1 − ηk/2))",
                f"sum, {where}",
                float(path.squares.sum()),
                "≤",
                sum_bound(problem, path),
            ),
            Statement(
                "gradient and weight end parallel",
                f"least ‖g⊥‖ / ‖g‖, {where}",
                float(path.sines.min()),
                "≤",
                1e-2 if problem.lipschitz is None else 1e-6,
            ),
            Statement(
                "‖θₙ₊₁‖² = ‖θₙ‖² + η²‖g⊥‖² in each layer",
                f"largest relative error, {where}",
                float(norm_errors(path).max()),
                "≤",
                norm_tolerance(path),
            ),
        ]
    return claims


def controls(steps: int) -> list[Statement]:
    """Cases that violate a condition, in which the bounds must fail."""
    problem = quadratic()
    k = problem.lipschitz or 0.0
    rising = descend(problem, steps=steps, layerwise=False, rate=2.5 / k)
    renormalized = descend(problem, steps=steps, layerwise=False, rate=0.9 / k, renormalize=True)
    slack = rising.losses[1:] - rising.losses[:-1] + rising.rates * (1 - rising.rates * k / 4) * rising.squares.sum(1)
    return [
        Statement("control: with η = 2.5/k the loss rises", "largest rise", _rise(rising), "≥", 1e-3),
        Statement("control: with k/2 in place of k the bound fails", "largest excess", float(slack.max()), "≥", 1e-3),
        Statement(
            "control: renormalized steps break the identity of the norms",
            "largest relative error",
            float(norm_errors(renormalized).max()),
            "≥",
            1e-3,
        ),
    ]


def sum_bound(problem: Problem, path: Path) -> float:
    """(L(θ₀) − inf L) / (η(1 − ηk/2)), with the smallest rate and the largest k if they change."""
    factor = path.rates * (1 - path.rates * path.lipschitz / 2)
    return float(path.losses[0] - problem.infimum) / float(factor.min())


def norm_errors(path: Path) -> Tensor:
    """|‖θₙ₊₁‖² − ‖θₙ‖² − η²‖g⊥‖²| / ‖θₙ₊₁‖² by step and layer."""
    norms = path.norms
    return (norms[1:] - norms[:-1] - path.rates[:, None] ** 2 * path.squares).abs() / norms[1:]


def norm_tolerance(path: Path) -> float:
    """Three sums of squares of m numbers, each off by m·eps; twice that for ⟨g⊥, θ⟩, zero but for rounding."""
    return 6 * max(path.layers) * EPS


def _rise(path: Path) -> float:
    return float((path.losses[1:] - path.losses[:-1]).max())


def _form(layerwise: bool) -> str:
    return "layer-wise" if layerwise else "whole"


def _curves(problem: Problem, path: Path) -> dict[str, Any]:
    drop = path.losses[:-1] - path.losses[1:]
    # Below this, both are rounding and their ratio says nothing.
    counts = path.decrease > 1e3 * problem.rounding
    ratios = (drop / path.decrease.clamp_min(1e-300)).where(counts, torch.nan)
    return {
        "ratio": [[i, r] for i, r in thinned(ratios.tolist()) if r == r],
        "share": thinned((path.squares.sum(1).cumsum(0) / sum_bound(problem, path)).tolist()),
        "sine": thinned(path.sines.tolist()),
    }
