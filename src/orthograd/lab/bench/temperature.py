"""How close a fitted temperature is to the best one, and how long fits take, beside what others do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec

import torch
from torch import Tensor

from ...calibration import TemperatureScaling, VectorScaling
from .claim import Claim, interleaved, ratios

EXCESS_REACH, TIME_REACH, VECTOR_REACH = 1e-12, 0.5, 3.0
TEMPERATURES = (0.05, 0.2, 1.0, 3.0, 6.0, 20.0, 50.0)

Fit = Callable[[Tensor, Tensor], float]


def temperature_excess(*, samples: int = 10_000) -> list[Claim]:
    """Loss above that of the best temperature; the worst of several problems."""
    worst: dict[str, float] = {}
    for temperature in TEMPERATURES:
        logits, labels = overconfident(temperature, samples)
        best = _least_loss(logits, labels)
        for name, fit in _contenders().items():
            excess = _loss(logits, labels, 1 / torch.tensor(fit(logits, labels)).double()) - best
            worst[name] = max(worst.get(name, 0.0), float(excess))
    what = f"loss above the minimum after fitting a temperature, {samples:,} × 10, T from 0.05 to 50"
    return [Claim(what, worst.pop("ours"), EXCESS_REACH, worst)]


def temperature_time(*, samples: int = 10_000, rounds: int = 15) -> list[Claim]:
    """Seconds of a fit over those of scikit-learn; none where that is missing."""
    peers = [name for name in _contenders() if name.startswith("scikit-learn")]
    if not peers:
        return []
    logits, labels = overconfident(3.0, samples)
    runs = {name: partial(fit, logits, labels) for name, fit in _contenders().items()}
    found = ratios(interleaved(runs, rounds=rounds, settle=lambda: None), peers[0])
    return [Claim(f"time of that fit over {peers[0]}'s, T = 3", found.pop("ours"), TIME_REACH, found)]


def vector_time(*, samples: int = 10_000, classes: int = 1_000, rounds: int = 1) -> list[Claim]:
    """Seconds of vector scaling with its certificate over those of torch's L-BFGS, which has none."""
    logits, labels = overconfident(3.0, samples, classes)
    runs: dict[str, Callable[[], object]] = {
        "ours": lambda: VectorScaling().fit(logits, labels),
        "L-BFGS": partial(_vector_lbfgs, logits, labels, steps=100),
        "20 steps of it": partial(_vector_lbfgs, logits, labels, steps=20),
    }
    found = ratios(interleaved(runs, rounds=rounds, settle=lambda: None), "L-BFGS")
    what = f"time of vector scaling over that of 100 steps of torch's L-BFGS, {samples:,} × {classes:,}"
    return [Claim(what, found.pop("ours"), VECTOR_REACH, found)]


def overconfident(temperature: float, samples: int, classes: int = 10) -> tuple[Tensor, Tensor]:
    """Logits whose softmax at a temperature is how their labels were drawn."""
    generator = torch.Generator().manual_seed(0)
    calibrated = 3 * torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(calibrated.softmax(1), 1, generator=generator)[:, 0]
    return temperature * calibrated, labels


def _contenders() -> dict[str, Fit]:
    contenders: dict[str, Fit] = {"ours": _ours, "L-BFGS as usually written": _lbfgs}
    if find_spec("sklearn") is not None and version("scikit-learn") >= "1.8":  # it has none before
        contenders[f"scikit-learn {version('scikit-learn')}"] = _scikit_learn
    return contenders


def _ours(logits: Tensor, labels: Tensor) -> float:
    return float(TemperatureScaling().fit(logits, labels).temperature)


def _scikit_learn(logits: Tensor, labels: Tensor) -> float:
    from sklearn.calibration import _TemperatureScaling

    return 1 / float(_TemperatureScaling().fit(logits.numpy(), labels.numpy()).beta_)


def _lbfgs(logits: Tensor, labels: Tensor) -> float:
    """The recipe that most repositories carry: start at 1.5, fifty steps of 0.01."""
    temperature = torch.full((1,), 1.5, dtype=logits.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits / temperature, labels)
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
        loss = torch.nn.functional.cross_entropy(logits * scale + shift, labels)
        loss.backward()
        return loss

    optimizer.step(closure)


def _least_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The minimum over 1/T by golden section: slow, and independent of every contender."""
    low, high = torch.tensor(1e-3, dtype=torch.float64), torch.tensor(100.0, dtype=torch.float64)
    golden = (5**0.5 - 1) / 2
    while high / low > 1 + 1e-9:
        a, b = low * (high / low) ** (1 - golden), low * (high / low) ** golden
        low, high = (low, b) if _loss(logits, labels, a) < _loss(logits, labels, b) else (a, high)
    return _loss(logits, labels, (low * high).sqrt())


def _loss(logits: Tensor, labels: Tensor, inverse: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(logits.double() * inverse, labels)
