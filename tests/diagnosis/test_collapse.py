"""The recorder counts samples whose loss or gradient is exactly zero."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import orthograd


def setup(every=1, classes=3, **options):
    model = nn.Linear(4, classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return model, optimizer, orthograd.Recorder(optimizer, every=every, outputs=model, **options)


def batch(model, confident):
    """Eight samples, the first ones with logits that lead by far."""
    inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    labels = model(inputs).argmax(1)
    inputs[:confident] *= 1e6
    return inputs, model(inputs).argmax(1) if confident else labels


@pytest.mark.parametrize("confident", [0, 3, 8])
def test_samples_without_gradient_are_counted(confident):
    model, optimizer, recorder = setup()
    with torch.no_grad():
        model.bias.zero_()
    inputs, labels = batch(model, confident)
    losses = cross_entropy(model(inputs), labels, reduction="none")
    recorder.losses(losses)
    losses.mean().backward()
    optimizer.step()
    assert recorder.collapse() == {"zero_gradient": [confident / 8], "zero_loss": [confident / 8]}
    assert recorder.as_dict()["collapse"] == recorder.collapse()


def test_only_recorded_steps_are_counted():
    model, optimizer, recorder = setup(every=3)
    for step in range(7):
        optimizer.zero_grad()
        cross_entropy(model(torch.zeros(2, 4)), torch.tensor([0, 1])).backward()
        optimizer.step()
        assert len(recorder.collapse()["zero_gradient"]) == step // 3 + 1
    assert recorder.steps == [0, 3, 6]
    assert recorder.collapse() == {"zero_gradient": [0.0] * 3, "zero_loss": [None] * 3}


def test_accumulated_batches_count_together():
    model, optimizer, recorder = setup()
    for gradient in (torch.zeros(2, 3), torch.ones(6, 3)):
        model(torch.ones(len(gradient), 4)).backward(gradient)
    optimizer.step()
    assert recorder.collapse()["zero_gradient"] == [0.25]


def test_a_closure_is_counted():
    model, optimizer, recorder = setup()

    def closure():
        optimizer.zero_grad()
        loss = cross_entropy(model(torch.ones(2, 4)), torch.tensor([0, 1]))
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
    assert recorder.collapse()["zero_gradient"] == [0.0, 0.0]


def test_positions_of_an_image_are_samples():
    model = nn.Conv2d(1, 3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = orthograd.Recorder(optimizer, outputs=model)
    gradient = torch.zeros(2, 3, 4, 4)
    gradient[0, 1, 0, 0] = 1.0
    model(torch.ones(2, 1, 4, 4)).backward(gradient)
    optimizer.step()
    assert recorder.collapse()["zero_gradient"] == [31 / 32]


def test_without_outputs_nothing_is_counted_and_removing_ends_it():
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = orthograd.Recorder(optimizer)
    cross_entropy(model(torch.ones(2, 4)), torch.tensor([0, 1])).backward()
    optimizer.step()
    assert recorder.collapse() == {"zero_gradient": [None], "zero_loss": [None]}
    assert "collapse" not in recorder.as_dict()
    model, optimizer, recorder = setup()
    recorder.remove()
    assert not model._forward_hooks
    recorder.losses(torch.zeros(3))
    assert recorder.collapse() == {"zero_gradient": [], "zero_loss": []}


def test_outputs_that_are_no_module_are_refused():
    with pytest.raises(TypeError, match="expected outputs to be the module that returns the logits, got Tensor"):
        orthograd.Recorder(torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1), outputs=torch.ones(2))
