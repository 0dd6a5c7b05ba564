"""Gradients measured in the backward pass; on the CPU by Triton's interpreter, or on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch.optim import SGD

from orthograd import attach
from orthograd.lab.gpu.fused_sgd import FusedSGD
from orthograd.options import Options
from tests.lab.gpu.test_fused_sgd import DEVICE, assert_alike, fill, parameters

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("large", "renormalize"), [(1, True), (100, True), (100, False), (10**6, False)])
def test_gradients_measured_in_the_backward_pass_are_projected_alike(large, renormalize, monkeypatch):
    """Correct for all, some or no gradients, with and without copies, over one backward pass or two."""
    monkeypatch.setattr("orthograd.lab.gpu.backward_statistics.LARGE", large)
    ours, theirs = parameters(), parameters()
    copies = {ours[i]: ours[i].detach().bfloat16().requires_grad_() for i in (0, 2)}
    fused = FusedSGD(ours, 0.1, 0.9, 0.1, options=Options(renormalize=renormalize), copies=copies)
    usual = SGD(theirs, 0.1, 0.9, weight_decay=0.1)
    attach(usual, renormalize=renormalize)
    leaves = [copies.get(parameter, parameter) for parameter in ours]
    for passes in (1, 2, 1):
        for each in range(passes):
            fill(theirs, each)
            gradients = [other.grad.to(leaf.dtype) for leaf, other in zip(leaves, theirs, strict=True)]
            torch.autograd.backward(leaves, gradients)
        for parameter, leaf, other in zip(ours, leaves, theirs, strict=True):
            is_seen = fused._statistics.correction_of(parameter, leaf.grad) is not None
            assert is_seen == (parameter.numel() >= large and parameter.numel() > 1)
            other.grad = leaf.grad.to(other.dtype, copy=True)
        fused.step(), usual.step()
        assert_alike(ours, theirs)
        for leaf in leaves:
            leaf.grad = None


@pytest.mark.parametrize("what", ["gradient", "weight", "another gradient", "another order"])
def test_what_has_changed_since_the_backward_pass_is_measured_again(what, monkeypatch):
    monkeypatch.setattr("orthograd.lab.gpu.backward_statistics.LARGE", 1)
    ours, theirs = (parameters()[:1] for _ in range(2))
    fused, usual = FusedSGD(ours, 0.1, 0.9, 0.0, options=Options()), SGD(theirs, 0.1, 0.9)
    attach(usual)
    for (weight,) in (ours, theirs):
        weight.square().sum().backward()
        with torch.no_grad():
            if what == "gradient":
                weight.grad[0] += 3
            elif what == "weight":
                weight[0] += 3
            elif what == "another gradient":
                weight.grad = weight.grad + torch.linspace(0, 1, weight.numel(), device=DEVICE).view_as(weight)
            else:
                weight.grad = weight.grad.contiguous()
    fused.step(), usual.step()
    assert_alike(ours, theirs)


def test_a_gradient_changed_in_place_in_a_later_step_is_measured_again(monkeypatch):
    monkeypatch.setattr("orthograd.lab.gpu.backward_statistics.LARGE", 1)
    ours, theirs = (parameters()[2:3] for _ in range(2))
    fused, usual = FusedSGD(ours, 0.1, 0.9, 0.0, options=Options()), SGD(theirs, 0.1, 0.9)
    attach(usual)
    for step in range(2):
        for optimizer, (weight,) in ((fused, ours), (usual, theirs)):
            optimizer.zero_grad(set_to_none=False)  # the gradient stays at its address
            weight.sin().sum().backward()
            if step == 1:
                weight.grad[0] += 3
            optimizer.step()
    assert_alike(ours, theirs)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_a_graph_measures_in_the_backward_pass_as_well():
    """The graph also captures the separate stream of the measurement."""
    ours, theirs, target = (torch.randn(300, 300, device=DEVICE) for _ in range(3))
    theirs.copy_(ours)
    ours.requires_grad_(), theirs.requires_grad_()
    beside, in_step = (FusedSGD([each], 0.01, 0.9, 0.0, options=Options()) for each in (ours, theirs))

    def step():
        beside.zero_grad()
        (ours - target).pow(4).sum().backward()
        beside.step()

    with torch.cuda.stream(torch.cuda.Stream()):
        step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
    for _ in range(4):
        difference = (theirs - target).detach()
        theirs.grad = 4 * difference**3
        in_step.step()
    assert_alike([ours], [theirs])
