from __future__ import annotations

import pytest
import sklearn.calibration
import torch

from orthograd.lab.bench import suite
from orthograd.lab.bench.step import NETWORKS, peak

CPU = torch.device("cpu")


def test_peak_counts_what_is_allocated_at_once():
    assert 4 <= peak(CPU, lambda: torch.zeros(1 << 20) + 1) <= 8.1
    assert peak(CPU, lambda: None) == 0


@pytest.mark.parametrize(
    ("network", "tensors", "elements"), [("ResNet-18", 62, 11_173_962), ("GPT-2 small", 148, 124_439_808)]
)
def test_networks_have_the_size_they_say(network, tensors, elements):
    shapes = NETWORKS[network]()
    assert len(shapes) == tensors
    assert sum(torch.Size(shape).numel() for shape in shapes) == elements


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"expected names of optimizer, .*, got speed"):
        suite.chosen(["step", "speed"])


@pytest.mark.slow
def test_quick_suite_measures_every_claim():
    claims = list(suite.measured(suite.chosen(["optimizer"]), CPU, quick=True))
    whats = {"|cos(g⊥, w)|", "|‖ĝ‖/‖g‖ − 1|", "|cos(Δ, w)|", "extra memory", "step"}
    assert {claim.key.what for claim in claims} == whats
    assert all(claim.holds for claim in claims if claim.key.what != "step")  # benchmarks measure time, not tests
    assert all(claim.value > 0 for claim in claims)


@pytest.mark.slow
def test_quick_calibration_suite_measures_every_claim():
    claims = list(suite.measured(suite.chosen(["calibration"]), CPU, quick=True))
    whats = {"metrics", "error of metrics", "loss above the minimum after fitting a temperature", "vector scaling"}
    whats |= {"|ECE − 0.4|", "metrics of maps", "extra memory of metrics"}
    whats |= {"fitting a temperature"} if hasattr(sklearn.calibration, "_TemperatureScaling") else set()
    assert {claim.key.what for claim in claims} == whats
    assert all(claim.holds for claim in claims if "time" not in claim.key.unit)  # benchmarks measure time
