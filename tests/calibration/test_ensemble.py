"""Ensemble temperature scaling, and ensembles of models."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize
import torch
from torch.nn.functional import cross_entropy

from orthograd.calibration import EnsembleTemperatureScaling, TemperatureScaling, ensemble_logits
from orthograd.calibration.calibrators.ensemble import mixture_weights
from tests.calibration.samples import predictions


def noisy(n=500, classes=4, noise=0.2, scale=3.0, seed=0):
    """Logits whose softmax is right, but for a share of labels that are noise; then scaled."""
    generator = torch.Generator().manual_seed(seed)
    z = 3 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = ((1 - noise) * z.softmax(1) + noise / classes).multinomial(1, generator=generator)[:, 0]
    return scale * z, labels


def best_weights(p, share):
    """The weights by scipy, from the definition."""
    constraint = {"type": "eq", "fun": lambda w: w.sum() - 1}
    start = np.full(p.shape[1], 1 / p.shape[1])
    return scipy.optimize.minimize(
        lambda w: -float(share @ np.log(p @ w)),
        start,
        method="SLSQP",
        bounds=[(0, 1)] * p.shape[1],
        constraints=constraint,
        options={"ftol": 1e-15, "maxiter": 1000},
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("noise", "scale"), [(0.2, 1.0), (0.2, 3.0), (0.0, 1.0), (0.0, 3.0), (0.6, 0.3)])
def test_scipy_finds_no_better_weights(noise, scale, weighted):
    logits, labels = noisy(noise=noise, scale=scale)
    weights = torch.rand(500, generator=torch.Generator().manual_seed(1), dtype=torch.float64) if weighted else None
    scaling = EnsembleTemperatureScaling().fit(logits, labels, weights=weights)
    alone = TemperatureScaling().fit(logits, labels, weights=weights)
    assert torch.equal(scaling.temperature, alone.temperature)
    parts = [alone.probabilities(logits), logits.softmax(1), torch.full_like(logits, 0.25)]
    p = torch.stack([part[torch.arange(500), labels] for part in parts], 1).numpy()
    share = np.full(500, 1 / 500) if weights is None else (weights / weights.sum()).numpy()
    theirs, ours = best_weights(p, share), scaling.weights.numpy()
    assert -share @ np.log(p @ ours) <= theirs.fun + 1e-12
    np.testing.assert_allclose(ours, theirs.x, atol=2e-4)  # the loss is flat there: scipy stops early
    assert scaling.gradient < 1e-10
    expected = sum(weight * part for weight, part in zip(scaling.weights, parts, strict=True))
    torch.testing.assert_close(scaling.probabilities(logits), expected)


def test_the_certificate_bounds_the_distance_from_the_minimum():
    p = torch.rand(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    share = torch.full((50,), 0.02, dtype=torch.float64)
    best, bound = mixture_weights(p, share)
    assert 0 <= bound < 1e-10
    for other in torch.eye(4, dtype=torch.float64) * 0.9 + 0.025:
        distance = share @ (p @ best).log() - share @ (p @ other).log()
        assert 0 < distance <= ((share / (p @ other)) @ p).max() - 1


def test_by_hand_labels_that_the_logits_do_not_predict_are_uniform():
    logits = torch.tensor([[5.0, 0.0], [0.0, 5.0]] * 4)
    scaling = EnsembleTemperatureScaling().fit(logits, torch.tensor([0, 0, 1, 1] * 2))
    torch.testing.assert_close(scaling.probabilities(logits), torch.full((8, 2), 0.5))


def test_by_hand_a_part_that_only_hurts_has_no_weight():
    p = torch.tensor([[0.9, 0.5, 0.1]] * 3, dtype=torch.float64)
    weights, bound = mixture_weights(p, torch.full((3,), 1 / 3, dtype=torch.float64))
    assert weights.tolist() == [1, 0, 0]
    assert bound < 1e-12


def test_the_loss_is_at_most_that_of_temperature_scaling_and_the_ranking_stays():
    logits, labels = noisy()
    scaling, alone = (kind().fit(logits, labels) for kind in (EnsembleTemperatureScaling, TemperatureScaling))
    assert cross_entropy(scaling(logits), labels) < cross_entropy(alone(logits), labels) - 1e-3
    assert torch.equal(scaling(logits).argsort(1), logits.argsort(1))
    held_out, truth = noisy(4000, seed=1)
    assert cross_entropy(scaling(held_out), truth) < cross_entropy(alone(held_out), truth)


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e-4])
def test_extreme_logits_and_a_single_sample_are_solved(scale):
    logits, labels = predictions(60, 3)
    for rows in (slice(None), slice(0, 1)):
        scaling = EnsembleTemperatureScaling().fit(scale * logits[rows], labels[rows])
        assert -1e-15 < scaling.gradient < 1e-9
        assert bool(scaling(scale * logits).isfinite().all())
        assert float(scaling.weights.sum()) == pytest.approx(1, abs=1e-15)
        assert bool((scaling.weights >= 0).all())


def test_a_class_at_minus_infinity_would_get_its_share_back_and_is_refused():
    logits, labels = predictions(60, 3)
    scaling = EnsembleTemperatureScaling().fit(logits, labels)
    logits[0, 1] = -math.inf
    with pytest.raises(ValueError, match="expected finite logits, got -inf in row 0, class 1"):
        scaling(logits)


def test_gradients_and_compilation_pass():
    logits, labels = noisy(40)
    scaling = EnsembleTemperatureScaling().fit(logits, labels)
    assert torch.autograd.gradcheck(scaling, (logits[:4].requires_grad_(),))
    compiled = torch.compile(scaling, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(logits), scaling(logits))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_an_ensemble_averages_probabilities(dtype):
    members = 4 * torch.randn(3, 20, 5, generator=torch.Generator().manual_seed(0))
    pooled = ensemble_logits(members.to(dtype))
    assert pooled.dtype == dtype
    tolerance = 0.02 if dtype == torch.bfloat16 else 1e-6
    expected = members.double().softmax(2).mean(0)
    torch.testing.assert_close(pooled.double().softmax(1), expected, rtol=0, atol=tolerance)
    maps = members.to(dtype).movedim(2, 1).reshape(3, 5, 4, 5)
    torch.testing.assert_close(ensemble_logits(maps, classes_dim=1).flatten(1).T, pooled)
    for shape, classes_dim in (((5,), -1), ((3, 4), 0), ((3, 4), 2), ((3, 4), -2)):
        with pytest.raises(ValueError, match=r"expected logits \(members, …\) with classes in dimension"):
            ensemble_logits(torch.zeros(shape), classes_dim=classes_dim)


def test_averaging_members_lowers_confidence_so_that_calibration_comes_after_it():
    generator = torch.Generator().manual_seed(0)
    truth = 2 * torch.randn(4000, 5, generator=generator, dtype=torch.float64)
    labels = truth.softmax(1).multinomial(1, generator=generator)[:, 0]
    members = torch.stack([truth + 1.5 * torch.randn(4000, 5, generator=generator) for _ in range(4)])
    calibrated = torch.stack([TemperatureScaling().fit(each, labels)(each) for each in members])
    after = TemperatureScaling().fit(ensemble_logits(calibrated), labels)
    assert float(after.temperature) < 0.95  # calibrated members are an underconfident ensemble
