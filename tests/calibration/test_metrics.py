"""Each metric: a case worked by hand, something that must always hold, and an outside oracle."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import relplot
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from netcal.metrics import ACE, ECE, MCE
from scipy.optimize import brentq
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_calibration_error

from orthograd import calibration
from orthograd.calibration import binned, unbinned
from orthograd.calibration import predictions as of_predictions
from tests.calibration.samples import predictions

TWO = math.log(9)  # a logit this far above the other of two classes is a confidence of 0.9


def confidences(logits, labels):
    probabilities = logits.double().softmax(1)
    return probabilities.amax(1).numpy(), (probabilities.argmax(1) == labels).numpy()


def by_hand(*correct: bool, confidence=TWO):
    """Two classes; every sample has the same confidence in class 0, and is correct where `correct` says so."""
    logits = torch.tensor([[confidence, 0.0]] * len(correct), dtype=torch.float64)
    return calibration.evaluate(logits, torch.tensor([0 if right else 1 for right in correct]))


def test_half_right_at_ninety_percent_by_hand():
    found = by_hand(True, False)
    expected = {
        "top1_accuracy": 50.0,
        "top5_accuracy": 100.0,
        "loss": -(math.log(0.9) + math.log(0.1)) / 2,
        "ece": 0.4,
        "brier": (0.02 + 1.62) / 2,
        "entropy": -0.9 * math.log(0.9) - 0.1 * math.log(0.1),
        "max_softmax": 0.9,
        "max_logit": TWO,
        "logit_variance": TWO**2 / 2,  # (x − x/2)² + (0 − x/2)² over 2 − 1
        "ece_l2": 0.4,
        "ece_debiased": 0.0,  # 0.4² − 0.5 · 0.5 / 1 is less than nothing
        "mce": 0.4,
        "ece_equal_mass": 0.4,
        "ece_classwise": 0.4,
        "smooth_ece": 0.4,
        "brier_reliability": 2 * 0.16,
        "brier_uncertainty": 0.5,
        "brier_resolution": 0.32 + 0.5 - 0.82,
        "aurc": 0.5,
    }
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, abs=1e-9), name
    assert found.confidence_accuracy_correlation is None  # the confidence does not vary


def test_top5_among_ten_by_hand():
    logits = torch.arange(10, dtype=torch.float64)[None].expand(10, -1)
    assert calibration.evaluate(logits, torch.arange(10)).top5_accuracy == 50
    assert "among the 5 highest" in calibration.evaluate(logits, torch.arange(10)).conventions["top5_accuracy"]
    assert "among the 3 highest" in calibration.evaluate(logits[:3, :3], torch.arange(3)).conventions["top5_accuracy"]


def test_correlation_by_hand():
    logits = torch.tensor([[TWO, 0.0], [TWO, 0.0], [0.0, 0.1], [0.0, 0.1]], dtype=torch.float64)
    found = calibration.evaluate(logits, torch.tensor([0, 0, 0, 0]))
    assert found.confidence_accuracy_correlation == pytest.approx(1.0)


def test_risk_and_coverage_take_samples_in_any_order():
    confidence, correct = torch.rand(50), torch.rand(50) < 0.5
    order = confidence.argsort()
    expected = calibration.aurc(confidence[order], correct[order])
    assert float(calibration.aurc(confidence, correct)) == pytest.approx(float(expected), abs=1e-15)
    assert float(calibration.aurc(confidence.tolist(), correct.tolist())) == pytest.approx(float(expected), abs=1e-15)


@pytest.mark.parametrize(
    ("confidence", "correct", "error", "words"),
    [
        ([], [], ValueError, "at least one sample"),
        ([0.5, math.nan], [True, False], ValueError, "expected confidences without NaN, got nan in row 1"),
        ([0.5, 0.6], [True], ValueError, r"expected confidence \(n,\) and correct \(n,\), got \(2,\) and \(1,\)"),
        ([[0.5]], [[True]], ValueError, r"got \(1, 1\) and \(1, 1\)"),
        ([0.5, 0.6], [0.3, 1.0], TypeError, "expected correct as booleans, got torch.float32"),
    ],
)
def test_risk_and_coverage_of_what_is_neither_are_refused(confidence, correct, error, words):
    with pytest.raises(error, match=words):
        calibration.aurc(torch.tensor(confidence), torch.tensor(correct))


def test_risk_and_coverage_by_hand():
    logits = torch.tensor([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.5, 0.0]])
    # Errors among the 1, 2, 3, 4 most confident: 0, 0, 1, 2.
    assert calibration.evaluate(logits, torch.tensor([0, 0, 1, 1])).aurc == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)


def test_equal_mass_by_hand():
    confidence = torch.tensor([0.6, 0.7, 0.8, 0.9], dtype=torch.float64)
    correct = torch.tensor([True, False, True, True])
    # Bins {0.6, 0.7} and {0.8, 0.9}: |1 − 1.3| + |2 − 1.7| over 4.
    assert float(binned.equal_mass(confidence, correct, 2)) == pytest.approx(0.6 / 4)


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_loss_brier_accuracy_and_entropy_are_those_of_scikit_learn_and_scipy(classes):
    logits, labels = predictions(classes=classes)
    probabilities = logits.softmax(1).numpy()
    found = calibration.evaluate(logits, labels)
    every = np.arange(classes)
    assert found.loss == pytest.approx(sklearn.metrics.log_loss(labels, probabilities, labels=every), rel=1e-9)
    brier = sklearn.metrics.brier_score_loss(labels, probabilities, labels=every, scale_by_half=False)
    assert found.brier == pytest.approx(brier, rel=1e-9)
    assert found.top1_accuracy == pytest.approx(100 * sklearn.metrics.accuracy_score(labels, logits.argmax(1)))
    top = sklearn.metrics.top_k_accuracy_score(labels, probabilities[:, 1], k=1) if classes == 2 else None
    if classes > 2:
        top = sklearn.metrics.top_k_accuracy_score(labels, probabilities, k=min(5, classes), labels=every)
        assert found.top5_accuracy == pytest.approx(100 * top)
    assert found.entropy == pytest.approx(float(torch.distributions.Categorical(logits=logits).entropy().mean()))


def test_logit_statistics_are_those_of_torch():
    logits, labels = predictions()
    found = calibration.evaluate(logits, labels)
    assert found.max_logit == pytest.approx(float(logits.abs().amax(1).mean()), rel=1e-12)
    assert found.logit_variance == pytest.approx(float(logits.var(1).mean()), rel=1e-12)
    confidence, correct = confidences(logits, labels)
    assert found.confidence_accuracy_correlation == pytest.approx(np.corrcoef(confidence, correct)[0, 1], rel=1e-9)
    assert found.max_softmax == pytest.approx(confidence.mean(), rel=1e-12)


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_binned_errors_are_those_of_netcal_and_torchmetrics(bins):
    logits, labels = predictions()
    probabilities = logits.softmax(1)
    found = calibration.evaluate(logits, labels, bins=bins)
    assert found.ece == pytest.approx(ECE(bins).measure(probabilities.numpy(), labels.numpy()), abs=1e-9)
    assert found.mce == pytest.approx(MCE(bins).measure(probabilities.numpy(), labels.numpy()), abs=1e-9)
    for name, norm in (("ece", "l1"), ("ece_l2", "l2"), ("mce", "max")):
        theirs = multiclass_calibration_error(probabilities, labels, 10, n_bins=bins, norm=norm)
        assert getattr(found, name) == pytest.approx(float(theirs), abs=1e-6), name  # theirs adds up in float32


def test_a_confidence_of_one_belongs_to_the_last_bin_which_torchmetrics_does_not_think():
    # One sample at 0.95 and right, one at 1.0 and wrong: together in (0.9, 1] the gap is 0.95·½ + 1·½ − ½.
    probabilities = torch.tensor([[0.95, 0.05], [1.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1])
    assert calibration.evaluate_probabilities(probabilities, labels).ece == pytest.approx(0.475)
    assert float(multiclass_calibration_error(probabilities, labels, 2, n_bins=10)) == pytest.approx(0.525)


def test_average_of_gaps_elsewhere_is_not_an_ece():
    # netcal's ACE weighs bins, not samples: the same letters as the adaptive error elsewhere.
    logits, labels = predictions()
    probabilities = logits.softmax(1).numpy()
    assert abs(calibration.evaluate(logits, labels).ece - ACE(10).measure(probabilities, labels.numpy())) > 1e-3


def test_smooth_ece_is_that_of_relplot():
    for seed, noise in ((0, 2.0), (1, 0.5), (2, 5.0)):
        logits, labels = predictions(seed=seed, noise=noise)
        theirs = relplot.smECE(*confidences(logits, labels))
        assert calibration.evaluate(logits, labels).smooth_ece == pytest.approx(theirs, abs=2e-3)  # they search to 1e-3


@pytest.mark.parametrize("power", [0.1, 1.0, 3.0])
def test_smooth_ece_is_the_width_that_its_integral_is(power):
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(1000, generator=generator) ** power
    residual = (torch.rand(1000, generator=generator) < confidence**2).double() - confidence
    grid = unbinned.on_grid(confidence, residual)
    found = unbinned.smooth_ece(grid, 1000)
    assert unbinned._integral(unbinned._spectrum(grid / 1000), found) == pytest.approx(found, abs=1e-12)


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("seed", range(5))
def test_smooth_ece_is_where_scipy_finds_the_integral_and_the_width_to_meet(scale, seed):
    logits, labels = predictions(50 * 4**seed, scale=scale, seed=seed)
    evaluation = calibration.Evaluation(metrics=["smooth_ece"])
    evaluation.update(logits, labels)
    spectrum = unbinned._spectrum(evaluation._sums["residual_grid"] / len(labels))
    theirs = brentq(lambda x: unbinned._integral(spectrum, x) - x, 4 / unbinned.CELLS, 1.01, xtol=1e-15, rtol=1e-15)
    assert evaluation.compute().smooth_ece == pytest.approx(theirs, abs=2e-13)


@pytest.mark.parametrize("power", [1, 3, 9, 0.1])
def test_a_zero_is_found_to_thirteen_digits_in_few_steps(power):
    asked = []

    def falling(x):
        asked.append(x)
        return 0.3**power - x**power

    assert unbinned._zero(falling, 1e-3, 1.0) == pytest.approx(0.3, abs=1e-13)
    assert len(asked) < 30


def test_smooth_ece_of_what_is_no_number_is_none():
    assert math.isnan(unbinned.smooth_ece(torch.full((unbinned.CELLS + 1,), math.nan, dtype=torch.float64), 3))


def test_smooth_ece_at_a_width_is_the_integral_worked_out_directly():
    confidence = torch.rand(50, dtype=torch.float64)
    residual = confidence - torch.randint(0, 2, (50,)).double()
    sigma = 0.05
    points = torch.linspace(0, 1, 20001, dtype=torch.float64)
    kernel = sum(
        torch.exp(-0.5 * ((points[:, None] - mirror) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
        for mirror in (confidence, -confidence, 2 - confidence)
    )
    direct = torch.trapezoid((kernel @ residual / 50).abs(), points)
    grid = unbinned.on_grid(confidence, residual) / 50
    assert unbinned._integral(unbinned._spectrum(grid), sigma) == pytest.approx(float(direct), rel=1e-6)


def test_debiased_error_of_a_calibrated_model_is_smaller_than_the_plain_one_and_unbiased_in_the_square():
    generator = torch.Generator().manual_seed(0)
    squares, plain = [], []
    for _ in range(400):
        confidence = torch.rand(200, generator=generator, dtype=torch.float64)
        hits = torch.rand(200, generator=generator) < 0.8 * confidence  # a gap of 0.2 · confidence
        cell = binned.bin_of(confidence, 1)
        sums = [torch.bincount(cell, weights=w, minlength=1) for w in (torch.ones(200), hits.double(), confidence)]
        count = sums[0].long()
        accuracy = sums[1] / count
        squares.append(float((accuracy - sums[2] / count).square() - accuracy * (1 - accuracy) / (count - 1)))
        plain.append(float((accuracy - sums[2] / count).square()))
        assert binned.debiased(count, *sums[1:]) == pytest.approx(math.sqrt(max(0.0, squares[-1])))
    spread = np.std(squares) / math.sqrt(len(squares))
    within = 0.2**2 / 12 / 200 - 0  # the mean confidence of a sample of 200 itself varies: (0.2)² var(c) / n
    assert np.mean(squares) == pytest.approx(0.01 + within, abs=4 * spread)
    assert np.mean(plain) > np.mean(squares)


def test_brier_decomposition_adds_up_and_equals_the_classical_one_where_forecasts_repeat():
    logits, labels = predictions()
    found = calibration.evaluate(logits, labels)
    assert found.brier == pytest.approx(
        found.brier_reliability - found.brier_resolution + found.brier_uncertainty, abs=1e-12
    )
    # Two forecasts, 0.8 and 0.3 for class 1, in bins of their own: Murphy's resolution Σ (n_b/n) (f_b − f)², per class.
    probabilities = torch.tensor([[0.2, 0.8]] * 4 + [[0.7, 0.3]] * 4, dtype=torch.float64)
    labels = torch.tensor([1, 1, 1, 0, 0, 0, 0, 1])
    found = calibration.evaluate_probabilities(probabilities, labels)
    assert found.brier_reliability == pytest.approx(2 * (0.5 * 0.05**2 + 0.5 * 0.05**2))
    assert found.brier_resolution == pytest.approx(2 * (0.5 * 0.25**2 + 0.5 * 0.25**2))
    assert found.brier_uncertainty == pytest.approx(0.5)


def test_classwise_error_is_the_mean_of_binary_errors():
    logits, labels = predictions(classes=4)
    p = logits.softmax(1)
    each = []
    for k in range(4):
        cell = np.clip(np.ceil(p[:, k].numpy() * 10).astype(int) - 1, 0, 9)
        residual = (labels == k).numpy() - p[:, k].numpy()
        each.append(np.abs(np.bincount(cell, weights=residual, minlength=10)).sum() / len(labels))
    assert calibration.evaluate(logits, labels).ece_classwise == pytest.approx(np.mean(each), abs=1e-12)


@pytest.mark.parametrize(("samples", "scale"), [(100, 8.0), (2000, 3.0), (2000, 1.0)])
def test_ece_by_chance_is_what_simulation_finds(samples, scale):
    logits, labels = predictions(samples, scale=scale)
    found = calibration.evaluate(logits, labels)
    confidence = logits.softmax(1).amax(1)
    cell = binned.bin_of(confidence, 10)
    generator = torch.Generator().manual_seed(1)
    drawn = torch.rand(4000, samples, generator=generator, dtype=torch.float64) < confidence
    residual = (drawn.double() - confidence).T
    eces = torch.zeros(10, 4000, dtype=torch.float64).index_add_(0, cell, residual).abs().sum(0) / samples
    error = float(eces.std()) / math.sqrt(4000)
    assert found.ece_by_chance == pytest.approx(float(eces.mean()), rel=0.01, abs=4 * error)
    assert found.ece_by_chance_limit == pytest.approx(float(eces.quantile(0.95)), rel=0.05)


def test_a_calibrated_model_shows_about_the_error_of_chance():
    logits, _ = predictions(20000)
    labels = torch.multinomial(logits.softmax(1), 1, generator=torch.Generator().manual_seed(1))[:, 0]
    found = calibration.evaluate(logits, labels)
    assert 0.3 * found.ece_by_chance < found.ece < 1.5 * found.ece_by_chance_limit
    assert found.ece_debiased < 0.7 * found.ece_l2


def test_accuracy_is_that_of_torchmetrics_in_every_precision():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        logits, labels = predictions(dtype=dtype)
        theirs = multiclass_accuracy(logits.float(), labels, 10, average="micro")
        assert calibration.evaluate(logits, labels).top1_accuracy == pytest.approx(100 * float(theirs), abs=1e-4)


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=1, max_size=30), st.integers(0, 3))
def test_of_equal_scores_the_first_class_leads(rows, label):
    logits = torch.tensor(rows, dtype=torch.float32)
    labels = torch.full((len(rows),), label)
    order = torch.argsort(logits, dim=1, descending=True, stable=True)
    found = calibration.evaluate(logits, labels, metrics=["top1_accuracy", "top5_accuracy"])
    assert found.top1_accuracy == pytest.approx(100 * float((order[:, 0] == labels).double().mean()))
    five = calibration.evaluate(torch.cat([logits, logits], 1), labels, metrics=["top5_accuracy"])
    order = torch.argsort(torch.cat([logits, logits], 1), dim=1, descending=True, stable=True)
    assert five.top5_accuracy == pytest.approx(100 * float((order[:, :5] == labels[:, None]).any(1).double().mean()))


def test_of_equal_scores_among_many_classes_the_first_leads():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randint(-9, 10, (200, 100), generator=generator).float()  # in a row, five or so share the top
    order = logits.argsort(dim=1, descending=True, stable=True)
    labels = order.gather(1, torch.randint(10, (200, 1), generator=generator))[:, 0]
    found = calibration.evaluate(logits, labels, metrics=["top5_accuracy"])
    assert found.top5_accuracy == pytest.approx(100 * float((order[:, :5] == labels[:, None]).any(1).double().mean()))


@pytest.mark.parametrize("classes", [100, 1 << 19])
def test_memory_that_is_used_again_does_not_show(classes):
    logits, labels = predictions(3, classes)
    with torch.inference_mode():
        first = calibration.evaluate(logits, labels)
    assert calibration.evaluate(logits, labels).as_dict() == first.as_dict()
    several = [predictions(300, 100, seed=seed) for seed in range(8)]
    alone = [calibration.evaluate(*each).as_dict() for each in several]
    with ThreadPoolExecutor(8) as threads:
        assert [each.as_dict() for each in threads.map(lambda each: calibration.evaluate(*each), several)] == alone
    assert first.loss == pytest.approx(float(torch.nn.functional.cross_entropy(logits, labels)), rel=1e-12)


def test_an_evaluation_may_begin_inside_another(monkeypatch):
    """As in the handler of a signal."""
    logits, labels = predictions(300, 100)
    alone, in_top = calibration.evaluate(logits, labels).as_dict(), of_predictions._in_top

    def interrupted(*arguments):
        with monkeypatch.context() as inside:
            inside.setattr(of_predictions, "_in_top", in_top)
            calibration.evaluate(*predictions(300, 100, seed=1))
        return in_top(*arguments)

    monkeypatch.setattr(of_predictions, "_in_top", interrupted)
    assert calibration.evaluate(logits, labels).as_dict() == alone


def test_logits_and_their_probabilities_say_the_same():
    logits, labels = predictions()
    ours, theirs = (
        calibration.evaluate(logits, labels).as_row(),
        calibration.evaluate_probabilities(logits.softmax(1), labels).as_row(),
    )
    for name in set(ours) - {"max_logit", "logit_variance"}:
        assert ours[name] == pytest.approx(theirs[name], abs=1e-9), name
    assert theirs["max_logit"] is None


def test_adding_a_constant_or_shuffling_changes_nothing():
    logits, labels = predictions(500)
    shuffled = torch.randperm(500)
    plain = calibration.evaluate(logits, labels).as_row()
    for other in (
        calibration.evaluate(logits[shuffled], labels[shuffled]),
        calibration.evaluate(logits + torch.randn(500, 1), labels),
    ):
        for name in set(plain) - {"max_logit"}:
            assert other.as_row()[name] == pytest.approx(plain[name], abs=1e-9), name


def test_loss_comes_from_logits_where_probabilities_know_only_infinity():
    logits = torch.tensor([[0.0, 800.0]])
    assert calibration.evaluate(logits, torch.tensor([0])).loss == 800
    assert calibration.evaluate_probabilities(logits.softmax(1), torch.tensor([0])).loss == math.inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("classes", [3, 10, 200])
def test_narrow_input_gives_the_numbers_of_the_same_input_in_float64(dtype, classes):
    logits, labels = predictions(classes=classes, dtype=dtype)
    narrow, wide = calibration.evaluate(logits, labels).as_row(), calibration.evaluate(logits.double(), labels).as_row()
    for name, value in wide.items():
        assert narrow[name] == pytest.approx(value, rel=2e-5, abs=2e-6), name
