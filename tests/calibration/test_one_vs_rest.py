from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from torch import Tensor, nn

from orthograd.calibration.calibrators.calibrator import CalibrationWarning, Calibrator, NotFittedError
from orthograd.calibration.calibrators.one_vs_rest import (
    HistogramBinning,
    IsotonicCalibration,
    PlattScaling,
    interpolated,
    isotonic_functions,
    log_odds,
    normalized,
)
from tests.conftest import DTYPES


def equal_width() -> HistogramBinning:
    return HistogramBinning(equal_width=True)


KINDS = [PlattScaling, IsotonicCalibration, HistogramBinning, equal_width]


def sample(n: int = 300, classes: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits three times too large, and labels from what they should be."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return 3 * z, z.softmax(1).multinomial(1, generator=generator)[:, 0]


class Scores(ClassifierMixin, BaseEstimator):
    """A classifier of scikit-learn whose scores are its input."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> Scores:
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, x: np.ndarray) -> np.ndarray:
        return x[:, 1] if x.shape[1] == 2 else x

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.classes_[x.argmax(1)]


def by_sklearn(method: str, scores: Tensor, labels: Tensor) -> np.ndarray:
    x, y = scores.numpy(), labels.numpy()
    return CalibratedClassifierCV(FrozenEstimator(Scores().fit(x, y)), method=method).fit(x, y).predict_proba(x)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_platt_agrees_with_sklearn(classes: int) -> None:
    logits, labels = sample(classes=classes)
    expected = by_sklearn("sigmoid", log_odds(logits), labels)
    found = PlattScaling().fit(logits, labels).probabilities(logits)
    np.testing.assert_allclose(found, expected, atol=1e-6)  # theirs stops a little earlier


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_isotonic_agrees_with_sklearn(classes: int) -> None:
    logits, labels = sample(classes=classes)
    expected = by_sklearn("isotonic", logits.softmax(1), labels)
    found = IsotonicCalibration(floor=1e-15).fit(logits, labels).probabilities(logits)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 8), st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_isotonic_functions_agree_with_sklearn_on_ties(data: list[tuple[int, bool, bool]]) -> None:
    score, *hits = torch.tensor(data, dtype=torch.float64).T
    scores = torch.stack([score, -score])  # two problems at a time, of different lengths
    knots, values = isotonic_functions(scores, torch.stack(hits).long())
    at = torch.linspace(-9, 9, 73, dtype=torch.float64).repeat(2, 1)
    found = interpolated(at, knots, values)
    for row in range(2):
        theirs = IsotonicRegression(out_of_bounds="clip").fit(scores[row].numpy(), hits[row].numpy())
        np.testing.assert_allclose(found[row], theirs.predict(at[row].numpy()), atol=1e-12)


def test_isotonic_keeps_apart_what_sklearn_takes_for_ties() -> None:
    """It pools scores within 1e-15 of each other. Confident classifiers give many: here 1e-18 is never the label."""
    scores, hits = torch.tensor([[1e-18, 1e-16, 0.5]], dtype=torch.float64), torch.tensor([[0, 1, 1]])
    assert interpolated(scores, *isotonic_functions(scores, hits)).tolist() == [[0, 1, 1]]
    theirs = IsotonicRegression().fit(scores[0].numpy(), hits[0].numpy())
    np.testing.assert_allclose(theirs.predict([1e-18, 1e-16, 0.5]), [0.5, 0.5, 1])


def test_isotonic_by_hand() -> None:
    """Hits 0 1 0 1 1 at rising scores: the two in the middle share 1/2, and lines join the blocks."""
    scores, hits = torch.tensor([[0.1, 0.2, 0.4, 0.6, 0.9]]).double(), torch.tensor([[0, 1, 0, 1, 1]])
    at = torch.tensor([[0.0, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0]]).double()
    expected = torch.tensor([[0.0, 0.25, 0.5, 0.5, 0.5, 0.75, 1.0, 1.0]]).double()
    torch.testing.assert_close(interpolated(at, *isotonic_functions(scores, hits)), expected)


def test_isotonic_pools_backwards_as_far_as_it_must() -> None:
    """Shares 1/3, 1/2, 2/3 rise, but what follows drags all of them down to one value, block after block."""
    hits = torch.tensor([[0, 0, 1] + [0, 1] + [0, 1, 1] + [0] * 20])
    _, values = isotonic_functions(torch.arange(28).double()[None], hits)
    assert values[0, 0] == 0
    assert values[0, -1] == 4 / 26


def test_isotonic_rises_with_the_score() -> None:
    logits, labels = sample(classes=3)
    fitted = IsotonicCalibration().fit(logits, labels)
    at = torch.linspace(0, 1, 500, dtype=torch.float64).repeat(3, 1)
    assert bool((interpolated(at, fitted.knots, fitted.values).diff(dim=1) >= 0).all())


def test_isotonic_is_consistent_on_the_samples_it_was_fitted_to() -> None:
    """Before normalization each class is predicted as often as it occurs, and each value is a share of a block."""
    logits, labels = sample()
    fitted = IsotonicCalibration().fit(logits, labels)
    means = interpolated(logits.softmax(1).T.contiguous(), fitted.knots, fitted.values).mean(1)
    torch.testing.assert_close(means, labels.bincount(minlength=4).double() / len(labels))


def test_platt_by_hand() -> None:
    """With two scores only, each gets the mean of its smoothed targets."""
    logits = torch.tensor([[2.0, 0.0]] * 8 + [[0.0, 2.0]] * 8, dtype=torch.float64)
    labels = torch.tensor([0] * 5 + [1] * 3 + [1] * 7 + [0])
    yes, no = 7 / 8, 1 / 12  # six samples of class 0, ten of class 1
    p = PlattScaling().fit(logits, labels).probabilities(logits[[0, 15]])
    assert p[0, 0] == pytest.approx((5 * yes + 3 * no) / 8, abs=1e-6)
    assert p[1, 0] == pytest.approx((1 * yes + 7 * no) / 8, abs=1e-6)


def test_platt_of_one_sample_is_its_smoothed_target() -> None:
    p = PlattScaling().fit(torch.tensor([[5.0, 0.0]]), torch.tensor([0])).probabilities(torch.tensor([[-9.0, 3.0]]))
    torch.testing.assert_close(p, torch.tensor([[2 / 3, 1 / 3]]))


def test_platt_certifies_its_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PlattScaling().fit(*sample()).gradient < 1e-10
    monkeypatch.setattr("orthograd.calibration.calibrators.newton.ITERATIONS", 0)
    with pytest.warns(CalibrationWarning, match="PlattScaling stopped at a gradient of"):
        PlattScaling().fit(*sample())


def test_log_odds_keep_every_digit_where_probabilities_round_to_one() -> None:
    logits = torch.tensor([[800.0, 0.0, -1.0], [0.0, 0.0, 0.0], [0.0, -40.0, -41.0]], dtype=torch.float64)
    rest = math.log(1 + math.exp(-1))
    expected = [[800 - rest, -800, -801], [-math.log(2)] * 3, [40 - rest, -40, -41]]
    torch.testing.assert_close(log_odds(logits), torch.tensor(expected, dtype=torch.float64), rtol=1e-15, atol=0)


def test_histogram_by_hand() -> None:
    """Five samples in two bins of equal mass: the third one, at rank 5/2 rounded up, is the last of the first bin."""
    p = torch.tensor([0.1, 0.2, 0.3, 0.6, 0.9], dtype=torch.float64)
    fitted = HistogramBinning(bins=2).fit(torch.stack([1 - p, p], 1).log(), torch.tensor([0, 0, 1, 0, 1]))
    torch.testing.assert_close(fitted.upper[1], torch.tensor([0.45, 1.0]).double())
    torch.testing.assert_close(fitted.frequency[1], torch.tensor([1 / 3, 1 / 2]).double())


def test_no_edge_of_a_histogram_lies_on_samples_that_are_repeated() -> None:
    """Rounding would decide the bin of all of them."""
    rows = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    labels = (rows + torch.randn(40, 3, generator=torch.Generator().manual_seed(1))).argmax(1)
    fitted = HistogramBinning().fit(rows.repeat_interleave(12, 0), labels.repeat_interleave(12))
    for p, upper in zip(rows.softmax(1).T, fitted.upper, strict=True):
        assert (p[:, None] - upper).abs().min() > 1e-9
    torch.testing.assert_close(fitted.probabilities(rows + 7.3), fitted.probabilities(rows), rtol=0, atol=1e-12)
    weighted = HistogramBinning().fit(rows, labels, weights=torch.full((40,), 12))
    torch.testing.assert_close(weighted.upper, fitted.upper)
    torch.testing.assert_close(weighted.frequency, fitted.frequency)


def test_histogram_of_equal_width_by_hand() -> None:
    """Bins (0, ¼], (¼, ½], (½, ¾], (¾, 1]: ½ is in the second; the third is empty and predicts its center."""
    logits = torch.tensor([[0.0, 0.0], [0.0, 0.0], [3.0, 0.0], [0.0, 3.0]], dtype=torch.float64)
    fitted = HistogramBinning(bins=4, equal_width=True).fit(logits, torch.tensor([0, 1, 0, 1]))
    torch.testing.assert_close(fitted.frequency, torch.tensor([[0, 0.5, 0.625, 1]] * 2).double())


def test_histogram_bins_of_equal_mass_are_of_equal_mass() -> None:
    logits, labels = sample(n=300)
    fitted = HistogramBinning(bins=10).fit(logits, labels)
    for p, upper in zip(logits.softmax(1).T, fitted.upper, strict=True):
        assert torch.searchsorted(upper, p.contiguous()).bincount().tolist() == [30] * 10


def test_a_class_never_seen_keeps_the_floor() -> None:
    logits, _ = sample(classes=3)
    labels = torch.arange(300) % 2
    for make in (IsotonicCalibration, HistogramBinning):
        p = make(floor=1e-4).fit(logits, labels).probabilities(logits)
        assert bool((p[:, 2] <= 1.01e-4 / p[:, :2].amax(1)).all() & (p[:, 2] > 0).all())


def test_where_every_class_is_at_the_floor_they_are_equal() -> None:
    torch.testing.assert_close(normalized(torch.zeros(1, 4), 1e-6).exp(), torch.full((1, 4), 0.25))


@pytest.mark.parametrize("make", KINDS)
def test_shifts_orders_and_names_change_nothing(make: Callable[[], Calibrator]) -> None:
    logits, labels = sample()
    p = make().fit(logits, labels).probabilities(logits)
    classes, rows = torch.tensor([2, 0, 3, 1]), torch.randperm(len(logits))
    renamed = make().fit(logits[rows][:, classes], classes.argsort()[labels[rows]])
    torch.testing.assert_close(renamed.probabilities(logits[:, classes]), p[:, classes])
    fitted = make().fit(logits + 2, labels)  # 2 rather than a random shift: rounding may move a score across an edge
    torch.testing.assert_close(fitted.probabilities(logits + 2), p)


CASES = {
    "one sample": (torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([0])),
    "two classes": (torch.tensor([[1.0, 2.0], [3.0, 1.0], [0.0, 1.0]]), torch.tensor([1, 1, 0])),
    "equal logits": (torch.zeros(6, 3), torch.tensor([0, 0, 0, 1, 1, 2])),
    "all correct, and confident": (1e4 * torch.eye(3).repeat(9, 1), torch.arange(27) % 3),
    "all wrong": (1e4 * torch.eye(3).repeat(9, 1), torch.arange(1, 28) % 3),
    "one class": (torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(30, dtype=torch.long)),
    "a class ruled out": (torch.tensor([[1.0, 0.5, -1e9], [0.0, 1.0, -1e9]] * 5), torch.tensor([0, 1, 1, 0, 1] * 2)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("make", KINDS)
def test_hard_data_gives_finite_logits_that_are_normalised(make: Callable[[], Calibrator], case: str) -> None:
    logits, labels = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        calibrated = make().fit(logits, labels)(logits.double())
    assert bool(calibrated.isfinite().all())
    torch.testing.assert_close(calibrated.exp().sum(1), torch.ones(len(logits)).double())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", KINDS)
def test_every_dtype_comes_back_as_it_went_in(make: Callable[[], Calibrator], dtype: torch.dtype) -> None:
    logits, labels = sample()
    logits = logits.to(dtype)
    fitted = make().fit(logits, labels)
    assert fitted(logits).dtype == dtype
    assert all(buffer.dtype == torch.float64 for buffer in fitted.buffers())
    assert torch.equal(fitted(logits), fitted(logits.double()).to(dtype))


@pytest.mark.parametrize("make", KINDS)
def test_it_ships_with_its_model(make: Callable[[], Calibrator], tmp_path: object) -> None:
    logits, labels = sample(classes=3)
    model = nn.Sequential(nn.Linear(3, 3, dtype=torch.float64), make())
    model[1].fit(model[0](logits), labels)
    save_file(model.state_dict(), f"{tmp_path}/model.safetensors")
    other = nn.Sequential(nn.Linear(3, 3, dtype=torch.float64), make())
    other.load_state_dict(load_file(f"{tmp_path}/model.safetensors"))
    assert torch.equal(other(logits), model(logits))
    assert torch.equal(copy.deepcopy(model)(logits), model(logits))


@pytest.mark.parametrize("make", KINDS)
def test_unfitted_use_and_another_number_of_classes_raise(make: Callable[[], Calibrator]) -> None:
    with pytest.raises(NotFittedError):
        make()(torch.zeros(2, 4))
    fitted = make().fit(*sample())
    with pytest.raises(ValueError, match=r"expected logits of 4 classes, as in fit, got \(2, 3\)"):
        fitted(torch.zeros(2, 3))
    assert fitted.fit(*sample(classes=3))(torch.zeros(2, 3)).shape == (2, 3)


def test_options_that_make_no_sense_raise() -> None:
    with pytest.raises(ValueError, match="expected at least one bin, got 0"):
        HistogramBinning(bins=0)
    for make in (IsotonicCalibration, HistogramBinning):
        with pytest.raises(ValueError, match="expected a floor between 0 and 1, got 0"):
            make(floor=0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_number_stays_none(kind: type[Calibrator], value: float) -> None:
    logits, labels = sample()
    fitted = kind().fit(logits, labels)
    broken = logits[:3].clone()
    broken[1, 2] = value
    found = fitted.probabilities(broken)
    assert bool(found[1].isnan().all())
    torch.testing.assert_close(found[::2], fitted.probabilities(logits[:3])[::2])


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_that_is_ruled_out_gets_the_limit(kind: type[Calibrator]) -> None:
    logits, labels = sample()
    fitted = kind().fit(logits, labels)
    far, ruled_out = logits[:3].clone(), logits[:3].clone()
    far[:, 2], ruled_out[:, 2] = -1e6, -math.inf
    torch.testing.assert_close(fitted.probabilities(ruled_out), fitted.probabilities(far), rtol=0, atol=1e-9)


def test_platt_of_a_class_with_one_score_only_says_its_frequency_of_a_class_that_is_ruled_out() -> None:
    logits, labels = torch.zeros(40, 2), torch.tensor([0, 1, 1, 1] * 10)
    p = PlattScaling().fit(logits, labels).probabilities(torch.tensor([[0.0, -math.inf], [0.0, 0.0]]))
    torch.testing.assert_close(p[0], p[1])
