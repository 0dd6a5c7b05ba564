"""The same metrics by several libraries, each called as its documentation says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

BINS = 10
Compute = Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class Library:
    """A library: its package, its page, its conventions, and what it computes from probabilities and from logits."""

    package: str
    page: str
    convention: str
    functions: Callable[[], tuple[Mapping[str, Compute], Mapping[str, Compute]]]  # imported when called


def ours():
    from orthograd import calibration

    def metric(name, evaluate):
        return lambda scores, labels: getattr(evaluate(scores, labels, bins=BINS, metrics=[name]), name)

    def temperature(logits, labels):
        return float(calibration.TemperatureScaling().fit(logits, labels).probabilities(logits.double())[0, 0])

    names = ("ece", "mce", "loss", "brier", "smooth_ece", "aurc")
    probabilities = {name: metric(name, calibration.evaluate_probabilities) for name in names}
    logits = {name: metric(name, calibration.evaluate) for name in names}
    return probabilities, {**logits, "temperature": temperature}


def torchmetrics():
    from torchmetrics.functional.classification import multiclass_calibration_error

    def error(norm):
        return lambda p, labels: float(multiclass_calibration_error(p, labels, p.shape[1], n_bins=BINS, norm=norm))

    both = {"ece": error("l1"), "mce": error("max")}  # it applies softmax to scores outside [0, 1]
    return both, both


def netcal():
    from netcal.metrics import ECE, MCE

    def error(measure):
        return lambda p, labels: float(measure(BINS).measure(p.numpy(), labels.numpy()))

    return {"ece": error(ECE), "mce": error(MCE)}, {}


def scikit_learn():
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator
    from sklearn.metrics import brier_score_loss, log_loss

    class Scores(ClassifierMixin, BaseEstimator):
        def fit(self, X, y=None):
            self.classes_, self.fitted_ = torch.arange(X.shape[1]).numpy(), True
            return self

        def decision_function(self, X):
            return X

        def predict(self, X):
            return X.argmax(1)

    def loss(p, labels):
        return float(log_loss(labels.numpy(), p.numpy(), labels=range(p.shape[1])))

    def brier(p, labels):
        classes = list(range(p.shape[1]))
        if len(classes) == 2:  # it takes the probability of the second class
            return float(brier_score_loss(labels.numpy(), p.numpy()[:, 1], pos_label=1))
        return float(brier_score_loss(labels.numpy(), p.numpy(), labels=classes))

    def temperature(logits, labels):
        X = logits.double().numpy()
        classifier = CalibratedClassifierCV(FrozenEstimator(Scores().fit(X)), method="temperature", ensemble=False)
        # Every class has to be in each of the folds, so there are many copies of the samples.
        rows = torch.arange(len(labels)).repeat(20)
        return float(classifier.fit(X[rows], labels.numpy()[rows]).predict_proba(X)[0, 0])

    return {"loss": loss, "brier": brier}, {"temperature": temperature}


def relplot():
    import relplot as library

    def pairs(p, labels):
        return library.multiclass_logits_to_confidences(p.numpy(), labels.numpy(), probs=True)

    return {
        "ece": lambda p, labels: float(library.metrics.binnedECE(*pairs(p, labels), nbins=BINS)),
        "smooth_ece": lambda p, labels: float(library.smECE(*pairs(p, labels))),
    }, {}


def probmetrics():
    from probmetrics.calibrators import get_calibrator
    from probmetrics.distributions import CategoricalLogits
    from probmetrics.metrics import Metrics

    names = {"ece": f"ece-{BINS}", "mce": f"mce-{BINS}", "loss": "logloss", "brier": "brier", "smooth_ece": "smece"}

    def metric(name, method):
        return lambda scores, labels: float(getattr(Metrics.from_names([name]), method)(labels, scores)[name])

    def temperature(logits, labels):
        predicted = CategoricalLogits(logits)
        calibrator = get_calibrator("temp-scaling").fit_torch(predicted, labels)
        return float(calibrator.predict_proba_torch(predicted).get_probs()[0, 0])

    probabilities = {key: metric(name, "compute_all_from_labels_probs") for key, name in names.items()}
    logits = {key: metric(name, "compute_all_from_labels_logits") for key, name in names.items()}
    return probabilities, {**logits, "temperature": temperature}


def torch_uncertainty():
    from torch.utils.data import DataLoader, TensorDataset
    from torch_uncertainty.metrics.classification import AURC, BrierScore, CalibrationError, CategoricalNLL
    from torch_uncertainty.metrics.classification.calibration import SmoothCalibrationError
    from torch_uncertainty.post_processing import TemperatureScaler

    def updated(make):
        def compute(p, labels):
            metric = make(p.shape[1])
            metric.update(p, labels)
            return float(metric.compute())

        return compute

    def temperature(logits, labels):
        scaler = TemperatureScaler(torch.nn.Identity())
        scaler.fit(DataLoader(TensorDataset(logits, labels), len(labels)), progress=False)
        return float(scaler(logits).softmax(1)[0, 0])

    logging.getLogger().setLevel(logging.CRITICAL)
    return {
        "ece": updated(lambda n: CalibrationError(task="multiclass", num_classes=n, num_bins=BINS)),
        "mce": updated(lambda n: CalibrationError(task="multiclass", num_classes=n, num_bins=BINS, norm="max")),
        "loss": updated(lambda n: CategoricalNLL()),
        "brier": updated(lambda n: BrierScore(n)),
        "smooth_ece": updated(lambda n: SmoothCalibrationError(kernel_type="reflected")),
        "aurc": updated(lambda n: AURC()),
    }, {"temperature": temperature}


LIBRARIES = {
    "orthograd": Library("orthograd", "calibration.md", "bins (lower, upper] up to rounding; sums in float64", ours),
    "torchmetrics": Library(
        "torchmetrics",
        "https://lightning.ai/docs/torchmetrics/stable/classification/calibration_error.html",
        "bins [lower, upper) by `bucketize(right=True)`; sums in float32",
        torchmetrics,
    ),
    "netcal": Library(
        "netcal",
        "https://efs-opensource.github.io/calibration-framework/",
        "bins [lower, upper) by `histogramdd`; confidences clipped to [ε, 1 − ε]; fewer than three labels are a binary "
        "problem",
        netcal,
    ),
    "scikit-learn": Library(
        "scikit-learn",
        "https://scikit-learn.org/stable/modules/calibration.html",
        "no ECE; `log_loss` clips at the machine epsilon; `brier_score_loss` halves for two classes: both documented",
        scikit_learn,
    ),
    "relplot": Library(
        "relplot",
        "https://github.com/apple/ml-calibration",
        "bins [lower, upper) by truncation; made for `smECE`",
        relplot,
    ),
    "probmetrics": Library(
        "probmetrics",
        "https://github.com/dholzmueller/probmetrics",
        "ECE of torchmetrics without classes that no label has; smooth ECE of relplot; log p clipped at the smallest "
        "float32",
        probmetrics,
    ),
    "torch-uncertainty": Library(
        "torch-uncertainty",
        "https://torch-uncertainty.github.io/",
        "ECE of torchmetrics; temperature by L-BFGS, a negative one is logged as an error",
        torch_uncertainty,
    ),
}
