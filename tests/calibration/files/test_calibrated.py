"""Calibrators on files: cross-fitted as `decomposition` does it, or fitted on held-out files, in every form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from orthograd import calibration
from orthograd.calibration.files.calibrated import calibrated, calibrators_for, cross_fitted, fitted, logits_of
from orthograd.calibration.files.evaluation import Settings, column_of, confidences, evaluated
from orthograd.calibration.files.reading import PredictionsFile
from orthograd.calibration.inputs import Form


def samples(count=200, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    return 2 * logits, torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]


def file_of(scores, labels, form=None, offsets=None, *, is_probabilities=False):
    return PredictionsFile(Path("a.npz"), scores, labels, is_probabilities, "", form or Form(), offsets)


def forms():
    logits, labels = samples()
    ragged = torch.arange(200) % 2  # the second half of the rows have two choices
    counts = torch.where(ragged == 1, 2, 4)
    flat = torch.cat([row[:count] for row, count in zip(logits, counts.tolist(), strict=True)])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    maps = logits.view(50, 2, 2, 4).movedim(-1, 1)
    padded = labels.view(50, 2, 2).clone()
    padded[:, 0, 0] = 255
    return {
        "multiclass": file_of(logits, labels),
        "binary": file_of(logits[:, 0], (labels == 0).long(), Form("binary")),
        "multilabel": file_of(logits, torch.nn.functional.one_hot(labels), Form("multilabel")),
        "multiple_choice": file_of(flat, labels.clamp(max=counts - 1), Form("multiple_choice"), offsets),
        "maps": file_of(maps, padded, Form("multiclass", 1, 255)),
    }


def as_probabilities(name, file):
    """The file with the probabilities of its logits."""
    probabilities = {
        "binary": file.scores.sigmoid,
        "multilabel": file.scores.sigmoid,
        "multiclass": lambda: file.scores.softmax(1),
        "maps": lambda: file.scores.softmax(1),
        "multiple_choice": lambda: torch.cat(
            [row.softmax(0) for row in file.scores.split(file.offsets.diff().tolist())]
        ),
    }[name]
    return replace(file, scores=probabilities(), is_probabilities=True)


@pytest.mark.parametrize("name", forms())
def test_cross_fitting_leaves_the_loss_that_the_decomposition_finds(name):
    file = forms()[name]
    after = column_of("a", cross_fitted(calibration.TemperatureScaling, file), Settings(resamples=0))
    options = {"task": file.form.task, "classes_dim": file.form.classes_dim, "ignore_index": file.form.ignore_index}
    expected = calibration.decomposition(file.scores, file.labels, offsets=file.offsets, **options)
    assert after.metrics.loss == pytest.approx(expected.loss_refinement, rel=1e-9)
    assert after.metrics.loss < column_of("a", file, Settings(resamples=0)).metrics.loss


@pytest.mark.parametrize("name", forms())
def test_probabilities_are_calibrated_as_their_logits_are(name):
    file = forms()[name]
    twin = as_probabilities(name, file)
    losses = [
        column_of("a", cross_fitted(calibration.TemperatureScaling, each), Settings(resamples=0)).metrics.loss
        for each in (file, twin)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


def test_every_calibrator_of_the_library_is_there_and_works():
    file, held_out = file_of(*samples()), file_of(*samples(seed=1))
    every = calibrators_for(file)
    assert next(iter(every)) == "Temperature scaling"
    assert {each.__name__ for each in every.values()} >= {
        *("TemperatureScaling", "VectorScaling", "MatrixScaling", "DirichletCalibration"),
        *("PlattScaling", "HistogramBinning", "IsotonicCalibration"),
    }
    for kind in every.values():
        expected = kind().fit(held_out.scores, held_out.labels)(file.scores)
        assert torch.equal(calibrated(fitted(kind, held_out), file, held_out).scores, expected)
    assert list(calibrators_for(forms()["multiple_choice"])) == ["Temperature scaling"]
    many = calibrators_for(file_of(torch.zeros(2, 200), torch.zeros(2)))
    assert not {"Matrix scaling", "Dirichlet calibration", "Structured matrix scaling"} & many.keys()


def test_what_cannot_be_calibrated_is_refused():
    file = file_of(*samples())
    with pytest.raises(ValueError, match="at least 2 samples to cross-fit a calibrator, got 1"):
        cross_fitted(calibration.TemperatureScaling, file_of(file.scores[:1], file.labels[:1]))
    scaling = fitted(calibration.TemperatureScaling, file)
    with pytest.raises(ValueError, match=r"expected task 'multiclass' as in a\.npz, got 'binary'"):
        calibrated(scaling, forms()["binary"], file)
    certain = file_of(torch.tensor([1.0, 0.5]), torch.tensor([1, 0]), Form("binary"), is_probabilities=True)
    with pytest.raises(ValueError, match="between 0 and 1 for a calibrator, got 0 or 1 in row 0 and 0 more"):
        logits_of(certain)


@pytest.mark.parametrize("name", forms())
@pytest.mark.parametrize("is_probabilities", [False, True])
def test_ignored_positions_may_hold_what_no_calibrator_takes(name, is_probabilities):
    file = forms()[name]
    labels = file.labels.clone()
    labels[::5] = 255
    at = labels == 255
    if name == "multiple_choice":
        at = at.repeat_interleave(file.offsets.diff())
    elif name == "maps":
        at = at[:, None].expand(file.scores.shape)
    twin = as_probabilities(name, file) if is_probabilities else file
    plain = replace(twin, labels=labels, form=replace(file.form, ignore_index=255))
    kind = calibration.TemperatureScaling if name == "multiple_choice" else calibration.VectorScaling
    expected = [cross_fitted(kind, plain), calibrated(fitted(kind, plain), plain, plain)]
    for filler in (0.0, torch.nan):
        scores = plain.scores.clone()
        scores[at] = filler
        broken = replace(plain, scores=scores)
        found = [cross_fitted(kind, broken), calibrated(fitted(kind, broken), broken, broken)]
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one.scores[~at], other.scores[~at])


def test_the_row_of_a_certain_choice_is_that_of_its_sample():
    scores, offsets = torch.tensor([0.5, 0.5, 0.2, 0.8, 0.0, 1.0, 0.0, 0.0, 1.0]), torch.tensor([0, 2, 4, 6, 9])
    file = file_of(scores, torch.zeros(4).long(), Form("multiple_choice"), offsets, is_probabilities=True)
    with pytest.raises(ValueError, match="got 0 in row 2 and 1 more rows"):
        logits_of(file)


def test_confidences_are_those_of_the_softmax():
    file = forms()["maps"]
    confidence, correct = confidences(file)
    kept = file.labels != 255
    best, chosen = file.scores.softmax(1).max(1)
    assert sorted(confidence.tolist()) == pytest.approx(sorted(best[kept].tolist()), abs=1e-12)
    assert int(correct.sum()) == int((chosen == file.labels)[kept].sum())


def test_intervals_of_ragged_and_binary_samples_are_those_of_their_matrix():
    """With as many choices everywhere, multiple choice is a matrix; a binary logit s is the pair [0, s]."""
    logits, labels = samples()
    plain = calibration.intervals(logits, labels, resamples=50)
    offsets = torch.arange(0, 801, 4)
    flat = calibration.intervals(logits.flatten(), labels, task="multiple_choice", offsets=offsets, resamples=50)
    assert flat == plain
    pair = torch.stack([torch.zeros(200, dtype=torch.float64), logits[:, 0]], 1)
    truth = (labels == 0).long()
    assert calibration.intervals(logits[:, 0], truth, task="binary", resamples=50) == calibration.intervals(
        pair, truth, resamples=50
    )
    with pytest.raises(ValueError, match="multilabel"):
        calibration.intervals(logits, torch.ones(200, 4).long(), task="multilabel")


def test_ignored_labels_are_no_part_of_an_interval():
    logits, labels = samples()
    ignoring = file_of(logits, torch.where(torch.arange(200) < 50, -100, labels), Form("multiclass", None, -100))
    column = column_of("a", ignoring, Settings(resamples=50))
    assert column.metrics.intervals == calibration.intervals(logits[50:], labels[50:], resamples=50)
    assert not column_of("a", forms()["maps"], Settings(resamples=50)).metrics.intervals


def test_choices_that_are_ignored_are_no_part_of_an_interval():
    file = forms()["multiple_choice"]
    labels = torch.where(torch.arange(200) < 50, -100, file.labels)
    ignoring = replace(file, labels=labels, form=Form("multiple_choice", None, -100))
    column = column_of("a", ignoring, Settings(resamples=50))
    start = int(file.offsets[50])
    rest = {"task": "multiple_choice", "offsets": file.offsets[50:] - start, "resamples": 50}
    expected = calibration.intervals(file.scores[start:], file.labels[50:], **rest)
    assert column.metrics.intervals == expected
    other = replace(ignoring, path=Path("b.npz"), scores=ignoring.scores / 2)
    (difference,) = evaluated([ignoring, other], [], Settings(resamples=50)).differences
    assert difference.intervals == calibration.difference_intervals(
        other.scores[start:], file.scores[start:], file.labels[50:], **rest
    )


@pytest.mark.parametrize("name", ["binary", "multiclass"])
def test_a_column_of_labels_has_the_intervals_of_its_samples(name):
    file = forms()[name]
    form = Form("binary") if name == "binary" else Form("multiclass", -1)
    column = replace(file, scores=file.scores[:, None], labels=file.labels[:, None], form=form)
    plain, twin = (column_of("a", each, Settings(resamples=50)).metrics.intervals for each in (file, column))
    assert plain == twin
    assert plain


def test_a_fit_on_the_evaluated_samples_is_told_with_nan_padding():
    file = forms()["maps"]
    scores = file.scores.masked_fill((file.labels == 255)[:, None], torch.nan)
    padded = replace(file, scores=scores)
    results = evaluated([padded], [replace(padded, path=Path("b.npz"))], Settings(resamples=0))
    assert any("too good" in doubt for doubt in results.doubts)


def test_tasks_of_the_harness_are_also_evaluated_together():
    ragged = forms()["multiple_choice"]
    first, second = (replace(ragged, path=Path(name), benchmark=name) for name in ("arc", "boolq"))
    results = evaluated([first, replace(second, labels=1 - second.labels.clamp(max=1))], [], Settings(resamples=0))
    assert [column.name for column in results.columns] == ["arc", "boolq", "all tasks"]
    one, other, both = (column.metrics for column in results.columns)
    assert both.loss == pytest.approx((one.loss + other.loss) / 2)
    assert (both.samples, list(results.files)) == (400, ["arc", "boolq"])
    same = evaluated([first, replace(first, path=Path("b"))], [], Settings(resamples=0))
    assert [column.is_pooled for column in same.columns] == [False, False]
    assert len(same.differences) == 1
