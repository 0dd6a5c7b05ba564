"""Calibrate any classifier of scikit-learn, and draw its reliability diagram.

`CalibratedClassifier` is an estimator: it works in pipelines, in cross-validation and in searches. `CalibrationDisplay`
draws the bars, bands and numbers of `orthograd.figures`.
"""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

try:
    import numpy as np
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
    from sklearn.frozen import FrozenEstimator
    from sklearn.model_selection import check_cv
    from sklearn.model_selection._search import BaseSearchCV
    from sklearn.utils import _safe_indexing, get_tags, indexable
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _num_samples, check_array, check_is_fitted, column_or_1d, has_fit_parameter
except ImportError as error:
    message = "orthograd.calibration.sklearn needs scikit-learn: pip install 'orthograd[sklearn]'"
    raise ImportError(message, name=error.name) from error

from .binned import bin_of
from .calibrators.calibrator import Calibrator
from .calibrators.ensemble import EnsembleTemperatureScaling
from .calibrators.one_vs_rest import HistogramBinning, IsotonicCalibration, PlattScaling
from .calibrators.scaling import (
    BiasCorrectedTemperatureScaling,
    DirichletCalibration,
    MatrixScaling,
    StructuredMatrixScaling,
    VectorScaling,
)
from .calibrators.temperature import TemperatureScaling
from .evaluation import Evaluation
from .inputs import checked_bins, checked_probabilities
from .reliability import ReliabilityCurve
from .sums import BinSums

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    from typing_extensions import Self

METHODS: dict[str, type[Calibrator]] = {
    "temperature": TemperatureScaling,
    "ensemble_temperature": EnsembleTemperatureScaling,
    "bias_corrected_temperature": BiasCorrectedTemperatureScaling,
    "vector": VectorScaling,
    "matrix": MatrixScaling,
    "structured_matrix": StructuredMatrixScaling,
    "dirichlet": DirichletCalibration,
    "platt": PlattScaling,
    "isotonic": IsotonicCalibration,
    "histogram": HistogramBinning,
}
"""The calibrators by name."""


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier with calibrated probabilities, from one that has ``decision_function`` or ``predict_proba``.

    Args:
        estimator: the classifier to calibrate.
        method: ``temperature``, ``ensemble_temperature``, ``bias_corrected_temperature``, ``vector``, ``matrix``,
            ``structured_matrix``, ``dirichlet``, ``platt``, ``isotonic``, ``histogram``, or a `Calibrator` with its
            options.
        cv: how to get scores of samples that the classifier was not trained on: a number of folds, or a splitter of
            scikit-learn. ``"prefit"``: the estimator is fitted already, on other samples.
        floor: lowest probability, since log 0 is not a logit; for estimators without ``decision_function``.

    ``fit`` trains one classifier per fold for the scores, fits one calibrator to all of them, and trains the classifier
    on all samples. Scores are those of ``decision_function``, otherwise the logarithm of ``predict_proba``. In
    cross-validation use ``FrozenEstimator(estimator)`` instead of ``cv="prefit"``, because copies forget a fit.

    After ``fit``, ``estimator_`` is the classifier, ``calibrator_`` the calibrator, ``classes_`` the classes.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = CalibratedClassifier(GaussianNB(), method="temperature").fit(X, y)
    >>> f"T = {float(classifier.calibrator_.temperature):.2f}"
    'T = 1.70'
    >>> classifier.predict_proba(X[50:51]).round(3).tolist()
    [[0.0, 0.696, 0.303]]
    """

    def __init__(
        self, estimator: Any, *, method: str | Calibrator = "temperature", cv: Any = 5, floor: float = 1e-6
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.floor = floor

    def fit(self, X: Any, y: Any, *, groups: Any = None, **fit_params: Any) -> Self:
        """Train and calibrate.

        Args:
            X: samples, as the estimator takes them.
            y: labels (n,) of any type.
            groups: a value for each sample, for a ``cv`` such as ``GroupKFold``; also for an estimator that is a
                search, or whose ``fit`` takes groups.
            **fit_params: for the estimator's ``fit``; those with a value per sample are split with the samples.
                ``sample_weight`` also weights the samples of the calibrator, as in ``CalibratedClassifierCV``.
        """
        if not any(hasattr(self.estimator, name) for name in ("decision_function", "predict_proba")):
            raise TypeError(f"expected an estimator with decision_function or predict_proba, got {self.estimator!r}")
        labels = _checked_labels(y)
        if groups is not None and _takes_groups(self.estimator):
            fit_params = {**fit_params, "groups": groups}
        (X,) = indexable(X)  # sparse matrices in any format, and lists
        calibrator = self._new_calibrator()
        if self._is_prefit:
            check_is_fitted(self.estimator)
            self.estimator_ = self.estimator
            scores = self._scores(self.estimator_, X)
        else:
            _refuse_one_class(labels)
            self.estimator_ = clone(self.estimator).fit(X, labels, **fit_params)
            scores = self._out_of_fold(X, labels, groups, fit_params)
        self.classes_ = self.estimator_.classes_
        counted, weights = _counted(fit_params.get("sample_weight"), len(labels))
        self.calibrator_ = calibrator.fit(scores[counted], _numbers(labels[counted], self.classes_), weights=weights)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def predict_proba(self, X: Any) -> Any:
        """Calibrated probabilities (n, classes), in the order of ``classes_``."""
        check_is_fitted(self)
        return self.calibrator_.probabilities(torch.from_numpy(self._scores(self.estimator_, X))).numpy()

    def predict(self, X: Any) -> Any:
        """The class with the highest calibrated probability."""
        highest = self.predict_proba(X).argmax(1)
        return self.classes_[highest]

    @property
    def _is_prefit(self) -> bool:
        return isinstance(self.estimator, FrozenEstimator) or (isinstance(self.cv, str) and self.cv == "prefit")

    def _new_calibrator(self) -> Calibrator:
        if isinstance(self.method, Calibrator):
            return copy.deepcopy(self.method)
        if self.method not in METHODS:
            raise ValueError(f"expected a method among {', '.join(METHODS)} or a Calibrator, got {self.method!r}")
        return METHODS[self.method]()

    def _scores(self, estimator: Any, X: Any) -> Any:
        """Logits (n, classes) of an estimator; a binary score s becomes [0, s]."""
        if hasattr(estimator, "decision_function"):
            scores = np.asarray(estimator.decision_function(X), dtype=np.float64)
            scores = np.stack([np.zeros_like(scores), scores], 1) if scores.ndim == 1 else scores
        else:
            scores = np.log(np.clip(np.asarray(estimator.predict_proba(X), dtype=np.float64), self.floor, 1))
        if scores.shape[1] != len(estimator.classes_):
            raise ValueError(
                f"expected a score for each of {len(estimator.classes_)} classes, got {scores.shape[1]} columns; "
                "an SVC needs decision_function_shape='ovr'"
            )
        return scores

    def _out_of_fold(self, X: Any, labels: Any, groups: Any, fit_params: dict[str, Any]) -> Any:
        """Scores of each sample by a classifier that was not trained on it."""
        scores = np.full((len(labels), len(self.estimator_.classes_)), np.nan)
        for train, test in check_cv(self.cv, labels, classifier=True).split(X, labels, groups):
            params = {name: _rows(value, train, len(labels)) for name, value in fit_params.items()}
            fold = clone(self.estimator).fit(_safe_indexing(X, train), labels[train], **params)
            if not np.array_equal(fold.classes_, self.estimator_.classes_):
                missing = sorted(set(self.estimator_.classes_) - set(fold.classes_))
                raise ValueError(f"expected every class in every fold, got a fold without {missing}; use fewer folds")
            scores[test] = self._scores(fold, _safe_indexing(X, test))
        if np.isnan(scores).all(1).any():
            raise ValueError(f"expected folds that test every sample, got {self.cv!r}")
        return scores

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        tags.classifier_tags.multi_class = inner.classifier_tags is None or inner.classifier_tags.multi_class
        return tags


class CalibrationDisplay:
    """Reliability diagram of a classifier, with a 95% interval for each bin.

    Make one by `from_estimator` or `from_predictions`; notebooks show it. ``curve`` holds the numbers, ``figure_`` and
    ``ax_`` the drawing.

    >>> display = CalibrationDisplay.from_predictions(["a", "b", "b"], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> display.curve.samples, display.ax_.get_ylabel()
    (3, 'accuracy')
    """

    def __init__(self, curve: ReliabilityCurve, *, name: str, class_name: str | None = None) -> None:
        self.curve, self.name, self.class_name = curve, name, class_name
        self.figure_: matplotlib.figure.Figure | None = None
        self.ax_: matplotlib.axes.Axes | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        bins: int = 10,
        pos_label: Any = None,
        name: str | None = None,
        ax: matplotlib.axes.Axes | None = None,
    ) -> CalibrationDisplay:
        """The diagram of a fitted classifier with ``predict_proba``.

        Args:
            estimator: a fitted classifier.
            X: samples that it was not trained on.
            y: their labels.
            bins: number of bins, 1 to 1000.
            pos_label: draw the probability of this class against its frequency. By default the confidence in the
                predicted class is drawn against its accuracy.
            name: title, by default the name of the estimator.
            ax: matplotlib axes to draw into, by default a new figure with a histogram of the confidence.
        """
        options: dict[str, Any] = {"classes": estimator.classes_, "bins": bins, "pos_label": pos_label, "ax": ax}
        name = type(estimator).__name__ if name is None else name
        return cls.from_predictions(y, estimator.predict_proba(X), name=name, **options)

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        probabilities: Any,
        *,
        classes: Any = None,
        bins: int = 10,
        pos_label: Any = None,
        name: str = "classifier",
        ax: matplotlib.axes.Axes | None = None,
    ) -> CalibrationDisplay:
        """The diagram of probabilities (n, classes); ``classes`` are by default the sorted labels of ``y``."""
        labels = _checked_labels(y)
        known = np.unique(labels) if classes is None else np.asarray(classes)
        if np.ndim(probabilities) != 2 or np.shape(probabilities)[1] != len(known):
            raise ValueError(
                f"expected probabilities (n, {len(known)}) of the classes {known.tolist()}, "
                f"got shape {np.shape(probabilities)}"
            )
        numbers = _numbers(labels, known)
        if pos_label is None:
            evaluation = Evaluation(bins=bins, metrics=["ece"])
            evaluation.update_probabilities(probabilities, numbers)
            display = cls(evaluation.reliability(), name=name)
        else:
            (number,) = _numbers(np.asarray([pos_label]), known)
            display = cls(_class_curve(probabilities, numbers, number, bins), name=name, class_name=str(pos_label))
        return display.plot(ax=ax)

    def plot(self, *, ax: matplotlib.axes.Axes | None = None) -> CalibrationDisplay:
        """Draw into axes, or into a new figure."""
        try:
            from ..figures.reliability import Words, class_words, draw_reliability, reliability_figure
        except ImportError as error:
            raise ImportError("a figure needs matplotlib: pip install 'orthograd[sklearn]'", name=error.name) from error
        words = Words() if self.class_name is None else class_words(self.class_name)
        if ax is None:
            self.figure_ = reliability_figure({self.name: self.curve}, words=words)
            self.ax_ = self.figure_.axes[0]
        else:
            draw_reliability(ax, self.curve, label=f"{words.y} of a bin", words=words)
            ax.set_title(self.name, parse_math=False)
            self.figure_, self.ax_ = ax.get_figure(root=True), ax
        return self

    def _repr_png_(self) -> bytes | None:
        if self.figure_ is None:
            return None
        image = io.BytesIO()
        self.figure_.savefig(image, format="png", dpi=200)
        return image.getvalue()


def _class_curve(probabilities: Any, labels: Any, number: int, bins: int) -> ReliabilityCurve:
    """The curve of one class: its frequency by its probability."""
    scores, truth = checked_probabilities(probabilities, labels)
    count = checked_bins(bins)
    p = scores[:, number].double()
    cell, is_own = bin_of(p, count), truth == number

    def total(values: torch.Tensor) -> torch.Tensor:
        return p.new_zeros(count).index_add_(0, cell, values)

    sums = BinSums(total(torch.ones_like(p)), total(is_own.double()), total(p), total(p * (1 - p)))
    return replace(ReliabilityCurve.of(sums), band="95% interval of a bin's frequency")


def _checked_labels(y: Any) -> Any:
    if y is None:
        raise ValueError("expected labels, got None: this classifier requires y to be passed, but the target y is None")
    labels = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name="y"), warn=True)
    check_classification_targets(labels)
    return labels


def _takes_groups(estimator: Any) -> bool:
    """True if the fit of an estimator takes groups. A search does, but its signature does not say so."""
    return isinstance(estimator, BaseSearchCV) or has_fit_parameter(estimator, "groups")


def _refuse_one_class(labels: Any) -> None:
    known = np.unique(labels)
    if len(known) < 2:
        raise ValueError(f"expected labels of at least two classes, got one class, {known[0]!r}")


def _numbers(labels: Any, classes: Any) -> Any:
    """The position of each label in the classes."""
    positions = {label: number for number, label in enumerate(classes.tolist())}
    unknown = [label for label in dict.fromkeys(labels.tolist()) if label not in positions]
    if unknown:
        raise ValueError(f"expected labels among {list(positions)}, got {unknown[0]!r}")
    return np.array([positions[label] for label in labels.tolist()], dtype=np.int64)


def _counted(sample_weight: Any, samples: int) -> tuple[Any, Any]:
    """The samples of a weight other than zero, and their weights."""
    if sample_weight is None:
        return slice(None), None
    weights = np.broadcast_to(np.asarray(sample_weight, dtype=np.float64), samples)
    return weights != 0, weights[weights != 0]


def _rows(value: Any, rows: Any, samples: int) -> Any:
    """The rows of a value per sample; anything else as it is."""
    is_per_sample = hasattr(value, "__len__") and not isinstance(value, str | dict) and _num_samples(value) == samples
    return _safe_indexing(value, rows) if is_per_sample else value
