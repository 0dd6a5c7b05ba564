"""bfloat16 copies that a network computes with, and its float32 weights that are trained."""

from __future__ import annotations

import torch
from torch import nn

from orthograd.lab.gpu.slot import HalfWeights


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.Flatten(), nn.Linear(16, 2)).to(
        memory_format=torch.channels_last
    )


def answer(net, images):
    with torch.autocast("cpu", torch.bfloat16):
        return net(images)


def test_gradients_are_those_of_autocast():
    images = torch.randn(5, 3, 4, 4)
    usual, model = network(), network()
    half = HalfWeights(model)
    answer(usual, images).float().square().sum().backward()
    answer(half, images).float().square().sum().backward()
    assert model[0].weight.grad is None
    half.hand_gradients_over()
    for ours, theirs in zip(model.parameters(), usual.parameters(), strict=True):
        assert ours.grad.dtype == torch.float32
        assert ours.grad.stride() == ours.stride()
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_what_is_frozen_or_not_used_is_left_alone():
    model = network()
    model.append(nn.Conv2d(1, 1, 1))
    unused = model.pop(3)
    model[0].weight.requires_grad_(False)
    assert not HalfWeights(model).by_weight
    both = nn.ModuleDict({"used": network(), "unused": unused})
    both.forward = lambda images: both["used"](images)
    half = HalfWeights(both)
    answer(half, torch.randn(1, 3, 4, 4)).sum().backward()
    half.hand_gradients_over()
    assert both["used"][0].weight.grad is not None
    assert unused.weight.grad is None


def test_copies_follow_and_forget():
    model = network()
    half = HalfWeights(model)
    ((whole, copy),) = half.by_weight.items()
    assert whole is model[0].weight
    with torch.no_grad():
        whole.mul_(3)
    half.follow()
    assert torch.equal(copy, whole.bfloat16())
    assert copy.stride() == whole.stride()
    answer(half, torch.randn(1, 3, 4, 4)).sum().backward()
    assert copy.grad is not None
    half.forget_gradients()
    assert copy.grad is None
