"""Calibration without a held-out set: every sample is calibrated by a fit to the others."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
import torch
from scipy.optimize import minimize_scalar
from sklearn.model_selection import GroupKFold, PredefinedSplit, StratifiedKFold
from torch.nn import functional

from orthograd import calibration
from orthograd.calibration import (
    Calibrator,
    IsotonicCalibration,
    TemperatureScaling,
    VectorScaling,
    cross_fit,
    decomposition,
    evaluate,
)
from tests.calibration.samples import predictions
from tests.calibration.test_refinement import FORMS


def form(name):
    """Predictions of one form that know something, the calibrator of the form, and the settings of its fit."""
    logits, labels, settings = FORMS[name]()
    generator = torch.Generator().manual_seed(9)
    if name == "dense":
        noise = 3 * torch.randn(logits.shape, generator=generator)
        labels = (logits + noise).argmax(1).where(labels != -100, labels)
    if name == "multiple_choice":
        labels = torch.stack([(row + 3 * torch.randn(len(row), generator=generator)).argmax() for row in logits])
    options = {key: settings.pop(key) for key in ("task", "classes_dim") if key in settings}
    return logits, torch.as_tensor(labels), TemperatureScaling(**options), options, settings


def best_temperature(logits, labels, weights=None):
    """The temperature by scipy."""
    share = torch.ones(len(labels)) if weights is None else weights

    def loss(beta):
        return float(functional.cross_entropy(beta * logits, labels, reduction="none") @ share.double())

    return 1 / minimize_scalar(loss, bounds=(1e-3, 10), method="bounded", options={"xatol": 1e-10}).x


@pytest.mark.parametrize("weighted", [False, True])
def test_every_fold_is_calibrated_by_the_temperature_of_the_others(weighted):
    logits, labels = predictions(200, 4)
    weights = torch.rand(200, generator=torch.Generator().manual_seed(0)) if weighted else None
    fitted = cross_fit(TemperatureScaling(), logits, labels, folds=4, seed=3, weights=weights)
    expected = torch.empty_like(logits)
    for rest, fold in PredefinedSplit(fitted.fold.numpy()).split():
        expected[fold] = logits[fold] / best_temperature(
            logits[rest], labels[rest], None if weights is None else weights[rest]
        )
    torch.testing.assert_close(fitted.logits, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(fitted.probabilities, expected.softmax(1), rtol=1e-6, atol=1e-6)
    assert float(fitted.calibrator.temperature) == pytest.approx(best_temperature(logits, labels, weights), rel=1e-6)


@pytest.mark.parametrize("name", FORMS)
def test_no_label_enters_the_prediction_of_its_own_sample(name):
    logits, labels, scaling, _, settings = form(name)
    changed = labels.clone()
    changed[7] = (labels[7] == 0).long()
    groups = range(len(labels))  # labels choose the folds otherwise
    first, second = (cross_fit(scaling, logits, y, groups=groups, **settings) for y in (labels, changed))
    assert torch.equal(first.fold, second.fold)
    if isinstance(logits, list):
        assert [row.shape for row in first.logits] == [row.shape for row in logits]
    else:
        assert first.logits.shape == first.probabilities.shape == logits.shape
    is_same = [torch.equal(first.logits[k], second.logits[k]) for k in range(len(labels))]
    assert is_same == (first.fold == first.fold[7]).tolist()


@pytest.mark.parametrize("name", FORMS)
def test_the_loss_out_of_fold_is_the_refinement(name):
    logits, labels, scaling, options, settings = form(name)
    fitted = cross_fit(scaling, logits, labels, **settings)
    loss = evaluate(fitted.logits, labels, metrics=["loss"], **options, **settings).loss
    assert decomposition(logits, labels, **options, **settings).loss_refinement == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("folds", [2, 3, 7])
def test_classes_are_spread_as_by_scikit_learn(folds):
    _, labels = predictions(101, 4)
    fold = cross_fit(TemperatureScaling(), *predictions(101, 4), folds=folds).fold
    theirs = StratifiedKFold(folds, shuffle=True, random_state=0).split(np.zeros(101), labels)
    expected = np.sort([np.bincount(labels[index], minlength=4) for _, index in theirs], 0)
    counts = np.sort([np.bincount(labels[fold == number], minlength=4) for number in range(folds)], 0)
    np.testing.assert_array_equal(counts, expected)
    assert int(fold.bincount().max() - fold.bincount().min()) <= 1


@pytest.mark.parametrize("kind", [list, np.array, pandas.Series])
def test_a_group_stays_in_one_fold(kind):
    logits, labels = predictions(60, 3)
    names = [f"patient {number % 13}" for number in range(60)]
    fold = cross_fit(TemperatureScaling(), logits, labels, groups=kind(names), folds=4).fold
    folds_of = {name: {int(f) for f, other in zip(fold, names, strict=True) if other == name} for name in names}
    assert all(len(folds) == 1 for folds in folds_of.values())
    theirs = GroupKFold(4, shuffle=True, random_state=0).split(np.zeros(60), groups=names)
    groups_of_fold = [len({names[k] for k in np.flatnonzero(fold == number)}) for number in range(4)]
    assert sorted(groups_of_fold) == sorted(len({names[k] for k in index}) for _, index in theirs)


def test_a_weight_of_two_is_a_sample_twice_in_its_fold():
    logits, labels = predictions(60, 3)
    counts = torch.arange(60) % 3
    repeated = torch.arange(60).repeat_interleave(counts)
    weighted = cross_fit(VectorScaling(), logits, labels, weights=counts, groups=range(60))
    names = [*repeated.tolist(), *(range(0, 60, 3))]  # those without weight keep their place among the groups
    order = sorted(range(len(names)), key=lambda k: names[k])
    rows, sample_weights = torch.tensor(names)[order], torch.tensor([1.0] * len(repeated) + [0.0] * 20)[order]
    twice = cross_fit(VectorScaling(), logits[rows], labels[rows], weights=sample_weights, groups=rows)
    torch.testing.assert_close(twice.logits, weighted.logits[rows], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(twice.calibrator.weight, weighted.calibrator.weight, rtol=1e-6, atol=1e-6)


def test_the_calibrator_stays_and_its_options_hold():
    logits, labels = predictions(60, 3)
    given = IsotonicCalibration(floor=0.01)
    fitted = cross_fit(given, logits, labels, seed=1)
    assert not given.is_fitted
    assert fitted.calibrator.floor == 0.01
    assert fitted.probabilities.min() > 0.005
    assert not torch.equal(fitted.fold, cross_fit(given, logits, labels, seed=2).fold)
    assert torch.equal(fitted.logits, cross_fit(given, pandas.DataFrame(logits), labels.numpy(), seed=1).logits)


KINDS = [kind for kind in map(vars(calibration).get, calibration.__all__) if isinstance(kind, type)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if issubclass(kind, Calibrator) and kind is not Calibrator])
@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"classes_dim": -1}, (40, 2, 3)),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ({"classes_dim": 1}, (40, 3, 2)),
                ({}, (80, 3)),
                ({"task": "binary"}, (40, 2)),
                ({"task": "multilabel", "classes_dim": 1}, (40, 2, 2)),
            ]
        ),
    ],
)
def test_ignored_logits_may_be_nan(kind, options, shape):
    generator = torch.Generator().manual_seed(2)
    logits = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    noisy = logits + torch.randn(shape, generator=generator)
    labels = (noisy > 0).long() if "task" in options else noisy.argmax(options.get("classes_dim", 1))
    is_ignored = (torch.arange(labels.numel()) % 3 == 2).view(labels.shape)
    labels[is_ignored] = -100
    padded = is_ignored if "task" in options else is_ignored.unsqueeze(options.get("classes_dim", 1)).expand(shape)
    settings = {"ignore_index": -100, "groups": range(len(logits))}
    plain = cross_fit(kind(**options), logits, labels, **settings)
    padding = logits.masked_fill(padded, torch.nan)
    broken = cross_fit(kind(**options), padding, labels, **settings)
    assert torch.equal(broken.logits[~padded], plain.logits[~padded])
    settings |= options | {"calibrator": kind}
    of_broken, of_plain = (decomposition(z, labels, **settings) for z in (padding, logits))
    assert of_broken == of_plain


def test_choices_with_offsets_come_back_flat():
    logits, labels, scaling, *_ = form("multiple_choice")
    offsets = torch.tensor([0, *map(len, logits)]).cumsum(0)
    listed = cross_fit(scaling, logits, labels)
    flat = cross_fit(scaling, torch.cat(logits), labels, offsets=offsets)
    torch.testing.assert_close(flat.logits, torch.cat(listed.logits))
    torch.testing.assert_close(flat.probabilities, torch.cat(listed.probabilities))


def test_folds_and_groups_that_cannot_be_are_refused():
    logits, labels = predictions(20, 3)
    with pytest.raises(ValueError, match="at least one group for each of 5 folds, got 4"):
        cross_fit(TemperatureScaling(), logits, labels, groups=[1, 2, 3, 4] * 5)
    with pytest.raises(ValueError, match="a group for each of 20 samples, got 3"):
        cross_fit(TemperatureScaling(), logits, labels, groups=[1, 2, 3])
    with pytest.raises(TypeError, match=r"folds as an integer, got 2\.5"):
        cross_fit(TemperatureScaling(), logits, labels, folds=2.5)


def test_a_class_is_no_calibrator_and_a_calibrator_no_class():
    logits, labels = predictions(20, 3)
    with pytest.raises(TypeError, match=r"expected a calibrator such as TemperatureScaling\(\), got <class"):
        cross_fit(TemperatureScaling, logits, labels)
    with pytest.raises(TypeError, match=r"a class of calibrators such as TemperatureScaling, got .* VectorScaling\(\)"):
        decomposition(logits, labels, calibrator=VectorScaling())


def test_arrays_of_any_byte_order_are_welcome():
    logits, labels = predictions(60, 3)
    swapped = logits.numpy().astype(">f8"), labels.numpy().astype(">i8")
    weights = np.arange(60, dtype=">f4")
    found = cross_fit(TemperatureScaling(), *swapped, weights=weights)
    assert torch.equal(found.logits, cross_fit(TemperatureScaling(), logits.double(), labels, weights=weights).logits)
    assert decomposition(*swapped) == decomposition(logits.double(), labels)
