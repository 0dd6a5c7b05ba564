"""⊥Grad beside torch's gradient scaler and compiler."""

from __future__ import annotations

import pytest
import torch
from torch import optim

import orthograd
from tests.conftest import loss_of
from tests.test_contract import by_hand, made, twins


@pytest.mark.parametrize("fused", [True, False])
def test_grad_scaler_skips_the_step_when_a_gradient_is_infinite(fused):
    attached, manual = twins()
    first, second = (optim.SGD(m.parameters(), lr=0.1, momentum=0.9, fused=fused) for m in (attached, manual))
    orthograd.attach(first)
    scalers = [torch.amp.GradScaler("cpu", init_scale=8.0) for _ in range(2)]
    for step in range(4):
        for model, optimizer, scaler in zip((attached, manual), (first, second), scalers, strict=True):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            scaler.scale(loss * (float("inf") if step == 2 else 1)).backward()
            if optimizer is second:
                scaler.unscale_(second)
                by_hand(second)()
            scaler.step(optimizer)
            scaler.update()
    assert all(p.isfinite().all() for p in attached.parameters())
    for a, b in zip(attached.parameters(), manual.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(  # each optimizer and each granularity with both projections
    ("name", "granularity", "project"),
    [
        ("SGD with momentum", "tensor", "gradient"),
        ("SGD with momentum", "row", "update"),
        ("AdamW", "row", "gradient"),
        ("AdamW", "model", "update"),
        ("RMSprop", "model", "gradient"),
        ("RMSprop", "tensor", "update"),
    ],
)
def test_compiled_step_equals_the_eager_one(name, granularity, project):
    # No batch norm here: behind it a bias has a gradient of pure rounding, which Adam would blow up.
    models = [torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [made(name, model) for model in models]
    for optimizer in optimizers:
        orthograd.attach(optimizer, granularity=granularity, project=project)
    steps = [optimizers[0].step, torch.compile(optimizers[1].step)]
    for number in range(3):
        for model, optimizer, step in zip(models, optimizers, steps, strict=True):
            optimizer.zero_grad()
            loss_of(torch.nn.Sequential(torch.nn.Flatten(), model), number).backward()
            step()
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
