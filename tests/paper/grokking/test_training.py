"""Seeds trained side by side are the seeds trained alone, and the networks are the published ones."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

import orthograd
from orthograd import calibration
from orthograd.lab.training.task import seeded
from orthograd.paper.grokking.measurement import MEASURES, calibrated, measured
from orthograd.paper.grokking.networks import Data, Networks, Transformer, mlp
from orthograd.paper.grokking.rows import QUICK, ROWS, rows_named
from orthograd.paper.grokking.training import Training, recorded_steps, sample_losses, trained

CPU = torch.device("cpu")
WIDE = {"dtype": "float64", "loss_dtype": "float64"}
SMALL = {"task": "parity", "train_share": 0.5}
FEW = 0.05
"""A share of the samples that takes little time to train on."""


def weights_after(row, seeds, steps):
    training = Training(row, seeds, CPU)
    training.advance(steps)
    return training.networks.parameters


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, "float64") for name in ("adamw", "ortho_adamw", "ortho_sgd", "decay_8", "parity_ortho_adamw")]
    + [("ortho_adamw", "float32")],
)
def test_seeds_side_by_side_are_the_seeds_alone(name, dtype):
    row = replace(ROWS[name], dtype=dtype, loss_dtype=dtype, epsilon=1e-8, train_share=FEW)
    together = weights_after(row, [0, 7], 4)
    for place, seed in enumerate([0, 7]):
        for key, alone in weights_after(row, [seed], 4).items():
            error = (together[key][place] - alone[0]).norm() / alone.norm()
            # In float32 Adam magnifies the rounding of gradients near zero.
            assert error < (1e-12 if dtype == "float64" else 1e-3)


@pytest.mark.slow
def test_transformers_side_by_side_are_those_alone_with_their_dropout():
    row = replace(ROWS["transformer_ortho_adamw"], **WIDE, train_share=FEW)
    together = weights_after(row, [2, 5], 2)
    for place, seed in enumerate([2, 5]):
        for key, alone in weights_after(row, [seed], 2).items():
            torch.testing.assert_close(together[key][place], alone[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["adamw", "ortho_adamw", "parity_ortho_adamw"])
def test_a_seed_is_an_ordinary_loop_of_torch(name):
    row = replace(ROWS[name], **WIDE, train_share=FEW)
    data = Data.of(row, [4], CPU)
    inputs, labels = (tensor[0] for tensor in data.train)
    with seeded(4):
        model = mlp(row).double()
    settings = {"lr": row.learning_rate, "betas": (0.9, row.beta2), "eps": row.epsilon, "weight_decay": 0.0}
    optimizer = torch.optim.AdamW(model.parameters(), **settings)
    if row.is_orthogonal:
        orthograd.attach(optimizer)
    for _ in range(4):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    ours = weights_after(row, [4, 5], 4)
    for key, value in model.named_parameters():
        torch.testing.assert_close(ours[key][0], value.detach(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("engine", ["auto", "reference", "torch"])
@pytest.mark.parametrize("shape", [(3, 5, 4), (3, 7), (2, 3, 4, 5)])
def test_rows_of_a_stack_are_whole_layers(engine, shape):
    """granularity="row" takes all dimensions but the first as one vector."""
    generator = torch.Generator().manual_seed(0)
    stack = nn.Parameter(torch.randn(shape, generator=generator))
    stack.grad = torch.randn(shape, generator=generator)
    layers = [nn.Parameter(layer.clone()) for layer in stack.detach()]
    for layer, gradient in zip(layers, stack.grad.clone(), strict=True):
        layer.grad = gradient.clone()
    orthograd.orthogonalize_([stack], granularity="row", engine=engine)
    orthograd.orthogonalize_(layers, engine=engine)
    for place, layer in enumerate(layers):
        torch.testing.assert_close(stack.grad[place], layer.grad, rtol=1e-5, atol=1e-6)
        assert abs((stack.grad[place] * stack[place]).sum().item()) < 1e-4


class Published(nn.Module):
    """The transformer of the published code."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(113, 128)
        self.layer = nn.TransformerEncoderLayer(128, 4)
        self.linear = nn.Linear(128, 113)

    def forward(self, x):
        return self.linear(self.layer(self.embedding(x).transpose(0, 1)).transpose(0, 1))[:, -1]


def test_the_transformer_is_the_published_one():
    theirs, ours = Published().eval(), Transformer()
    ours.load_state_dict({key.replace("linear.", "head.", 1) if key.startswith("linear.") else key: value
                          for key, value in theirs.state_dict().items()})  # fmt: skip
    tokens = torch.randint(113, (20, 2), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = ours(nn.functional.one_hot(tokens, 113).float())
        torch.testing.assert_close(logits, theirs(tokens), rtol=1e-4, atol=1e-5)


def test_dropout_keeps_the_mean_and_is_off_without_masks():
    networks = Networks(ROWS["transformer_adamw"], [0], CPU)
    shapes = [tuple(mask.shape) for mask in networks.masks(500)]
    assert shapes == [(1, 500, 2, 4), (1, 500, 128), (1, 500, 2048), (1, 500, 128)]
    for mask in networks.masks(500):
        assert float(mask.float().mean()) == pytest.approx(0.9, abs=0.02)
    inputs = Data.of(ROWS["transformer_adamw"], [0], CPU).test[0][:, :50]
    kept = [torch.full_like(mask, True) for mask in networks.masks(50)]
    scaled = networks.logits(inputs, [mask.float() * 0.9 for mask in kept])
    torch.testing.assert_close(scaled, networks.logits(inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "n", "shape"),
    [("adamw", 5107, (2, 113)), ("transformer_adamw", 5017, (2, 113)), ("parity_adamw", 1000, (43,)),
     ("float32_70", 8938, (2, 113)), ("product_adamw", 5107, (2, 113))],
)  # fmt: skip
def test_data_are_those_of_the_published_code(name, n, shape):
    row = ROWS[name]
    data = Data.of(row, [0, 1], CPU)
    (inputs, labels), (test_inputs, test_labels) = data.train, data.test
    assert inputs.shape == (2, n, *shape)
    whole = torch.cat([inputs[0], test_inputs[0]])
    assert len(whole.flatten(1).unique(dim=0)) == len(whole)  # no pair twice, and none in both parts
    assert not torch.equal(inputs[0], inputs[1])
    if row.task == "parity":
        assert torch.equal(test_labels, test_inputs[..., :3].sum(-1).long() % 2)
        return
    a, b = inputs.argmax(-1).unbind(-1)
    assert int(a.min()) == (1 if row.network == "transformer" else 0)
    assert torch.equal(labels, (a * b if row.task == "product" else a + b) % 113)


def test_a_seed_does_not_depend_on_those_beside_it():
    for row in (ROWS["parity_adamw"], ROWS["transformer_adamw"]):
        alone, beside = (Networks(row, seeds, CPU) for seeds in ([5], [1, 5]))
        for key in alone.parameters:
            assert torch.equal(alone.parameters[key][0], beside.parameters[key][1])
        for left, right in zip(alone.masks(3), beside.masks(3), strict=True):
            assert torch.equal(left[0], right[1])
        assert torch.equal(Data.of(row, [5], CPU).train[0][0], Data.of(row, [1, 5], CPU).train[0][1])


def test_the_loss_is_computed_in_its_precision():
    logits, labels = torch.tensor([[[20.0, 0.0]], [[9.0, 0.0]]]), torch.zeros(2, 1, dtype=torch.long)
    rows = [replace(ROWS["adamw"], loss_dtype=f"float{bits}") for bits in (16, 32, 64)]
    losses = [sample_losses(row, logits, labels) for row in rows]
    assert [float(loss[0, 0]) == 0 for loss in losses] == [True, True, False]
    assert [loss.dtype for loss in losses] == [torch.float16, torch.float32, torch.float64]
    stable = sample_losses(ROWS["stablemax"], logits, labels)
    torch.testing.assert_close(stable, torch.tensor([[22 / 21], [11 / 10]]).log())


def test_collapse_is_counted_exactly():
    row = replace(ROWS["parity_adamw"], **SMALL)
    networks, data = Networks(row, [0, 1], CPU), Data.of(row, [0, 1], CPU)
    with torch.no_grad():
        networks.parameters["5.weight"][1] *= 1e6  # the second seed's logits lead by far
    values = measured(networks, data, partial(sample_losses, row), row.loss)
    assert list(values) == list(MEASURES)
    logits = networks.logits(data.train[0])
    margin = logits.gather(-1, data.train[1].unsqueeze(-1)) - logits.gather(-1, 1 - data.train[1].unsqueeze(-1))
    expected = (margin > 20).double().mean((1, 2))
    assert values["zero_loss"][0] == values["zero_gradient"][0] == expected[0] == 0
    assert values["zero_loss"].tolist() == pytest.approx(expected.tolist(), abs=0.01)
    assert 0.3 < float(values["zero_gradient"][1]) <= float(values["zero_loss"][1])


def test_calibration_is_that_of_the_library():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2, 200, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(5, (2, 200), generator=generator)
    values = calibrated(logits.softmax(-1), labels)
    for place in (0, 1):
        report = calibration.evaluate(logits[place], labels[place], bins=10)
        assert float(values["ece"][place]) == pytest.approx(report.ece, abs=1e-9)
        assert float(values["confidence"][place]) == pytest.approx(report.max_softmax, abs=1e-9)
        assert 100 * float(values["test_accuracy"][place]) == pytest.approx(report.top1_accuracy)


def test_what_orthograd_removes_is_what_diagnose_says():
    row = replace(ROWS["parity_adamw"], **SMALL)
    networks, data = Networks(row, [3], CPU), Data.of(row, [3], CPU)
    values = measured(networks, data, partial(sample_losses, row), row.loss)
    with seeded(3):
        model = mlp(row)
    report = orthograd.diagnose(model, nn.CrossEntropyLoss(), (data.train[0][0], data.train[1][0]))
    assert float(values["radial"][0]) == pytest.approx(report.removed, rel=1e-4)


def test_curves_have_a_value_for_each_seed_and_step():
    row = replace(ROWS["parity_adamw"], steps=12)
    reported = []
    steps, curves = trained(row, [0, 1], CPU, reported.append)
    assert steps == reported == [0, 6, 12]
    assert {len(curve) for each in curves.values() for curve in each} == {3}
    assert {len(each) for each in curves.values()} == {2}
    assert len(recorded_steps(100_000)) == 101


def test_rows_are_chosen_by_name():
    assert [row.name for row in rows_named(QUICK)] == list(QUICK)
    assert len(rows_named([])) == len(ROWS)
    with pytest.raises(ValueError, match=r"expected rows among adamw, .*, got nonsense"):
        rows_named(["nonsense"])
