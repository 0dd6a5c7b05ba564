"""Temperature scaling: the exact optimum, and a proof of it."""

from __future__ import annotations

import copy
import math
import warnings

import numpy as np
import pytest
import sklearn.calibration
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from orthograd import calibration
from orthograd.calibration import CalibrationWarning, NotFittedError, TemperatureScaling, fit_temperatures


def problem(temperature, *, n=10_000, classes=10, spread=3.0, seed=0):
    """Logits whose softmax at a temperature is just how the labels are drawn."""
    generator = torch.Generator().manual_seed(seed)
    calibrated = spread * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(calibrated.softmax(1), 1, generator=generator)[:, 0]
    return temperature * calibrated, labels


def exact_loss(logits, labels, temperature):
    """In extended precision where numpy has it."""
    z = logits.double().numpy().astype(np.longdouble) / np.longdouble(temperature)
    z = z - z.max(1, keepdims=True)
    return (np.log(np.exp(z).sum(1)) - z[np.arange(len(z)), labels.numpy()]).mean()


def least_loss(logits, labels, near):
    """The minimum near a temperature, by golden section in extended precision."""
    low, high, golden = np.longdouble(near) * 0.9999, np.longdouble(near) * 1.0001, (math.sqrt(5) - 1) / 2
    for _ in range(20):
        a, b = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, b) if exact_loss(logits, labels, a) < exact_loss(logits, labels, b) else (a, high)
    return exact_loss(logits, labels, (low + high) / 2)


def test_three_right_in_four_by_hand():
    # softmax(4 / T) = ¾ at T = 4 / log 3.
    logits, labels = torch.tensor([[4.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])
    scaling = TemperatureScaling().fit(logits, labels)
    assert float(scaling.temperature) == pytest.approx(4 / math.log(3), rel=1e-12)
    assert scaling.certificate.loss == pytest.approx(-(3 * math.log(0.75) + math.log(0.25)) / 4, rel=1e-12)


@pytest.mark.parametrize("temperature", [0.05, 0.3, 1.0, 3.0, 6.0, 20.0, 50.0])
@pytest.mark.parametrize("spread", [0.3, 3.0, 12.0])
def test_no_other_temperature_is_better_by_more_than_1e_12(temperature, spread):
    logits, labels = problem(temperature, n=4200 if spread == 3 else 1000, spread=spread)
    scaling = TemperatureScaling().fit(logits, labels)
    found = float(scaling.temperature)
    assert found == pytest.approx(temperature, rel=0.2)
    excess = exact_loss(logits, labels, found) - least_loss(logits, labels, found)
    assert excess <= 1e-12
    certificate = scaling.certificate
    assert float(certificate.low) < found < float(certificate.high)
    assert float(certificate.high / certificate.low) < 1 + 1e-5
    assert float(certificate.excess) <= 1e-12


class Identity(ClassifierMixin, BaseEstimator):
    """A classifier for scikit-learn whose input is its logits."""

    def fit(self, X, y):
        self.classes_ = np.arange(X.shape[1])
        return self

    def predict(self, X):
        return X.argmax(1)

    def decision_function(self, X):
        return X


@pytest.mark.skipif(not hasattr(sklearn.calibration, "_TemperatureScaling"), reason="scikit-learn has it from 1.8 on")
@pytest.mark.parametrize("temperature", [0.2, 1.0, 4.0])
def test_scikit_learn_finds_the_same(temperature):
    logits, labels = problem(temperature, n=3000)
    theirs = CalibratedClassifierCV(FrozenEstimator(Identity().fit(logits.numpy(), labels)), method="temperature")
    theirs.fit(logits.numpy(), labels.numpy())
    ours = TemperatureScaling().fit(logits, labels)
    beta = theirs.calibrated_classifiers_[0].calibrators[0].beta_
    assert float(ours.temperature) == pytest.approx(1 / beta, rel=1e-5)  # they stop there
    np.testing.assert_allclose(ours.probabilities(logits).numpy(), theirs.predict_proba(logits.numpy()), atol=1e-5)


def test_many_problems_at_once_are_each_of_them():
    problems = [problem(t, n=700, seed=i) for i, t in enumerate((0.1, 1.0, 2.5, 30.0, 1.5, 0.7))]
    logits = torch.stack([z for z, _ in problems]).view(2, 3, 700, 10)
    labels = torch.stack([y for _, y in problems]).view(2, 3, 700)
    together = fit_temperatures(logits, labels)
    assert together.temperature.shape == (2, 3)
    for i, (z, y) in enumerate(problems):
        alone = TemperatureScaling().fit(z, y)
        assert float(together.temperature.flatten()[i]) == pytest.approx(float(alone.temperature), rel=1e-9)
    assert float(together.excess.max()) <= 1e-12
    assert together[1, 0].temperature == together.temperature[1, 0]
    assert str(together).startswith("6 temperatures, excess loss at most")


def test_one_set_of_labels_serves_all_problems_and_parts_do_not_matter(monkeypatch):
    logits, labels = problem(2.0, n=500)
    stack = torch.stack([logits, 3 * logits, logits / 5])
    together = fit_temperatures(stack.float(), labels)
    torch.testing.assert_close(together.temperature / together.temperature[0], torch.tensor([1, 3, 0.2]).double())
    monkeypatch.setattr("orthograd.calibration.calibrators.temperature.AT_ONCE", 1)
    torch.testing.assert_close(fit_temperatures(stack.float(), labels).temperature, together.temperature)


@settings(max_examples=60)
@given(
    st.integers(0, 10_000), st.floats(-6, 6), st.integers(2, 6), st.integers(1, 40), st.sampled_from([0.0, 0.5, 1.0])
)
def test_scaling_logits_scales_the_temperature_and_the_certificate_always_holds(seed, power, classes, n, rounding):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, classes, generator=generator, dtype=torch.float64) * 2
    logits = logits.round() if rounding else logits
    labels = torch.randint(classes, (n,), generator=generator)
    factor = 10.0**power
    fits = fit_temperatures(torch.stack([logits, factor * logits]), labels)
    first, second = fits[0], fits[1]
    assert first.at_zero == second.at_zero
    assert first.is_flat == second.is_flat
    if not (first.at_zero or first.at_infinity or first.is_flat or second.at_infinity):
        assert float(second.temperature / first.temperature) == pytest.approx(factor, rel=1e-6)
        assert float(first.low) < float(first.temperature) < float(first.high)
        for other in (0.9, 1.1):
            assert exact_loss(logits, labels, other * float(first.temperature)) >= float(first.loss) - 1e-12


def test_where_every_label_leads_the_best_temperature_is_zero_and_it_says_so():
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    with pytest.warns(CalibrationWarning, match="T → 0: every label has the highest score"):
        scaling = TemperatureScaling().fit(logits, torch.tensor([0, 1]))
    assert scaling.certificate.at_zero
    assert 0 < float(scaling.temperature) < 0.1
    assert float(scaling.certificate.loss) <= 1e-13
    assert scaling(logits).isfinite().all()


def test_where_scores_tell_nothing_the_best_temperature_is_infinite_and_it_says_so():
    logits = torch.tensor([[2.0, 0.0], [1.0, 0.0]])
    with pytest.warns(CalibrationWarning, match="T → ∞: the scores do not predict the labels"):
        scaling = TemperatureScaling().fit(logits, torch.tensor([1, 1]))
    assert scaling.certificate.at_infinity
    assert float(scaling.certificate.loss) == pytest.approx(math.log(2), abs=1e-12)
    assert scaling(logits).argmax(1).tolist() == [0, 0]  # the ranking survives


def test_where_all_scores_are_equal_every_temperature_is_as_good_and_it_says_so():
    with pytest.warns(CalibrationWarning, match="the same loss as any other"):
        scaling = TemperatureScaling().fit(torch.ones(3, 4), torch.tensor([0, 1, 2]))
    assert float(scaling.temperature) == 1


def test_shared_leads_do_not_keep_the_limit_from_being_found():
    logits = torch.tensor([[2.0, 2.0, 0.0], [0.0, 1.0, 1.0]], dtype=torch.float64)
    with pytest.warns(CalibrationWarning, match="T → 0"):
        scaling = TemperatureScaling().fit(logits, torch.tensor([0, 2]))
    assert float(scaling.certificate.loss) == pytest.approx(math.log(2), abs=1e-12)


def test_scaling_changes_no_prediction_and_repairs_the_ece():
    logits, labels = problem(3.0, n=4000)
    scaled = TemperatureScaling().fit(logits[:2000], labels[:2000])(logits[2000:])
    before, after = (calibration.evaluate(z, labels[2000:]) for z in (logits[2000:], scaled))
    assert before.top1_accuracy == after.top1_accuracy
    assert after.ece < 0.25 * before.ece


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_calibrator_gives_back_the_kind_it_got_and_passes_gradients(dtype):
    logits, labels = problem(2.0, n=300)
    scaling = TemperatureScaling().fit(logits.to(dtype), labels)
    leaf = logits.to(dtype).requires_grad_()
    scaled = scaling(leaf)
    assert scaled.dtype == dtype
    scaled.sum().backward()
    torch.testing.assert_close(leaf.grad, torch.full_like(leaf, 1 / float(scaling.temperature)), rtol=0.01, atol=0)
    assert not list(scaling.parameters())  # nothing for an optimizer to train


def test_a_fitted_calibrator_ships_with_its_model(tmp_path):
    logits, labels = problem(2.0, n=300)
    model = torch.nn.Sequential(torch.nn.Linear(10, 10), TemperatureScaling())
    with pytest.raises(NotFittedError, match=r"TemperatureScaling is not fitted: call .fit\(logits, labels\)"):
        model(logits.float())
    assert "1.temperature" not in model.state_dict()
    model[1].fit(logits, labels)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = torch.nn.Sequential(torch.nn.Linear(10, 10), TemperatureScaling())
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    torch.testing.assert_close(other(logits.float()), model(logits.float()))
    torch.testing.assert_close(copy.deepcopy(model)(logits.float()), model(logits.float()))
    assert copy.deepcopy(model).half()[1].temperature == model[1].temperature
    unfitted = TemperatureScaling()
    unfitted.load_state_dict(TemperatureScaling().state_dict())
    assert not unfitted.is_fitted
    with pytest.raises(RuntimeError, match=r"Missing key.*1.temperature"):
        other.load_state_dict(torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.Identity()).state_dict())


@pytest.mark.parametrize(
    ("logits", "labels", "words"),
    [
        (torch.zeros(3, 4), torch.zeros(3, dtype=torch.long), r"several problems, got \(3, 4\)"),
        (torch.full((1, 2, 2), math.nan), torch.zeros(2, dtype=torch.long), "finite logits, got nan"),
        (torch.zeros(1, 2, 2), torch.tensor([0, 2]), "labels from 0 to 1, got 2"),
    ],
)
def test_what_cannot_be_fitted_is_named(logits, labels, words):
    with pytest.raises(ValueError, match=words):
        fit_temperatures(logits, labels)


def test_fitting_refuses_what_evaluation_refuses_and_calling_needs_rows():
    logits, labels = problem(2.0, n=20)
    logits[3, 2] = math.inf
    with pytest.raises(ValueError, match="got inf in row 3, class 2"):
        TemperatureScaling().fit(logits, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaling = TemperatureScaling().fit(*problem(2.0, n=20))
    with pytest.raises(ValueError, match=r"\(n, classes\), got \(10,\)"):
        scaling(torch.zeros(10))


def test_labels_of_many_problems_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"expected labels \(2, 5\) or \(5,\) for logits \(2, 5, 3\), got \(4,\)"):
        fit_temperatures(torch.zeros(2, 5, 3), torch.zeros(4).long())
