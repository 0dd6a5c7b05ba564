"""Train a row: the full-batch steps of all its seeds at once, and measurements at about a hundred of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.optim import SGD, AdamW, Optimizer

from ...losses import log_stablemax
from ...optimizer import attach
from .measurement import measured
from .networks import Data, Networks
from .rows import Row

POINTS, APART = 100, 5
"""Most measurements of a run after the one before its first step, and the fewest steps from one to the next."""
WARM_UP = 3
"""Steps before a CUDA graph is captured, for libraries to initialize."""

Curves = dict[str, list[list[float | None]]]
"""Values by measure: one list for each seed, with one value for each recorded step."""


def recorded_steps(steps: int) -> list[int]:
    """The steps before which a run is measured, evenly spaced, and its end.

    >>> recorded_steps(12), recorded_steps(20_000)[:3], recorded_steps(20_000)[-1]
    ([0, 6, 12], [0, 200, 400], 20000)
    """
    points = max(1, min(steps // APART, POINTS))
    return [steps * point // points for point in range(points + 1)]


def sample_losses(row: Row, logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of each sample (seeds, n), in the precision of the row's loss."""
    log_probabilities = log_stablemax if row.loss == "stablemax" else torch.log_softmax
    logs = log_probabilities(logits.to(getattr(torch, row.loss_dtype)), -1)
    return -logs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def optimizer_of(row: Row, networks: Networks) -> Optimizer:
    """The row's optimizer for the stacked parameters. A row of ⊥Grad is then one seed's layer."""
    parameters = list(networks.parameters.values())
    optimizer: Optimizer
    if row.optimizer == "sgd":
        optimizer = SGD(parameters, lr=row.learning_rate, momentum=row.momentum, weight_decay=row.weight_decay)
    else:
        # For a CUDA graph. With capturable=True, torch corrects the bias in float32 instead: 1 − β₂ is off by 3e-5.
        is_fused = parameters[0].is_cuda
        options = {"betas": (0.9, row.beta2), "eps": row.epsilon, "weight_decay": row.weight_decay}
        optimizer = AdamW(parameters, lr=row.learning_rate, fused=is_fused, capturable=is_fused, **options)  # type: ignore[arg-type]
    if row.is_orthogonal:
        attach(optimizer, granularity="row")
    return optimizer


class Training:
    """The networks of a row in training. On a GPU a step is the replay of a CUDA graph."""

    def __init__(self, row: Row, seeds: Sequence[int], device: torch.device) -> None:
        self.row, self.data, self.networks = row, Data.of(row, seeds, device), Networks(row, seeds, device)
        self.losses: Callable[[Tensor, Tensor], Tensor] = partial(sample_losses, row)
        self._optimizer = optimizer_of(row, self.networks)
        self._steps = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._is_cuda = device.type == "cuda"
        # Fused, StableMax takes a few kernels instead of about thirty. Softmax is not compiled: fused, float16 would be
        # rounded elsewhere, and its rounding is what is studied.
        is_fused = self._is_cuda and row.loss == "stablemax"
        self._training_losses = torch.compile(self.losses) if is_fused else self.losses

    def advance(self, steps: int) -> None:
        """Take this many steps."""
        for _ in range(steps):
            if not self._is_cuda:
                self._step()
            elif self._steps < WARM_UP:
                self._warm_up()
            else:
                self._graph = self._graph or self._captured()
                self._graph.replay()
            self._steps += 1

    def _step(self) -> None:
        inputs, labels = self.data.train
        self._optimizer.zero_grad()
        logits = self.networks.logits(inputs, self.networks.masks(labels.shape[1]))
        # The sum of the means: every seed gets the gradient that it would have alone.
        self._training_losses(logits, labels).mean(1).sum().backward()
        self._optimizer.step()

    def _warm_up(self) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._step()
        torch.cuda.current_stream().wait_stream(stream)

    def _captured(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self.networks.generators:
            graph.register_generator_state(generator)
        self._optimizer.zero_grad()  # the graph then has gradients of its own
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            self._step()
        return graph


def trained(
    row: Row, seeds: Sequence[int], device: torch.device, report: Callable[[int], None] = lambda step: None
) -> tuple[list[int], Curves]:
    """The recorded steps of a row, and the curves of its seeds. ``report`` is called with each recorded step."""
    training = Training(row, seeds, device)
    steps, values, done = recorded_steps(row.steps), [], 0
    for step in steps:
        training.advance(step - done)
        done = step
        values.append(measured(training.networks, training.data, training.losses, row.loss))
        report(step)
    return steps, {name: _by_seed([value[name] for value in values]) for name in values[0]}


def _by_seed(points: list[Tensor]) -> list[list[float | None]]:
    """A list for each seed, with four significant digits; None for what is not finite."""
    table = torch.stack(points, 1)
    return [[float(f"{value:.4g}") if abs(value) < float("inf") else None for value in line] for line in table.tolist()]
