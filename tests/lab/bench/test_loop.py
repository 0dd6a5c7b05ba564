"""Whole training steps: the networks have the stated sizes, and all optimizers train one network."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cosine_similarity

from orthograd.lab.bench.loop import (
    CPU_LOOPS,
    CUDA_LOOPS,
    LanguageModel,
    LargeImages,
    VisionTransformer,
    _attached,
    _contenders,
    loop_cost,
    plain,
)
from orthograd.lab.bench.step import bases
from orthograd.lab.networks import MODELS


def test_the_language_model_has_the_size_of_gpt2_small_and_does_not_see_what_follows():
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in LanguageModel().parameters()) == 124_439_808
    torch.manual_seed(0)
    model = LanguageModel(words=11, context=6, width=64, depth=2).eval()
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
    changed = tokens.clone()
    changed[0, 4:] = 0
    before, after = model(tokens), model(changed)
    assert before.shape == (1, 11, 6)
    torch.testing.assert_close(before[..., :4], after[..., :4])
    assert not torch.allclose(before[..., 4:], after[..., 4:])


@pytest.mark.parametrize(("network", "size"), [(LargeImages, 25_557_032), (VisionTransformer, 22_050_664)])
def test_networks_for_large_images_have_the_size_of_the_published_ones(network, size):
    with torch.device("meta"):
        model = network()
        assert sum(parameter.numel() for parameter in model.parameters()) == size
        assert model(torch.zeros(2, 3, 224, 224)).shape == (2, 1000)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_residual_networks_are_those_of_the_lab_in_plain_layers(name):
    torch.manual_seed(0)
    network, images = MODELS[name]((3, 8, 8), 10).eval(), torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(plain(network)(images), network(images))
    assert {*plain(network).parameters()} == {*network.parameters()}


def test_a_ratio_comes_with_the_time_of_the_plain_step():
    (claim,) = loop_cost(torch.device("cpu"), quick=True)
    assert str(claim.key) == "training step, small CNN, float32, SGD, momentum, weight decay, batch of 32"
    assert claim.value > 0
    assert claim.others["ms a step without ⊥Grad"] > 0


@pytest.mark.parametrize("loops", [CPU_LOOPS, CUDA_LOOPS])
def test_every_loop_has_a_key_of_its_own(loops):
    keys = [loop.key(is_compiled=compiled) for loop in loops for compiled in (False, True)]
    assert len(set(keys)) == len(keys)


def test_all_optimizers_train_one_network_and_no_hook_of_attach_is_left():
    made = []

    def noted(make):
        def make_one(parameters):
            made.append(make(parameters))
            return made[-1]

        return make_one

    device, (loop, *_) = torch.device("cpu"), CPU_LOOPS
    base = bases(device)[loop.optimizer]
    makers = {"base": noted(base), "⊥Grad": noted(_attached(base))}
    contenders = _contenders(loop, makers, device, is_compiled=False)
    first, second = ([p for group in optimizer.param_groups for p in group["params"]] for optimizer in made)
    assert all(ours is theirs for ours, theirs in zip(first, second, strict=True))
    assert not any(parameter._post_accumulate_grad_hooks for parameter in first)
    for name, is_orthogonal in (("⊥Grad", True), ("base", False), ("⊥Grad", True)):
        before = [parameter.detach().clone() for parameter in first]
        contenders[name]()
        cosines = [
            abs(float(cosine_similarity(p.grad.flatten(), w.flatten(), 0))) for p, w in zip(first, before, strict=True)
        ]
        assert (max(cosines[::2]) < 1e-5) == is_orthogonal
