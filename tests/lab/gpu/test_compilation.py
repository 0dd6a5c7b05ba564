"""Compiled networks: every variant is compiled, in every thread."""

from __future__ import annotations

import dataclasses
import functools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from orthograd.lab.gpu import compilation
from orthograd.lab.runs import prediction
from orthograd.lab.training.config import Config
from orthograd.lab.training.methods import Method
from orthograd.lab.training.task import Task

QUICK = Config(epochs=4)


def test_networks_are_compiled_however_many_there_are(monkeypatch):
    """Dynamo does not compile the ninth variant of a function, which shows only in the bits of a run.

    Runs on a GPU are threads, and in some releases of PyTorch each thread has its own limit.
    """
    compiled = []

    def backend(graph, _):
        compiled.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    compilation._compiled_loss.cache_clear()
    model, images, targets = nn.Linear(3, 2), torch.randn(4, 3), torch.eye(2)[[0, 1, 0, 1]]

    def compute(smoothing):
        loss = compilation.forward_and_loss(QUICK, is_compiled=True)
        loss(model, images, targets, Method("", "", smoothing=smoothing / 100)).backward()

    compute(0)
    with ThreadPoolExecutor(1) as another:
        list(another.map(compute, range(1, 12)))
    compilation._compiled_loss.cache_clear()
    assert len(compiled) == 12


@pytest.mark.parametrize("has_kernels", [False, True])
def test_networks_with_kernels_of_their_own_are_evaluated_without_the_compiler(has_kernels, monkeypatch):
    asked, config = [], dataclasses.replace(QUICK, device="cuda")
    monkeypatch.setitem(prediction.BATCH, "cuda", 100)

    def forward(config, *, is_compiled):
        asked.append(is_compiled)
        return lambda model, images: model(images)

    monkeypatch.setattr(prediction, "forward", forward)
    model, data = nn.Flatten(), Task.of(QUICK).dataset
    model.has_own_kernels = has_kernels
    prediction.logits(model, data, data.test_images[:250], config, is_compiled=True)
    assert asked == [not has_kernels, not has_kernels, False]
