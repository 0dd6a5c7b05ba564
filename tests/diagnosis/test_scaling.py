"""Why a layer is untouched: measured on networks whose answer is known."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from orthograd.diagnosis import diagnose
from orthograd.lab.networks import MODELS
from tests.diagnosis.networks import images

CRITERION = nn.functional.cross_entropy


@pytest.mark.parametrize("steps", [0, 40])
def test_convolutions_before_batch_norm_are_invariant_and_the_head_is_not(steps):
    model, batch = MODELS["cnn_batchnorm"]((1, 8, 8), 10), images(64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        CRITERION(model(batch[0]), batch[1]).backward()
        optimizer.step()
    found = diagnose(model, CRITERION, batch)
    for name in ("0.weight", "4.weight"):
        assert found[name].kind == "rows invariant"
        assert (found[name].action, found[name].removed) == ("leave", 0.0)
        assert abs(found[name].cosine) < 1e-3
    for name in ("0.bias", "4.bias"):
        assert (found[name].kind, found[name].action) == ("idle", "leave")
    for name in ("11.weight", "11.bias"):
        assert (found[name].kind, found[name].action) == ("part of outputs", "act")
    assert found["9.weight"].kind == "function"


def test_without_batch_norm_nothing_is_invariant():
    found = diagnose(MODELS["cnn"]((1, 8, 8), 10), CRITERION, images())
    assert {row.kind for row in found.rows} == {"function", "part of outputs"}


def test_in_eval_mode_batch_norm_hides_nothing():
    found = diagnose(MODELS["cnn_batchnorm"]((1, 8, 8), 10).eval(), CRITERION, images())
    assert found["0.weight"].kind == "function"
    assert any("in eval mode" in warning for warning in found.warnings)


def test_layer_norm_makes_a_layer_invariant_as_a_whole_only():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16, bias=False), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 10))
    found = diagnose(model, CRITERION, images())
    assert found["1.weight"].kind == "invariant"
    assert found["4.weight"].kind == "part of outputs"


def test_weight_norm_makes_the_direction_invariant_and_not_the_length():
    model = nn.Sequential(nn.Flatten(), weight_norm(nn.Linear(64, 16)), nn.ReLU(), nn.Linear(16, 10))
    found = diagnose(model, CRITERION, images())
    assert found["1.parametrizations.weight.original1"].kind == "rows invariant"
    assert found["1.parametrizations.weight.original0"].kind == "function"


def test_a_head_without_bias_rescales_the_outputs():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10, bias=False))
    found = diagnose(model, CRITERION, images())
    assert found["3.weight"].kind == "outputs"
    assert "changes the confidence" in found["3.weight"].reason


def test_a_loss_that_normalises_outputs_makes_every_layer_of_a_homogeneous_network_invariant():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16, bias=False), nn.ReLU(), nn.Linear(16, 8, bias=False))

    def contrast(m, batch):
        return CRITERION(5 * nn.functional.normalize(m(batch[0]), dim=1), batch[1] % 8)

    found = diagnose(model, contrast, images())
    assert [row.kind for row in found.rows] == ["invariant", "invariant"]
    assert any("almost nothing" in warning for warning in found.warnings)


def test_orthogonal_by_chance_is_not_called_invariant():
    model = nn.Linear(2, 1, bias=False)
    model.weight.data = torch.tensor([[1.0, 0.0]])
    found = diagnose(model, lambda m, x: (m(x) - x[:, :1]).square().sum() + m(x)[1], torch.tensor([[1.0, 0], [0, 1.0]]))
    assert found["weight"].action == "leave"
    assert found["weight"].reason.startswith("orthogonal already on this batch, by chance")


def test_dropout_is_the_same_in_every_pass():
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 32, bias=False), nn.Dropout(0.5), nn.LayerNorm(32), nn.Linear(32, 10)
    )
    assert diagnose(model, CRITERION, images())["1.weight"].kind == "invariant"


def test_without_why_no_further_pass_is_taken():
    passes = []

    def counted(m, batch):
        passes.append(1)
        return CRITERION(m(batch[0]), batch[1])

    model = MODELS["mlp"]((1, 8, 8), 10)
    diagnose(model, counted, images(), why=False)
    assert len(passes) == 1
    diagnose(model, counted, images())
    assert len(passes) <= 2 + 4 * 6


def test_outputs_with_logits_beside_a_loss_are_read():
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(64, 10, bias=False)

        def forward(self, batch):
            class Out(dict):
                __getattr__ = dict.get

            logits = self.head(batch[0].flatten(1))
            return Out(loss=CRITERION(logits, batch[1]), logits=logits)

    assert diagnose(Named(), lambda m, b: m(b).loss, images())["head.weight"].kind == "outputs"
