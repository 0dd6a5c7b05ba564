from __future__ import annotations

import json
import random
from functools import partial

import pytest
import torch
from torch import nn

from orthograd.diagnosis import diagnose
from orthograd.lab.networks import MODELS
from tests.conftest import cosine
from tests.diagnosis.networks import SLOPE, Vector, images, output

CRITERION = nn.functional.cross_entropy


def test_two_parameters_by_hand():
    found = diagnose(Vector(), output, SLOPE)
    w, b = found["w"], found["b"]
    assert (w.cosine, w.radial, w.weight_norm, w.gradient_norm) == pytest.approx((0.8, 0.64, 2.0, 5.0))
    assert w.removed == pytest.approx(16 / 61)  # ⟨g, w⟩² / ‖w‖² of ‖g‖² = 9 + 16 + 36
    assert (w.action, b.action, b.reason) == ("act", "leave", "one element has no orthogonal direction")
    assert (b.cosine, b.removed) == (1.0, 0.0)
    assert found.loss == 17.0
    assert found.removed == w.removed


def test_rows_are_sorted_by_what_would_be_removed_and_print():
    found = diagnose(MODELS["cnn"]((1, 8, 8), 10), CRITERION, images())
    shares = [row.removed for row in found.rows]
    assert shares == sorted(shares, reverse=True)
    text = str(found)
    assert text.startswith("⊥Grad would remove ")
    assert [line.split()[0] for line in text.splitlines()[4:12]] == [row.name for row in found.rows]
    assert json.loads(json.dumps(found.as_dict()))["rows"][0]["name"] == found.rows[0].name


def test_shares_are_those_of_the_gradients():
    model, batch = MODELS["cnn"]((1, 8, 8), 10), images()
    found = diagnose(model, CRITERION, batch, why=False)
    CRITERION(model(batch[0]), batch[1]).backward()
    for name, p in model.named_parameters():
        assert abs(found[name].cosine) == pytest.approx(cosine(p.grad, p), rel=1e-6)
        assert found[name].kind is None


def test_rows_and_the_whole_network_as_vectors():
    model, batch = MODELS["mlp"]((1, 8, 8), 10), images()
    CRITERION(model(batch[0]), batch[1]).backward()
    pairs = {name: (p.grad.double(), p.detach().double()) for name, p in model.named_parameters()}
    energy = sum(float(g.square().sum()) for g, _ in pairs.values())
    by_row = diagnose(model, CRITERION, batch, granularity="row", why=False)
    g, w = pairs["5.weight"]
    radial = ((g * w).sum(1) ** 2 / (w * w).sum(1)).sum()
    assert by_row["5.weight"].removed == pytest.approx(float(radial) / energy, rel=1e-5)
    assert by_row["5.bias"].reason == "rows of one element have no orthogonal direction"
    whole = diagnose(model, CRITERION, batch, granularity="model", why=False)
    g, w = (torch.cat([pair[i].flatten() for pair in pairs.values()]) for i in (0, 1))
    assert sum(row.removed for row in whole.rows) == pytest.approx(float((g @ w) ** 2 / (w @ w)) / energy, abs=1e-6)


def test_where_and_frozen_and_unreached_parameters_are_left_and_told():
    model = nn.ModuleDict({"a": nn.Linear(3, 2), "b": nn.Linear(3, 2)})
    model["a"].bias.requires_grad_(False)
    found = diagnose(
        model, lambda m, x: m["a"](x).square().sum(), torch.randn(4, 3), where=lambda name, p: name != "a.weight"
    )
    assert found["a.weight"].reason == "excluded by where"
    assert found["a.bias"].reason == "frozen: requires_grad is False"
    assert found["b.weight"].reason == "the loss does not depend on it"
    assert {row.action for row in found.rows} == {"leave"}
    assert found["a.bias"].weight_norm == pytest.approx(float(model["a"].bias.norm()))


def test_zero_weights_and_zero_gradients_are_left():
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.bias)
    found = diagnose(model, lambda m, x: m(x).sum(), torch.zeros(4, 3))
    assert found["weight"].reason == "its gradient is zero"
    assert found["bias"].reason == "zero, so it has no direction before its first step"
    assert found["bias"].cosine is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64])
def test_other_dtypes(dtype):
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4, bias=False)).to(dtype)
    found = diagnose(model, lambda m, x: m(x).abs().square().sum().real, torch.randn(7, 6).to(dtype))
    assert found["1.weight"].kind == "outputs"
    assert found["1.weight"].cosine > 0.01
    assert found["0.weight"].action == "act"


def state_of(model):
    tensors = [*model.parameters(), *model.buffers()]
    return [t.detach().clone() for t in tensors], [t.data_ptr() for t in tensors]


@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_left_changed(training):
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 10)
    ).train(training)
    model[2].train(not training)
    model[0].bias.requires_grad_(False)
    model[5].weight.grad = torch.randn_like(model[5].weight)
    batch = images()
    grads = [(p.grad, None if p.grad is None else p.grad.clone(), p.requires_grad) for p in model.parameters()]
    modes = [module.training for module in model.modules()]
    values, places = state_of(model)
    live = CRITERION(model.eval()(batch[0]), batch[1])  # a graph that is still to be used
    for module, mode in zip(model.modules(), modes, strict=True):
        module.training = mode
    random_states = torch.get_rng_state(), random.getstate()
    diagnose(model, CRITERION, batch)
    assert torch.equal(torch.get_rng_state(), random_states[0])
    assert random.getstate() == random_states[1]
    after, places_after = state_of(model)
    assert places == places_after
    assert all(torch.equal(a, b) for a, b in zip(values, after, strict=True))
    assert modes == [module.training for module in model.modules()]
    for p, (grad, value, wants) in zip(model.parameters(), grads, strict=True):
        assert p.grad is grad
        assert p.requires_grad == wants
        assert grad is None or torch.equal(grad, value)
    if not training:
        live.backward()


def test_a_loss_that_fails_leaves_the_weights_alone():
    model, calls = nn.Linear(3, 2), []

    def fails_later(m, x):
        calls.append(1)
        if len(calls) > 3:
            raise RuntimeError("no more")
        return m(x).square().sum()

    before = state_of(model)[0]
    with pytest.raises(RuntimeError, match="no more"):
        diagnose(model, fails_later, torch.randn(4, 3))
    assert all(torch.equal(a, b) for a, b in zip(before, state_of(model)[0], strict=True))


def test_no_grad_outside_is_no_matter():
    with torch.no_grad():
        assert diagnose(Vector(), output, SLOPE)["w"].action == "act"


@pytest.mark.parametrize(
    ("model", "loss", "batch", "error", "words"),
    [
        ("net", output, SLOPE, TypeError, r"expected a torch.nn.Module, got str"),
        (Vector(), "loss", SLOPE, TypeError, r"expected loss\(model, batch\) or a criterion"),
        (Vector(), nn.MSELoss(), SLOPE, ValueError, r"expected batch = \(inputs, targets\) .* got Tensor"),
        (Vector(), nn.functional.mse_loss, (SLOPE,), ValueError, r"got a sequence of length 1"),
        (Vector(), lambda m, x: m.w * 1, SLOPE, ValueError, r"a loss of one real number, got a tensor of shape \(2,\)"),
        (Vector(), lambda m, x: 1.0, SLOPE, ValueError, r"got float"),
        (Vector(), lambda m, x: m(x).detach(), SLOPE, ValueError, r"got one without a graph"),
        (nn.ReLU(), output, SLOPE, ValueError, r"got none with requires_grad"),
    ],
)
def test_wrong_input_is_refused_by_name(model, loss, batch, error, words):
    with pytest.raises(error, match=words):
        diagnose(model, loss, batch)


def own_criterion(outputs, targets):
    return CRITERION(outputs, targets)


def careful_criterion(outputs, targets):
    assert isinstance(outputs, torch.Tensor), "outputs must be a tensor"
    return CRITERION(outputs, targets)


@pytest.mark.parametrize(
    "criterion",
    [
        own_criterion,
        careful_criterion,
        partial(nn.functional.cross_entropy, label_smoothing=0.0),
        lambda outputs, targets: -outputs.log_softmax(1).gather(1, targets[:, None]).mean(),
        lambda outputs, targets: -outputs.log_softmax(1)[torch.arange(len(targets)), targets].mean(),
    ],
)
def test_a_criterion_may_be_a_plain_function_of_outputs_and_targets(criterion):
    model, batch = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), images()
    found = diagnose(model, criterion, batch)
    expected = diagnose(model, nn.CrossEntropyLoss(), batch)
    assert found.loss == pytest.approx(expected.loss)
    assert [(row.name, row.action, row.kind) for row in found.rows] == [
        (row.name, row.action, row.kind) for row in expected.rows
    ]


def test_a_plain_function_that_fails_both_ways_says_how_it_was_called():
    with pytest.raises(
        TypeError, match=r"raised .*Linear.* as loss\(model, batch\) and .*mat.* as criterion\(outputs, targets\)"
    ):
        diagnose(nn.Linear(3, 2), own_criterion, (torch.randn(4, 5), torch.zeros(4).long()))
    with pytest.raises(TypeError, match=r"as loss\(model, batch\) and .*expected batch = \(inputs, targets\)"):
        diagnose(nn.Linear(3, 2), own_criterion, torch.randn(4, 3))


def test_an_error_of_a_loss_that_runs_the_network_is_its_own():
    def broken(model, batch):
        return model(batch[0]).no_such_thing

    with pytest.raises(AttributeError, match="no_such_thing"):
        diagnose(nn.Linear(3, 2), broken, (torch.randn(4, 3), torch.zeros(4).long()))
    with pytest.raises(TypeError, match="must be Tensor, not str"):
        diagnose(nn.Linear(3, 2), lambda model, batch: model("words"), (torch.randn(4, 3), torch.zeros(4).long()))


def changes_its_batch(model, batch):
    return CRITERION(model(batch[0].mul_(2)), batch[1])


OWN_GENERATOR = torch.Generator().manual_seed(0)


def draws_from_a_generator_of_its_own(model, batch):
    noise = torch.randn(batch[0].shape, generator=OWN_GENERATOR)
    return CRITERION(model(batch[0] + noise), batch[1])


@pytest.mark.parametrize("loss", [changes_its_batch, draws_from_a_generator_of_its_own])
def test_a_loss_that_does_not_repeat_explains_nothing_and_says_so(loss):
    model, batch = nn.Linear(3, 2), (torch.randn(9, 3), torch.arange(9) % 2)
    found = diagnose(model, loss, batch)
    assert {row.kind for row in found.rows} == {None}
    assert any("Two calls on the same batch gave losses of" in warning for warning in found.warnings)
    assert not any("on the same batch" in warning for warning in diagnose(model, CRITERION, batch).warnings)


def test_an_empty_batch_is_told():
    found = diagnose(nn.Linear(3, 2), nn.CrossEntropyLoss(), (torch.zeros(0, 3), torch.zeros(0).long()))
    assert any("this batch gives nothing to diagnose" in caution for caution in found.warnings)


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(KeyError, match="expected one of the parameters w, b, got c"):
        diagnose(Vector(), output, SLOPE)["c"]


class Tokens(nn.Module):
    """A transformer with a normalization without scale, a gate that starts at zero, and a learned temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
        self.mixed, self.norm = nn.Linear(16, 16, bias=False), nn.LayerNorm(16, elementwise_affine=False)
        self.gate, self.temperature = nn.Parameter(torch.zeros(16)), nn.Parameter(torch.tensor(1.0))
        self.head = nn.Linear(16, 20, bias=False)

    def forward(self, tokens):
        hidden = self.norm(self.mixed(self.block(self.embedding(tokens)))) * (1 + self.gate)
        return self.head(hidden)[:, -1] * self.temperature


def test_a_transformer_of_ones_own():
    model, batch = Tokens(), (torch.randint(20, (32, 7)), torch.randint(20, (32,)))
    found = diagnose(model, nn.CrossEntropyLoss(), batch)
    assert (found["mixed.weight"].kind, found["mixed.weight"].action) == ("invariant", "leave")
    assert found["head.weight"].kind == "outputs"
    assert found["temperature"].reason == "one element has no orthogonal direction"
    assert found["gate"].reason == "zero, so it has no direction before its first step"
    assert found["block.linear1.weight"].kind == "function"
    assert diagnose(model, nn.CrossEntropyLoss(), batch, scalars=True)["temperature"].action == "freeze"
