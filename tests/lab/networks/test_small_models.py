from __future__ import annotations

import pytest
import torch

from orthograd.lab.networks import MODELS


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32)])
def test_every_model_answers_for_every_class_and_learns(name, shape):
    model = MODELS[name](shape, 7)
    logits = model(torch.rand(4, *shape))
    assert logits.shape == (4, 7)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "parameters"), [("cnn", 13706), ("cnn_batchnorm", 13802), ("mlp", 26122), ("mlp_no_bias", 54800)]
)
def test_models_have_the_size_they_had(name, parameters):
    assert sum(parameter.numel() for parameter in MODELS[name]((1, 8, 8), 10).parameters()) == parameters
