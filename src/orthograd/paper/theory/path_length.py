"""When θ converges: paths of finite length on analytic losses, and the curvature that decides it."""

from __future__ import annotations

import torch
from torch import Tensor

from .descent import Path, Problem, descend, logistic, quadratic
from .statement import Demonstration, Statement, thinned

TITLE = "When θ does converge: analytic losses with η(k + G/‖θ‖) < 2"
STEPS = 1500


def path_length(steps: int = STEPS) -> Demonstration:
    """Path lengths and rates on analytic losses, and a path that first grows until the condition is met."""
    statements, curves = [], {}
    for problem, count in ((quadratic(), steps), (logistic(), steps // 5)):
        path = descend(problem, steps=count, layerwise=False, rate=0.9 / (problem.lipschitz or 1.0))
        statements += _of_path(problem, path)
        curves[problem.name] = {
            "left": thinned((path.length[-1] - path.length[:-1]).tolist()),
            "gap": thinned((path.losses[:-1] - path.losses[-1]).tolist()),
        }
    problem = distant()
    path = descend(problem, steps=60, layerwise=False, rate=0.9)
    curves["growing"] = {
        "condition": [float(value) for value in conditions(problem, path)],
        "loss": path.losses.tolist(),
        "on the sphere": on_last_sphere(problem, path).tolist(),
        "norm": path.norms[:, 0].sqrt().tolist(),
    }
    return Demonstration("path_length", TITLE, (*statements, *_of_growth(problem, path)), curves)


def distant() -> Problem:
    """L(θ) = ½‖θ − θ*‖² with a far minimum and a small start: k = 1, but on the sphere it bends by ‖θ*‖/‖θ‖."""
    minimum = torch.tensor([10.0, 0.0], dtype=torch.float64)
    start = torch.tensor([0.9, 0.4], dtype=torch.float64)
    return Problem("distant", lambda w: ((w - minimum) ** 2).sum() / 2, start, (2,), 1.0, 0.0, 1e-13)


def conditions(problem: Problem, path: Path) -> list[Tensor]:
    """η (k + G/‖θ‖) along the path, G = −⟨∇L, θ⟩/‖θ‖ where that is positive: below 2 the proof goes through."""
    values = []
    for weight, rate, k in zip(path.weights, path.rates, path.lipschitz, strict=False):
        radial = torch.func.grad(problem.loss)(weight) @ weight
        values.append(rate * (k + (-radial / (weight @ weight)).clamp_min(0)))
    return values


def on_last_sphere(problem: Problem, path: Path) -> Tensor:
    """The loss of each θ rescaled to the norm of the last: the path on a fixed sphere."""
    last = path.weights[-1].norm()
    return torch.stack([problem.loss(weight * (last / weight.norm())) for weight in path.weights])


def contraction(problem: Problem, weight: Tensor, rate: float) -> float:
    """max |1 − ηλ| over the curvatures λ of the loss on the sphere: P ∇²L P − (⟨∇L, θ⟩/‖θ‖²) P, on its tangents."""
    hessian, gradient = torch.func.hessian(problem.loss)(weight), torch.func.grad(problem.loss)(weight)
    unit = weight / weight.norm()
    projection = torch.eye(len(weight), dtype=weight.dtype) - torch.outer(unit, unit)
    curvature = projection @ hessian @ projection - (gradient @ weight) / (weight @ weight) * projection
    # The direction of θ itself is no tangent: shifted far up, it is the largest and can be left out.
    values = torch.linalg.eigvalsh(curvature + 1e6 * torch.outer(unit, unit))[:-1]
    return float((1 - rate * values).abs().max())


def _of_path(problem: Problem, path: Path) -> list[Statement]:
    rate, sizes = float(path.rates[0]), path.squares.sum(1).sqrt()
    # Late enough for the slowest curvature to be the only one left, and far from rounding.
    least = max(float(sizes[-1]), 1e-12 * float(sizes[0]))
    late = ((sizes < 1e3 * least) & (sizes > 10 * least)).nonzero().flatten()
    begin, end = int(late[0]), int(late[-1])
    measured = float(sizes[end] / sizes[begin]) ** (1 / (end - begin))
    half = path.length[len(path.length) // 2]
    name = problem.name
    return [
        Statement(
            "the condition for convergence is met",
            f"η(k + G/‖θ‖) at the end, {name}",
            float(conditions(problem, path)[-1]),
            "≤",
            2.0,
        ),
        Statement(
            "the path has finite length",
            f"share of the second half of the steps, {name}",
            float(1 - half / path.length[-1]),
            "≤",
            1e-3,
        ),
        Statement(
            "‖g⊥‖ shrinks at the rate that the curvature on the sphere gives",
            f"difference of the two, {name}",
            abs(measured - contraction(problem, path.weights[-1], rate)),
            "≤",
            5e-3,  # measured over steps in which other curvatures have not quite died out
        ),
    ]


def _of_growth(problem: Problem, path: Path) -> list[Statement]:
    condition, sphere = conditions(problem, path), on_last_sphere(problem, path)
    says = "with a small start the condition fails at first"
    return [
        Statement(says, "η(k + G/‖θ₀‖)", float(condition[0]), "≥", 2.0),
        Statement(
            "the loss falls all the same", "largest rise", float((path.losses[1:] - path.losses[:-1]).max()), "≤", 1e-12
        ),
        Statement(
            "though on a fixed sphere it rises", "largest rise", float((sphere[1:] - sphere[:-1]).max()), "≥", 1e-2
        ),
        Statement(
            "and the norm grows until the condition is met", "η(k + G/‖θ‖) at the end", float(condition[-1]), "≤", 2.0
        ),
    ]
