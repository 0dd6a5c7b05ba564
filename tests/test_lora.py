"""⊥Grad on peft's adapters: B that starts at zero, rank 1, DoRA's magnitudes, options for an adapter, resuming."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import orthograd

peft = pytest.importorskip("peft")
RATE = 0.01


def base():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def adapted(**options):
    torch.manual_seed(1)
    return peft.get_peft_model(base(), peft.LoraConfig(target_modules=["0", "2"], **{"r": 2, **options}))


def adapters(model, kind):
    return [parameter for name, parameter in model.named_parameters() if kind in name and parameter.requires_grad]


def adamw(model):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE, weight_decay=0.0)


def backward(model, step):
    generator = torch.Generator().manual_seed(step)
    inputs, targets = torch.randn(16, 6, generator=generator), torch.randint(3, (16,), generator=generator)
    model.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs.to(next(model.parameters()).dtype)), targets)
    loss.backward()
    return float(loss.detach())


def train(model, optimizer, steps):
    for step in steps:
        backward(model, step)
        optimizer.step()


def cosine(gradient, weight):
    return abs(float(nn.functional.cosine_similarity(gradient.flatten(), weight.flatten(), dim=0)))


@pytest.mark.parametrize("rank", [1, 2])
def test_the_first_gradient_of_b_passes_and_all_later_ones_are_projected(rank):
    model = adapted(r=rank)
    optimizer = adamw(model)
    orthograd.attach(optimizer)
    backward(model, 0)
    own = [parameter.grad.clone() for parameter in adapters(model, "lora_B")]
    optimizer.step()
    assert all(p.grad.equal(gradient) for p, gradient in zip(adapters(model, "lora_B"), own, strict=True))
    trained = adapters(model, "lora_")
    before = [parameter.detach().clone() for parameter in trained]
    backward(model, 1)
    assert max(cosine(p.grad, w) for p, w in zip(trained, before, strict=True)) > 1e-3
    optimizer.step()
    assert max(cosine(p.grad, w) for p, w in zip(trained, before, strict=True)) < 1e-5


def test_the_gradients_of_a_and_b_have_the_same_product_with_their_weights():
    """So the part that ⊥Grad removes is one number a layer: the wish to rescale BA."""
    model = adapted().double()
    train(model, adamw(model), range(3))
    backward(model, 3)
    products = [[float((p.grad * p).sum().detach()) for p in adapters(model, kind)] for kind in ("lora_A", "lora_B")]
    assert products[0] == pytest.approx(products[1], rel=1e-9)
    assert min(map(abs, products[0])) > 1e-6


def test_the_norm_of_magnitudes_changes_by_what_steps_across_them_add():
    """‖m − ηu‖² = ‖m‖² + η²‖u‖² for SGD without momentum: the gradient along m is gone."""
    model = adapted(use_dora=True).double()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    orthograd.attach(optimizer)
    magnitudes = adapters(model, "magnitude")
    assert len(magnitudes) == 2
    train(model, optimizer, range(2))
    before = [parameter.detach().clone() for parameter in magnitudes]
    train(model, optimizer, [2])
    for parameter, old in zip(magnitudes, before, strict=True):
        across = float((parameter - old).square().sum().detach())
        assert across > 0
        assert float(parameter.square().sum().detach() - old.square().sum()) == pytest.approx(across, rel=1e-6)


def test_options_for_one_of_two_adapters():
    model = adapted()
    model.add_adapter("other", peft.LoraConfig(target_modules=["0", "2"], r=2))
    model.base_model.set_adapter(["default", "other"])
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW([p for _, p in named], lr=RATE)
    orthograd.attach(optimizer, named_parameters=named, where=lambda name, _: ".other." in name)
    train(model, optimizer, range(2))
    before = {name: parameter.detach().clone() for name, parameter in named}
    backward(model, 2)
    optimizer.step()
    cosines = {name: cosine(parameter.grad, before[name]) for name, parameter in named}
    assert max(value for name, value in cosines.items() if ".other." in name) < 1e-5
    assert max(value for name, value in cosines.items() if ".default." in name) > 1e-3


def test_a_resumed_adapter_trains_on_as_if_it_had_not_stopped(tmp_path: Path):
    whole = adapted()
    optimizer = adamw(whole)
    orthograd.attach(optimizer)
    train(whole, optimizer, range(5))
    whole.save_pretrained(tmp_path)
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    train(whole, optimizer, range(5, 8))

    resumed = peft.PeftModel.from_pretrained(base(), tmp_path, is_trainable=True)
    again = adamw(resumed)
    orthograd.attach(again)
    again.load_state_dict(torch.load(tmp_path / "optimizer.pt"))
    train(resumed, again, range(5, 8))
    for ours, theirs in zip(adapters(resumed, "lora_"), adapters(whole, "lora_"), strict=True):
        assert torch.equal(ours, theirs)


def test_an_adapter_without_its_optimizer_state_takes_steps_as_large_as_without_orthograd(tmp_path: Path):
    model = adapted()
    train(model, adamw(model), range(5))
    model.save_pretrained(tmp_path)

    def first_step(*, is_orthogonal):
        resumed = peft.PeftModel.from_pretrained(base(), tmp_path, is_trainable=True)
        optimizer = adamw(resumed)
        if is_orthogonal:
            orthograd.attach(optimizer)
        before = [parameter.detach().clone() for parameter in adapters(resumed, "lora_")]
        train(resumed, optimizer, [5])
        return [float((p - w).norm().detach()) for p, w in zip(adapters(resumed, "lora_"), before, strict=True)]

    assert first_step(is_orthogonal=True) == pytest.approx(first_step(is_orthogonal=False), rel=1e-3)
