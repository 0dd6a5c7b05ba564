"""Norms by our kernels on a real GPU: as exact as PyTorch's, the same bits every time, in graphs too."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from orthograd.models import norm_relu as module
from orthograd.models import resnet18, resnet50, wide_resnet28_10
from orthograd.models.norm_relu import is_fused, norm_relu, sum_norm_relu
from orthograd.training.precision import precision

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SHAPES = [(64, 64, 32, 32), (64, 512, 4, 4), (64, 160, 32, 32), (8, 640, 8, 8), (8, 64, 32, 32), (64, 16, 32, 32)]


def values(*shape, seed=0, dtype=torch.float32):
    found = torch.randn(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(seed)).add(1.0)
    return found.to(dtype).contiguous(memory_format=torch.channels_last).requires_grad_()


def results(shape, dtype, *, is_sum, has_plus, kernels):
    """All that comes out, and all slopes; by PyTorch in float64 if not by the kernels."""
    x, plus = values(*shape, dtype=dtype), values(*shape, seed=1, dtype=dtype) if has_plus else None
    norm, slopes = nn.BatchNorm2d(shape[1]).cuda(), [values(*shape, seed=seed, dtype=dtype).detach() for seed in (2, 3)]
    if not kernels:
        x, plus = (None if each is None else each.detach().double().requires_grad_() for each in (x, plus))
        norm, slopes = norm.double(), [slope.double() for slope in slopes]
    assert is_fused(norm, x) == kernels
    if is_sum and not kernels:  # the kernels round the sum before they normalise it, which opens other ReLUs
        total = x if plus is None else x + plus
        total = total + (total.detach().to(dtype).double() - total.detach())
        ways = total, functional.relu(norm(total))
    else:
        ways = sum_norm_relu(norm, x, plus) if is_sum else norm_relu(norm, x, plus)
    torch.autograd.backward(ways, slopes)
    found = [*ways, x.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var]
    return [value.detach() for value in found + ([] if plus is None else [plus.grad])]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("is_sum", [False, True])
@pytest.mark.parametrize("has_plus", [False, True])
def test_kernels_do_what_pytorch_does_in_float64(shape, dtype, is_sum, has_plus):
    given = {"is_sum": is_sum, "has_plus": has_plus}
    found, wanted = (results(shape, dtype, **given, kernels=kernels) for kernels in (True, False))
    tolerance = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
    for ours, exact in zip(found, wanted, strict=True):
        assert (ours.double() - exact).norm() <= tolerance * exact.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_bits_every_time(dtype):
    first = results((64, 160, 32, 32), dtype, is_sum=True, has_plus=True, kernels=True)
    for _ in range(20):
        again = results((64, 160, 32, 32), dtype, is_sum=True, has_plus=True, kernels=True)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_replays_of_a_graph_give_the_bits_of_plain_steps():
    norm, x = nn.BatchNorm2d(64).cuda(), values(64, 64, 32, 32)
    for _ in range(3):
        plain = norm_relu(norm, x)[0].detach()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = norm_relu(norm, x)[0]
    for _ in range(5):
        y.zero_()
        graph.replay()
        assert torch.equal(y, plain)


@pytest.mark.parametrize("network", [resnet18, resnet50, wide_resnet28_10])
def test_a_network_has_slopes_as_near_to_those_in_float64_as_pytorch_finds(network, monkeypatch):
    """Where values are rounded, ReLUs open that should not: in ResNet-50 that alone moves slopes by some percent.

    How far differs by a factor of three between PyTorch's own layouts, channels first and last, on a CPU.
    """

    def slopes(dtype):
        torch.manual_seed(0)
        model = network((3, 32, 32), 10).to("cuda", dtype).to(memory_format=torch.channels_last)
        images = values(16, 3, 32, 32).detach().to(dtype)
        with precision("float32"):
            functional.cross_entropy(model(images), torch.arange(16, device="cuda") % 10).backward()
        return [parameter.grad.double() for parameter in model.parameters()]

    ours, exact = slopes(torch.float32), slopes(torch.float64)
    monkeypatch.setattr(module, "is_fused", lambda norm, x, plus=None: False)
    for mine, theirs, true in zip(ours, slopes(torch.float32), exact, strict=True):
        assert (mine - true).norm() < 3 * (theirs - true).norm() + 0.01 * true.norm() < 0.3 * true.norm()


def test_what_the_kernels_do_not_do_is_left_to_pytorch():
    x = values(2, 16, 4, 4)
    assert is_fused(nn.BatchNorm2d(16).cuda(), x)
    for norm in (nn.BatchNorm2d(16).eval(), nn.BatchNorm2d(16, affine=False), nn.BatchNorm2d(16, momentum=None)):
        assert not is_fused(norm.cuda(), x)
    assert not is_fused(nn.BatchNorm2d(16).cuda(), x.double())
    assert not is_fused(nn.BatchNorm2d(16).cuda(), x.contiguous())
    y = norm_relu(nn.BatchNorm2d(16).cuda(), x.contiguous())[0]
    torch.testing.assert_close(y, functional.relu(nn.BatchNorm2d(16).cuda()(x)))
