"""docs/migration.md: mapped calls give equal numbers, and what it says differs does."""

from __future__ import annotations

import copy
import importlib.metadata
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import orthograd
from orthograd import calibration
from tests.calibration.samples import predictions

PAGE = (Path(__file__).parent.parent / "docs" / "migration.md").read_text(encoding="utf-8")


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


def trained(model, optimizer):
    """The parameters after five steps."""
    for step in range(5):
        seeded = torch.Generator().manual_seed(step)
        inputs, labels = torch.randn(8, 8, generator=seeded), torch.randint(3, (8,), generator=seeded)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return list(model.parameters())


def test_the_blocks_of_the_page_run():
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S):
        exec(block, names)
    assert names["metrics"].ece >= 0


@pytest.mark.parametrize("name", ["pytorch_optimizer", "torchmetrics", "netcal"])
def test_the_page_names_the_versions_it_was_tested_with(name):
    (told,) = set(re.findall(rf"{name} (\d+\.\d+)\.\d+", PAGE))
    if not importlib.metadata.version(name).startswith(f"{told}."):
        pytest.skip(f"{name} {importlib.metadata.version(name)} is installed")


# The published form


def test_the_published_form_is_the_optimizer_itself_with_its_momentum():
    model = network()
    optimizer = orthograd.OrthoGrad(model.parameters(), torch.optim.SGD, renormalize=True, lr=0.1, momentum=0.9)
    other = copy.deepcopy(model)
    attached = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    orthograd.attach(attached)
    torch.testing.assert_close(trained(model, optimizer), trained(other, attached), rtol=0, atol=0)
    assert isinstance(optimizer, torch.optim.SGD)
    assert all("momentum_buffer" in state for state in optimizer.state_dict()["state"].values())


def test_the_old_keyword_works_with_a_hint():
    with pytest.warns(FutureWarning, match="grad_renormalization is called renormalize here"):
        orthograd.OrthoGrad(network().parameters(), torch.optim.SGD, grad_renormalization=True, lr=0.1)


# pytorch_optimizer


def test_steps_are_those_of_pytorch_optimizer():
    theirs = pytest.importorskip("pytorch_optimizer")
    one, other = network(), network()
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4}
    wrapped = theirs.OrthoGrad(torch.optim.SGD(one.parameters(), **settings))
    own = torch.optim.SGD(other.parameters(), **settings)
    orthograd.attach(own)
    torch.testing.assert_close(trained(one, wrapped), trained(other, own), rtol=1e-4, atol=1e-6)


def test_its_factory_with_the_option_is_its_factory_with_attach():
    theirs = pytest.importorskip("pytorch_optimizer")
    one, other = network(), network()
    settings = {"lr": 0.01, "weight_decay": 0.01}
    wrapped = theirs.create_optimizer(one, "adamw", use_orthograd=True, **settings)
    own = theirs.create_optimizer(other, "adamw", **settings)
    orthograd.attach(own)
    torch.testing.assert_close(trained(one, wrapped), trained(other, own), rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore:⊥Grad acts on no parameter")
def test_its_one_element_parameters_never_change_and_ours_do():
    theirs = pytest.importorskip("pytorch_optimizer")
    weights = [torch.nn.Parameter(torch.tensor([2.0])) for _ in range(2)]
    own = torch.optim.SGD(weights[1:], lr=0.1)
    orthograd.attach(own)
    for weight, optimizer in zip(weights, (theirs.OrthoGrad(torch.optim.SGD(weights[:1], lr=0.1)), own), strict=True):
        weight.grad = torch.ones(1)
        optimizer.step()
    assert [weight.item() for weight in weights] == pytest.approx([2.0, 1.9])


# Metrics


def test_calibration_errors_are_those_of_torchmetrics_with_its_bins():
    classification = pytest.importorskip("torchmetrics.classification")
    logits, labels = predictions()
    ours = calibration.evaluate(logits, labels, bins=15)
    for norm, name in (("l1", "ece"), ("l2", "ece_l2"), ("max", "mce")):
        theirs = classification.MulticlassCalibrationError(10, norm=norm)  # 15 bins
        assert getattr(ours, name) == pytest.approx(float(theirs(logits.softmax(1), labels)), abs=1e-6), name
    assert abs(calibration.evaluate(logits, labels).ece - ours.ece) > 1e-6  # 10 bins are another number


def test_errors_are_those_of_netcal_with_the_defaults_of_both():
    metrics = pytest.importorskip("netcal.metrics")
    logits, labels = predictions()
    probabilities = logits.softmax(1)
    ours = calibration.evaluate_probabilities(probabilities, labels)
    for theirs, value in ((metrics.ECE(), ours.ece), (metrics.MCE(), ours.mce)):
        assert value == pytest.approx(theirs.measure(probabilities.numpy(), labels.numpy()), abs=1e-9)


def test_a_confidence_of_one_is_in_the_last_bin_here_and_in_netcal_and_not_in_torchmetrics():
    netcal, torchmetrics = (pytest.importorskip(name) for name in ("netcal.metrics", "torchmetrics.classification"))
    probabilities = torch.tensor([[0.95, 0.03, 0.02], [1.0, 0.0, 0.0], [0.1, 0.2, 0.7]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 2])
    # (0.9, 1] has the first two: |0.975 − 0.5| · ⅔; (0.6, 0.7] the third: 0.3 · ⅓.
    expected = (0.475 * 2 + 0.3) / 3
    assert calibration.evaluate_probabilities(probabilities, labels).ece == pytest.approx(expected)
    assert netcal.ECE().measure(probabilities.numpy(), labels.numpy()) == pytest.approx(expected)
    theirs = torchmetrics.MulticlassCalibrationError(3, n_bins=10)(probabilities, labels)
    assert float(theirs) == pytest.approx((0.05 + 1 + 0.3) / 3)


def test_netcal_takes_two_different_labels_for_a_binary_problem():
    metrics = pytest.importorskip("netcal.metrics")
    probabilities, labels = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]), np.array([0, 1])
    with pytest.raises(RuntimeError, match="binary"):
        metrics.ECE().measure(probabilities, labels)
    assert calibration.evaluate_probabilities(probabilities, labels).ece == pytest.approx(0.2)
