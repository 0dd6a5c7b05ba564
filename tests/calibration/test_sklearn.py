"""`CalibratedClassifier` is an estimator like any other, calibrates as the calibrators do, and can be drawn."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV, calibration_curve
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    train_test_split,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from orthograd.calibration import Calibrator, HistogramBinning, TemperatureScaling, evaluate_probabilities
from orthograd.calibration.sklearn import METHODS, CalibratedClassifier, CalibrationDisplay

pytestmark = pytest.mark.filterwarnings("ignore")  # small samples: degenerate fits, classes with few members


@pytest.fixture(scope="module")
def digits():
    return train_test_split(*load_digits(return_X_y=True), test_size=0.5, random_state=0)


@pytest.mark.parametrize(
    ("estimator", "method"),
    [
        (LogisticRegression(), "temperature"),
        (GaussianNB(), "platt"),
        *(
            pytest.param(LogisticRegression(), method, marks=pytest.mark.slow)
            for method in METHODS
            if method not in ("temperature", "platt")
        ),
    ],
)
def test_every_check_of_scikit_learn_passes(estimator, method):
    results = check_estimator(CalibratedClassifier(estimator, method=method, cv=3), on_fail=None)
    assert {result["status"] for result in results} <= {"passed", "skipped"}
    assert len(results) > 50


def test_a_temperature_is_fitted_to_scores_of_samples_not_trained_on(digits):
    X, _, y, _ = digits
    classifier = CalibratedClassifier(GaussianNB(), cv=StratifiedKFold(4)).fit(X, y)
    held_out = cross_val_predict(GaussianNB(), X, y, cv=StratifiedKFold(4), method="predict_proba")
    expected = TemperatureScaling().fit(np.log(held_out.clip(1e-6)), y).temperature
    assert float(classifier.calibrator_.temperature) == float(expected) > 2
    whole = GaussianNB().fit(X, y).predict_proba(X[:9])
    calibrated = torch.tensor(np.log(whole.clip(1e-6)) / float(expected)).softmax(1).numpy()
    np.testing.assert_allclose(classifier.predict_proba(X[:9]), calibrated, rtol=1e-12)


def test_it_agrees_with_scikit_learns_own_temperature():
    X, y = load_iris(return_X_y=True)
    base = LogisticRegression(C=100, max_iter=5000)
    ours = CalibratedClassifier(base, cv=5).fit(X, y).predict_proba(X)
    theirs = CalibratedClassifierCV(base, method="temperature", cv=5, ensemble=False).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(("ours", "theirs"), [("temperature", "temperature"), ("platt", "sigmoid")])
def test_weights_calibrate_as_in_scikit_learn(ours, theirs):
    X, y = load_breast_cancer(return_X_y=True)
    X, weights = StandardScaler().fit_transform(X), np.random.default_rng(0).uniform(0, 3, len(y)) * np.where(y, 10, 1)
    base = LogisticRegression(C=100, max_iter=5000)
    expected = CalibratedClassifierCV(base, method=theirs, cv=5, ensemble=False).fit(X, y, sample_weight=weights)
    classifier = CalibratedClassifier(base, method=ours, cv=5)
    found = classifier.fit(X, y, sample_weight=weights).predict_proba(X)
    np.testing.assert_allclose(found, expected.predict_proba(X), atol=1e-5)
    unweighted = clone(classifier).fit(X, y, sample_weight=None).predict_proba(X)
    np.testing.assert_array_equal(unweighted, clone(classifier).fit(X, y).predict_proba(X))
    assert np.abs(found - unweighted).max() > 0.1
    with pytest.raises(ValueError, match=r"finite weights of at least 0, got -1 in row 3"):
        classifier.fit(X, y, sample_weight=np.where(np.arange(len(y)) == 3, -1.0, 1.0))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_lowers_the_error_of_an_overconfident_classifier(digits, method):
    X, test, y, truth = digits
    before = evaluate_probabilities(GaussianNB().fit(X, y).predict_proba(test), truth)
    after = evaluate_probabilities(
        CalibratedClassifier(GaussianNB(), method=method).fit(X, y).predict_proba(test), truth
    )
    assert after.ece < before.ece / 2
    assert after.brier < before.brier


def test_pipelines_cross_validation_searches_copies_and_pickles(digits):
    X, test, y, _ = digits
    pipeline = make_pipeline(StandardScaler(), CalibratedClassifier(RidgeClassifier(), cv=3))
    assert cross_val_score(pipeline, X, y, scoring="neg_log_loss", cv=3).mean() > -0.5
    search = GridSearchCV(pipeline, {"calibratedclassifier__method": ["temperature", "vector"]}, cv=2).fit(X, y)
    fitted = search.best_estimator_
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(test), fitted.predict_proba(test))
    np.testing.assert_array_equal(clone(fitted).fit(X, y).predict_proba(test), fitted.predict_proba(test))


def test_labels_may_be_text_and_frames_keep_their_names():
    pytest.importorskip("pandas")
    X, y = load_iris(return_X_y=True, as_frame=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    weights = {"setosa": 1.0, "versicolor": 2.0, "virginica": 1.0}  # by the labels as they are given
    classifier = CalibratedClassifier(LogisticRegression(class_weight=weights, max_iter=1000)).fit(X, names)
    assert classifier.classes_.tolist() == sorted(set(names))
    assert set(classifier.predict(X)) == set(names)
    assert classifier.feature_names_in_.tolist() == X.columns.tolist()
    assert classifier.score(X, names) > 0.9


def test_a_fitted_classifier_is_calibrated_as_it_is(digits):
    X, held_out, y, truth = digits
    fitted = RandomForestClassifier(20, random_state=0).fit(X, y)
    prefit = CalibratedClassifier(fitted, cv="prefit").fit(held_out[:400], truth[:400])
    frozen = CalibratedClassifier(FrozenEstimator(fitted)).fit(held_out[:400], truth[:400])
    assert prefit.estimator_ is fitted
    np.testing.assert_array_equal(prefit.predict_proba(held_out), frozen.predict_proba(held_out))
    assert cross_val_score(frozen, held_out, truth, cv=2).mean() > 0.8
    few = truth[:400] < 7  # classes that the held-out samples lack keep their columns
    assert CalibratedClassifier(fitted, cv="prefit").fit(
        held_out[:400][few], truth[:400][few]
    ).classes_.tolist() == list(range(10))


def test_weights_are_given_to_the_classifier_and_those_of_zero_count_nowhere():
    X, y = (part[np.random.default_rng(0).permutation(150)] for part in load_iris(return_X_y=True))
    base, weights = LogisticRegression(tol=1e-10, max_iter=10_000), np.where(np.arange(150) < 100, 1.0, 0.0)
    folds, halves = ([(a[:50], a[50:]), (a[50:], a[:50])] for a in (np.arange(150), np.arange(100)))
    weighted = CalibratedClassifier(base, cv=folds).fit(X, y, sample_weight=weights)
    alone = CalibratedClassifier(base, cv=halves).fit(X[:100], y[:100])
    np.testing.assert_allclose(weighted.predict_proba(X), alone.predict_proba(X), atol=1e-5)  # the solver stops early
    assert not np.allclose(CalibratedClassifier(base, cv=folds).fit(X, y).predict_proba(X), alone.predict_proba(X))
    assert cross_val_score(CalibratedClassifier(base), X, y, params={"sample_weight": weights}, cv=2).min() > 0.8


def test_groups_are_for_the_splitter_and_for_a_search(digits):
    X, _, y, _ = digits
    groups = np.arange(len(y)) // 9
    folds = list(GroupKFold(3).split(X, y, groups))
    grouped = CalibratedClassifier(GaussianNB(), cv=GroupKFold(3)).fit(X, y, groups=groups)
    expected = CalibratedClassifier(GaussianNB(), cv=folds).fit(X, y)
    assert float(grouped.calibrator_.temperature) == float(expected.calibrator_.temperature)
    search = GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-3]}, cv=GroupKFold(2))
    searched = CalibratedClassifier(search, cv=GroupKFold(3)).fit(X, y, groups=groups)
    assert searched.estimator_.best_params_ == clone(search).fit(X, y, groups=groups).best_params_


def test_a_calibrator_can_be_given_with_its_options(digits):
    X, _, y, _ = digits
    given = HistogramBinning(bins=4)
    classifier = CalibratedClassifier(GaussianNB(), method=given).fit(X, y)
    assert classifier.calibrator_.upper.shape == (10, 4)
    assert not given.is_fitted
    assert set(map(type, METHODS.values())) == {type}
    assert all(issubclass(method, Calibrator) for method in METHODS.values())


@pytest.mark.parametrize(
    ("classifier", "labels", "error", "words"),
    [
        (
            CalibratedClassifier(GaussianNB(), method="temprature"),
            None,
            ValueError,
            "among temperature, .* got 'temprature'",
        ),
        (CalibratedClassifier(GaussianNB(), cv="prefit"), None, NotFittedError, "GaussianNB"),
        (CalibratedClassifier(GaussianNB()), np.zeros(150), ValueError, "at least two classes, got one class"),
        (CalibratedClassifier(SVC(decision_function_shape="ovo")), np.arange(150) % 4, ValueError, "6 columns; an SVC"),
        (CalibratedClassifier(GaussianNB()), np.arange(150) == 0, ValueError, r"fold without \[.*True.*\]; use fewer"),
        (CalibratedClassifier(StandardScaler()), None, TypeError, "decision_function or predict_proba, got Standard"),
    ],
)
def test_what_cannot_be_calibrated_is_named(classifier, labels, error, words):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(error, match=words):
        classifier.fit(X, y if labels is None else labels)


def test_a_display_shows_the_bins_of_evaluate(digits):
    X, test, y, truth = digits
    estimator = GaussianNB().fit(X, y)
    display = CalibrationDisplay.from_estimator(estimator, test, truth, bins=15)
    expected = evaluate_probabilities(estimator.predict_proba(test), truth, bins=15)
    assert display.curve.ece == expected.ece
    assert display.ax_.get_title() == "GaussianNB"
    assert display._repr_png_().startswith(b"\x89PNG")


def test_a_display_of_one_class_has_the_frequencies_of_scikit_learn():
    X, y = load_breast_cancer(return_X_y=True)
    p = GaussianNB().fit(X[::2], y[::2]).predict_proba(X)
    display = CalibrationDisplay.from_predictions(y, p, pos_label=1, name="naive Bayes")
    frequency, mean = calibration_curve(y, p[:, 1], n_bins=10)
    filled = ~display.curve.accuracy.isnan()
    np.testing.assert_allclose(display.curve.accuracy[filled], frequency)
    np.testing.assert_allclose(display.curve.confidence[filled], mean)
    assert (display.curve.low <= display.curve.accuracy)[filled].all()
    assert "frequency" in display.curve.band
    assert display.ax_.get_ylabel() == "frequency"
    texts = [text.get_text() for text in display.figure_.legends[0].get_texts()]
    assert "probability too high" in texts
    assert "mean probability of 1" in texts


def test_a_display_can_be_drawn_into_axes():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    display = CalibrationDisplay.from_predictions(["a", "b"], [[0.9, 0.1], [0.4, 0.6]], name="mine", ax=axes)
    assert display.ax_ is axes
    assert display.figure_ is axes.get_figure()
    assert axes.get_title() == "mine"


@pytest.mark.parametrize(
    ("labels", "options", "words"),
    [
        (["a", "b"], {"pos_label": "c"}, r"labels among \['a', 'b'\], got 'c'"),
        (["a", "c"], {"classes": ["a", "b"]}, r"labels among \['a', 'b'\], got 'c'"),
        (["a", "a"], {}, r"probabilities \(n, 1\) of the classes \['a'\], got shape \(2, 2\)"),
    ],
)
def test_labels_that_do_not_belong_to_the_probabilities_are_named(labels, options, words):
    with pytest.raises(ValueError, match=words):
        CalibrationDisplay.from_predictions(labels, [[0.9, 0.1], [0.4, 0.6]], **options)


def test_without_scikit_learn_the_error_says_what_to_install():
    code = "import sys; sys.modules['sklearn'] = None; import orthograd.calibration.sklearn"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "orthograd.calibration.sklearn needs scikit-learn: pip install 'orthograd[sklearn]'" in run.stderr
