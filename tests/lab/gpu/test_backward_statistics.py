"""The lab's SGD, which measures gradients in the backward pass; on the CPU by Triton's interpreter, or on a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.optim import SGD

from orthograd import attach
from orthograd.lab.gpu.slot import fused_sgd
from orthograd.options import Options
from orthograd.projection import orthogonal_gradient
from tests.optim.steps import DEVICE, assert_alike, fill, parameters


@pytest.fixture(autouse=True)
def _of_any_size(monkeypatch, several_chunks):
    monkeypatch.setattr("orthograd.lab.gpu.backward_statistics.LARGE", 1)


def fused(weights, copies=None, options=Options(), rate=0.1, decay=0.0):  # noqa: B008
    """The lab's optimizer, which must take fused steps: on a CPU they are interpreted."""
    options = replace(options, engine="triton")
    return fused_sgd(weights, copies or {}, options, lr=rate, momentum=0.9, weight_decay=decay)


def usual(weights, options=Options(), decay=0.0):  # noqa: B008
    """Torch's optimizer with ⊥Grad by `attach`."""
    optimizer = SGD(weights, 0.1, 0.9, weight_decay=decay)
    attach(optimizer, renormalize=options.renormalize)
    return optimizer


def set_gradients(tensors, gradients, *, is_measured_early):
    """Set gradients by a backward pass, which measures them, or directly."""
    gradients = [gradient.to(DEVICE) for gradient in gradients]
    if is_measured_early:
        torch.autograd.backward(tensors, gradients)
    else:
        for tensor, gradient in zip(tensors, gradients, strict=True):
            tensor.grad = gradient.clone()


@pytest.fixture(params=[False, True], ids=["measured by the step", "measured in the backward pass"])
def is_measured_early(request):
    """True if gradients come from a backward pass."""
    return request.param


@pytest.mark.slow
@pytest.mark.parametrize(("large", "renormalize"), [(1, True), (100, True), (100, False), (10**6, False)])
def test_gradients_measured_in_the_backward_pass_are_projected_alike(large, renormalize, monkeypatch):
    """Correct for all, some or no gradients, with and without copies, over one backward pass or two."""
    monkeypatch.setattr("orthograd.lab.gpu.backward_statistics.LARGE", large)
    ours, theirs = parameters(), parameters()
    copies = {ours[i]: ours[i].detach().bfloat16().requires_grad_() for i in (0, 2)}
    options = Options(renormalize=renormalize)
    optimizer, other = fused(ours, copies, options, decay=0.1), usual(theirs, options, decay=0.1)
    leaves = [copies.get(parameter, parameter) for parameter in ours]
    for passes in (1, 2, 1):
        for each in range(passes):
            fill(theirs, each)
            gradients = [each.grad.to(leaf.dtype) for leaf, each in zip(leaves, theirs, strict=True)]
            torch.autograd.backward(leaves, gradients)
        for leaf, their in zip(leaves, theirs, strict=True):
            is_known = optimizer.corrections.correction_of(leaf) is not None
            assert is_known == (leaf.numel() >= large and leaf.numel() > 1)
            their.grad = leaf.grad.to(their.dtype, copy=True)
        optimizer.step(), other.step()
        assert_alike(ours, theirs)
        optimizer.zero_grad()


def test_weights_of_the_model_are_stepped_and_copies_follow():
    ours, theirs = parameters(), parameters()
    copies = {ours[i]: ours[i].detach().bfloat16().requires_grad_() for i in (0, 2)}
    optimizer, other = fused(ours, copies), usual(theirs)
    for seed in range(3):
        leaves = [copies.get(parameter, parameter) for parameter in ours]
        fill(leaves, seed)
        for their, leaf in zip(theirs, leaves, strict=True):
            their.grad = leaf.grad.float()
        optimizer.step(), other.step()
    assert_alike(ours, theirs)
    for weight, copy in copies.items():
        # Triton's interpreter truncates bfloat16 instead of rounding it.
        torch.testing.assert_close(copy.float(), weight.detach(), rtol=2**-7, atol=0)
        assert copy.is_contiguous(memory_format=torch.channels_last) or weight.ndim != 4


def test_only_chosen_weights_are_measured_and_projected():
    ours, theirs = parameters(), parameters()
    copies = {ours[0]: ours[0].detach().bfloat16().requires_grad_()}
    leaves = [copies.get(parameter, parameter) for parameter in ours]
    chosen = {id(ours[0]), id(ours[1])}
    options = Options(engine="triton")
    optimizer = fused_sgd(ours, copies, options, lambda _, weight: id(weight) in chosen, lr=0.1, momentum=0.9)
    other = SGD(theirs, 0.1, 0.9)
    attach(other, where=lambda _, weight: any(weight is each for each in theirs[:2]))
    fill(theirs, 0)
    for their in theirs[:1]:
        their.grad = their.grad.bfloat16().float()
    torch.autograd.backward(leaves, [each.grad.to(leaf.dtype) for leaf, each in zip(leaves, theirs, strict=True)])
    are_measured = [optimizer.corrections.correction_of(leaf) is not None for leaf in leaves]
    assert are_measured == [True, True, False, False, False]
    optimizer.step(), other.step()
    assert_alike(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["gradient", "weight", "another gradient", "another order"])
def test_what_has_changed_since_the_backward_pass_is_measured_again(what):
    ours, theirs = (parameters()[:1] for _ in range(2))
    optimizer, other = fused(ours), usual(theirs)
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
    optimizer.step(), other.step()
    assert_alike(ours, theirs)


@pytest.mark.parametrize("has_copies", [False, True])
def test_a_second_step_measures_at_the_new_weights(has_copies):
    ours, theirs = parameters(), parameters()
    copies = {ours[0]: ours[0].detach().bfloat16().requires_grad_()} if has_copies else {}
    optimizer, other = fused(ours, copies, decay=0.1), usual(theirs, decay=0.1)
    leaves = [copies.get(parameter, parameter) for parameter in ours]
    fill(leaves, 0)
    gradients = [leaf.grad for leaf in leaves]
    optimizer.zero_grad()
    set_gradients(leaves, gradients, is_measured_early=True)
    for _ in range(2):  # the second one without a backward pass
        set_gradients(theirs, [gradient.float() for gradient in gradients], is_measured_early=False)
        optimizer.step(), other.step()
    assert_alike(ours, theirs)


def test_a_gradient_changed_in_place_in_a_later_step_is_measured_again():
    ours, theirs = (parameters()[2:3] for _ in range(2))
    optimizer, other = fused(ours), usual(theirs)
    for step in range(2):
        for each, (weight,) in ((optimizer, ours), (other, theirs)):
            each.zero_grad(set_to_none=False)  # the gradient stays at its address
            weight.sin().sum().backward()
            if step == 1:
                weight.grad[0] += 3
            each.step()
    assert_alike(ours, theirs)


def test_what_is_nearly_parallel_keeps_its_digits(is_measured_early):
    weight = torch.randn(1300, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(5)).to(DEVICE)
    ours = weight.clone().requires_grad_()
    optimizer = fused([ours], options=Options(renormalize=False))
    set_gradients([ours], [3 * weight + 1e-4 * noise], is_measured_early=is_measured_early)
    optimizer.step()
    result, g, w = (value.double() for value in (optimizer.state[ours]["momentum_buffer"], ours.grad, weight))
    wanted = g - (g @ w) / (w @ w) * w
    # Triton's interpreter rounds products before it adds; a GPU's fused multiply-adds do not.
    assert (result - wanted).norm() <= (1e-2 if DEVICE == "cpu" else 1e-6) * wanted.norm()


@pytest.mark.parametrize("tiny", [1e-3, 1e-12, 1e-30])
def test_a_beginning_that_is_no_sample_of_the_rest_does_no_harm(tiny, is_measured_early):
    generator = torch.Generator().manual_seed(0)
    weight, gradient = (torch.randn(1300, generator=generator) for _ in range(2))
    weight[:500] *= tiny
    assert_projected(0.05 * weight, 1e-3 * gradient, is_measured_early=is_measured_early)


@pytest.mark.parametrize("size", [1e-30, 1e-22, 1e18])
@pytest.mark.parametrize("of_weight", [False, True])
def test_what_float32_cannot_square_is_projected(size, of_weight, is_measured_early):
    generator = torch.Generator().manual_seed(0)
    weight, gradient = (torch.randn(1300, generator=generator) for _ in range(2))
    gradient += weight
    weight, gradient = (size * weight, gradient) if of_weight else (weight, size * gradient)
    assert_projected(weight, gradient, is_measured_early=is_measured_early)


def assert_projected(weight, gradient, *, is_measured_early):
    """Compare the first momentum with the projected gradient in float64."""
    ours = weight.clone().to(DEVICE).requires_grad_()
    optimizer = fused([ours])
    set_gradients([ours], [gradient], is_measured_early=is_measured_early)
    assert (optimizer.corrections.correction_of(ours) is not None) == is_measured_early
    optimizer.step()
    result = optimizer.state[ours]["momentum_buffer"].double().cpu()
    wanted = orthogonal_gradient(gradient.double(), weight.double())
    assert (result - wanted).norm() <= 1e-6 * wanted.norm()


def test_a_gradient_that_is_not_finite_stays_as_it_is(is_measured_early):
    ours, theirs = parameters(), parameters()
    optimizer, other = fused(ours), usual(theirs)
    fill(theirs, 1)
    theirs[1].grad[3] = float("inf")
    set_gradients(ours, [parameter.grad for parameter in theirs], is_measured_early=is_measured_early)
    optimizer.step(), other.step()
    for result, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(result, wanted, equal_nan=True, rtol=2e-6, atol=1e-6)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_a_graph_measures_in_the_backward_pass_as_well():
    """The graph also captures the separate stream of the measurement."""
    torch.manual_seed(0)
    # Differences below 5: from 7 on, steps of this size diverge.
    ours, theirs, target = (0.7 * torch.randn(300, 300, device=DEVICE) for _ in range(3))
    theirs.copy_(ours)
    ours.requires_grad_(), theirs.requires_grad_()
    beside, in_step = (fused([each], rate=0.01) for each in (ours, theirs))

    def step():
        beside.zero_grad()
        (ours - target).pow(4).sum().backward()
        beside.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())  # which may not have filled the tensors yet
    with torch.cuda.stream(side):
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


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
@pytest.mark.parametrize("has_copies", [False, True])
def test_without_orthograd_it_is_sgd(has_copies):
    ours, theirs = parameters(), parameters()
    copies = {ours[0]: ours[0].detach().bfloat16().requires_grad_()} if has_copies else {}
    optimizer = fused_sgd(ours, copies, None, lr=0.1, momentum=0.9, weight_decay=0.1)
    other = SGD(theirs, 0.1, 0.9, weight_decay=0.1)
    for seed in range(3):
        leaves = [copies.get(parameter, parameter) for parameter in ours]
        fill(leaves, seed)
        for their, leaf in zip(theirs, leaves, strict=True):
            their.grad = leaf.grad.float()
        optimizer.step(), other.step()
        assert_alike(ours, theirs)
