"""Cost and accuracy of calibration metrics and calibrators, next to other implementations, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional

from ...calibration import ALL, PAPER, Evaluation, Metrics, TemperatureScaling, VectorScaling
from .claim import Claim, Key, interleaved, ratios

SPEED_TARGET, DRIFT_TARGET = 0.3, 1e-9
EXCESS_TARGET, TIME_TARGET, VECTOR_TARGET = 1e-12, 0.5, 3.0
FOUR = ("loss", "ece", "brier", "entropy")
TEMPERATURES = (0.05, 0.2, 1.0, 3.0, 6.0, 20.0, 50.0)

Fit = Callable[[Tensor, Tensor], float]


def metrics_cost(*, samples: int = 1_000_000, classes: int = 10, rounds: int = 7) -> list[Claim]:
    """Time of an evaluation over that of `plain`."""
    logits, labels = _random(samples, classes)
    contenders: dict[str, Callable[[], object]] = {"plain": partial(plain, logits, labels)}
    for name, metrics in (("four", FOUR), ("ten", PAPER), ("all", ALL)):
        contenders[name] = partial(_evaluated, logits, labels, metrics)
    if find_spec("torchmetrics") is not None:
        contenders[f"torchmetrics {version('torchmetrics')}"] = partial(with_torchmetrics, logits, labels)
    times = ratios(interleaved(contenders, rounds=rounds, settle=lambda: None), "plain")
    peers = {name: value for name, value in times.items() if name.startswith("torchmetrics")}

    def key(part: str) -> Key:
        return Key("metrics", part=part, setting=f"{samples:,} × {classes:,} logits", unit="time over plain torch")

    return [
        Claim(key("loss, ECE, Brier score and entropy"), times["four"], SPEED_TARGET, peers),
        Claim(key("the paper's ten"), times["ten"]),
        Claim(key(f"all {len(ALL)}"), times["all"]),
    ]


def metrics_error(*, samples: int = 20_000, classes: int = 1_000) -> list[Claim]:
    """Largest error of four metrics of float32 logits, next to a computation of all samples at once in float64."""
    logits, labels = _random(samples, classes)
    exact = torch.stack(plain(logits.double(), labels))
    ours = torch.tensor([getattr(_evaluated(logits, labels, FOUR), name) for name in FOUR], dtype=torch.float64)
    errors = {"ours": ours - exact, "plain torch": torch.stack(plain(logits, labels)).double() - exact}
    worst = {name: float(error.abs().max()) for name, error in errors.items()}
    key = Key(
        "error of metrics", part="loss, ECE, Brier score and entropy", setting=f"{samples:,} × {classes:,} logits"
    )
    return [Claim(key, worst.pop("ours"), DRIFT_TARGET, worst)]


def _random(samples: int, classes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(samples, classes, generator=generator)
    return logits, torch.randint(classes, (samples,), generator=generator)


def ece_drift(*, samples: int = 40_000_000) -> list[Claim]:
    """Error of the ECE for many samples of confidence 0.9 and accuracy 0.5."""
    batch = 2_000_000
    logits = torch.tensor([[9.0, 1.0]], dtype=torch.float64).log().expand(batch, 2)
    labels = torch.arange(batch) % 2
    evaluation = Evaluation(metrics=["ece"])
    for _ in range(samples // batch):
        evaluation.update(logits, labels)
    return [
        Claim(
            Key("|ECE − 0.4|", setting=f"{samples:,} samples of confidence 0.9 and accuracy 0.5"),
            abs(float(evaluation.compute().ece or 0) - 0.4),
            DRIFT_TARGET,
            {"sums in float32": abs(_float32_ece(samples) - 0.4)},
        )
    ]


def temperature_excess(*, samples: int = 10_000) -> list[Claim]:
    """Loss above the minimum over temperatures; the worst of several problems."""
    worst: dict[str, float] = {}
    for temperature in TEMPERATURES:
        logits, labels = overconfident(temperature, samples)
        best = _least_loss(logits, labels)
        for name, fit in _contenders().items():
            excess = _loss(logits, labels, 1 / torch.tensor(fit(logits, labels)).double()) - best
            worst[name] = max(worst.get(name, 0.0), float(excess))
    key = Key("loss above the minimum after fitting a temperature", setting=f"{samples:,} × 10, T from 0.05 to 50")
    return [Claim(key, worst.pop("ours"), EXCESS_TARGET, worst)]


def temperature_time(*, samples: int = 10_000, rounds: int = 15) -> list[Claim]:
    """Time of a temperature fit over that of scikit-learn; nothing if that is not installed."""
    peers = [name for name in _contenders() if name.startswith("scikit-learn")]
    if not peers:
        return []
    logits, labels = overconfident(3.0, samples)
    runs = {name: partial(fit, logits, labels) for name, fit in _contenders().items()}
    times = ratios(interleaved(runs, rounds=rounds, settle=lambda: None), peers[0])
    key = Key("fitting a temperature", setting=f"{samples:,} × 10, T = 3", unit=f"time over {peers[0]}'s")
    return [Claim(key, times.pop("ours"), TIME_TARGET, times)]


def vector_time(*, samples: int = 10_000, classes: int = 1_000, rounds: int = 1) -> list[Claim]:
    """Time of vector scaling with its certificate over that of torch's L-BFGS, which has none."""
    logits, labels = overconfident(3.0, samples, classes)
    runs: dict[str, Callable[[], object]] = {
        "ours": lambda: VectorScaling().fit(logits, labels),
        "L-BFGS": partial(_vector_lbfgs, logits, labels, steps=100),
        "20 steps of it": partial(_vector_lbfgs, logits, labels, steps=20),
    }
    times = ratios(interleaved(runs, rounds=rounds, settle=lambda: None), "L-BFGS")
    key = Key("vector scaling", setting=f"{samples:,} × {classes:,}", unit="time over 100 steps of torch's L-BFGS")
    return [Claim(key, times.pop("ours"), VECTOR_TARGET, times)]


def plain(logits: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """Loss, ECE, Brier score and entropy in plain torch."""
    log_probabilities = logits.log_softmax(1)
    probabilities = log_probabilities.exp()
    loss = functional.nll_loss(log_probabilities, labels)
    entropy = -(probabilities * log_probabilities).sum(1).mean()
    one_hot = functional.one_hot(labels, logits.shape[1]).to(probabilities.dtype)
    brier = (probabilities - one_hot).square().sum(1).mean()
    confidence, predicted = probabilities.max(1)
    return loss, _binned_ece(confidence, predicted == labels), brier, entropy


def with_torchmetrics(logits: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """The ECE by torchmetrics, the rest in plain torch."""
    from torchmetrics.functional.classification import multiclass_calibration_error

    probabilities = logits.softmax(1)
    ece = multiclass_calibration_error(logits, labels, logits.shape[1], n_bins=10, validate_args=False)
    brier = (probabilities - functional.one_hot(labels, logits.shape[1])).square().sum(1).mean()
    return functional.cross_entropy(logits, labels), ece, brier, torch.special.entr(probabilities).sum(1).mean()


def _evaluated(logits: Tensor, labels: Tensor, metrics: tuple[str, ...]) -> Metrics:
    evaluation = Evaluation(metrics=metrics)
    evaluation.update(logits, labels)
    return evaluation.compute()


def _binned_ece(confidence: Tensor, correct: Tensor, bins: int = 10) -> Tensor:
    cell = torch.bucketize(confidence, torch.linspace(0, 1, bins + 1, device=confidence.device)[1:-1])
    gap = confidence.new_zeros(bins).scatter_add_(0, cell, correct.to(confidence.dtype))
    gap -= confidence.new_zeros(bins).scatter_add_(0, cell, confidence)
    return gap.abs().sum() / len(confidence)


def _float32_ece(samples: int) -> float:
    return float(_binned_ece(torch.full((samples,), 0.9), torch.arange(samples) % 2 == 0))


def overconfident(temperature: float, samples: int, classes: int = 10) -> tuple[Tensor, Tensor]:
    """Logits that are calibrated at this temperature: their labels are drawn from that softmax."""
    generator = torch.Generator().manual_seed(0)
    calibrated = 3 * torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(calibrated.softmax(1), 1, generator=generator)[:, 0]
    return temperature * calibrated, labels


def _contenders() -> dict[str, Fit]:
    contenders: dict[str, Fit] = {"ours": _ours, "L-BFGS as usually written": _lbfgs}
    if find_spec("sklearn") is not None and version("scikit-learn") >= "1.8":  # earlier versions have none
        contenders[f"scikit-learn {version('scikit-learn')}"] = _scikit_learn
    return contenders


def _ours(logits: Tensor, labels: Tensor) -> float:
    return float(TemperatureScaling().fit(logits, labels).temperature)


def _scikit_learn(logits: Tensor, labels: Tensor) -> float:
    from sklearn.calibration import _TemperatureScaling

    return 1 / float(_TemperatureScaling().fit(logits.numpy(), labels.numpy()).beta_)


def _lbfgs(logits: Tensor, labels: Tensor) -> float:
    """The usual recipe: start at 1.5, fifty L-BFGS steps at a learning rate of 0.01."""
    temperature = torch.full((1,), 1.5, dtype=logits.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(logits / temperature, labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    return float(temperature.detach())


def _vector_lbfgs(logits: Tensor, labels: Tensor, *, steps: int) -> None:
    scale = torch.ones(logits.shape[1], dtype=logits.dtype, requires_grad=True)
    shift = torch.zeros_like(scale, requires_grad=True)
    optimizer = torch.optim.LBFGS([scale, shift], max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(logits * scale + shift, labels)
        loss.backward()
        return loss

    optimizer.step(closure)


def _least_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Minimal loss over 1/T by golden-section search: slow, and independent of all contenders."""
    low, high = torch.tensor(1e-3, dtype=torch.float64), torch.tensor(100.0, dtype=torch.float64)
    golden = (5**0.5 - 1) / 2
    while high / low > 1 + 1e-9:
        a, b = low * (high / low) ** (1 - golden), low * (high / low) ** golden
        low, high = (low, b) if _loss(logits, labels, a) < _loss(logits, labels, b) else (a, high)
    return _loss(logits, labels, (low * high).sqrt())


def _loss(logits: Tensor, labels: Tensor, inverse: Tensor) -> Tensor:
    return functional.cross_entropy(logits.double() * inverse, labels)
