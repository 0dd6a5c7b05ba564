"""Metrics of many logits: tokens of a language model on a GPU, and maps of classes, next to torch's log_softmax."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ...calibration import STREAMING, Evaluation, Metrics
from ...calibration.metrics import CLASSWISE
from .calibration import DRIFT_TARGET, FOUR, plain
from .claim import Claim, Key, interleaved, ratios
from .step import MEBIBYTE, peak

TOKENS_TARGET = 1.5
MOST = tuple(name for name in STREAMING if name not in CLASSWISE)
PARTS = {FOUR: "loss, ECE, Brier score and entropy", MOST: f"the {len(MOST)} that need no memory per class or sample"}
PRECISIONS = {torch.float32: "float32", torch.bfloat16: "bf16"}

Batches = Callable[[], Iterator[tuple[Tensor, Tensor]]]


def tokens_cost(
    device: torch.device, *, tokens: int = 1_000_000, classes: int = 50_304, batch: int = 125_000, rounds: int = 5
) -> Iterator[Claim]:
    """Time and extra memory of an evaluation of tokens in bf16, and its error for those whose float64 fits."""
    logits = _random((min(batch, _fitting(device, classes)), classes), device, torch.bfloat16)
    batches = partial(_batches, logits, logits.argmax(1))
    setting = f"{tokens:,} × {classes:,} logits"
    every = partial(batches, tokens)
    yield from _times("metrics of tokens", "bf16", setting, every, rounds=rounds, target=TOKENS_TARGET)
    memory = [peak(device, partial(_evaluated, partial(batches, count), MOST)) for count in (tokens, tokens // 4)]
    key = Key("extra memory of metrics", precision="bf16", part="tokens", setting=setting, unit="MiB")
    yield Claim(key, memory[0], others={f"{tokens // 4:,} tokens": memory[1]})
    yield _error(logits[: max(1, (1 << 27) // classes)])


def maps_cost(device: torch.device, *, images: int = 32, side: int = 512, rounds: int = 5) -> Iterator[Claim]:
    """Time of an evaluation of maps of 19 classes, and its extra memory next to that of the logits."""
    shape = (images, 19, side, side)
    for dtype, precision in PRECISIONS.items():
        logits = _random(shape, device, dtype)
        batches = partial(_once, logits, torch.randint(19, (images, side, side), device=device))
        setting = " × ".join(map(str, shape)) + " logits"
        yield from _times("metrics of maps", precision, setting, batches, rounds=rounds, target=None)
        extra = peak(device, partial(_evaluated, batches, FOUR)) * MEBIBYTE / (logits.numel() * logits.element_size())
        key = Key("extra memory of metrics", part="maps", setting=setting, unit="share of the logits")
        yield Claim(replace(key, precision=precision), extra, 1.0)


def _times(
    what: str, precision: str, setting: str, batches: Batches, *, rounds: int, target: float | None
) -> Iterator[Claim]:
    contenders: dict[str, Callable[[], object]] = {"log_softmax": partial(_log_softmax, batches)}
    contenders |= {part: partial(_evaluated, batches, metrics) for metrics, part in PARTS.items()}
    device = next(batches())[0].device
    times = interleaved(contenders, rounds=rounds, settle=_settle(device))
    for part, ratio in ratios(times, "log_softmax").items():
        yield Claim(
            Key(what, precision=precision, part=part, setting=setting, unit="time over log_softmax"), ratio, target
        )


def _error(logits: Tensor) -> Claim:
    labels = _labels(logits.argmax(1), logits.shape[1])
    exact = torch.stack(plain(logits.double(), labels)).cpu()
    metrics = _evaluated(partial(_once, logits, labels), FOUR)
    ours = torch.tensor([getattr(metrics, name) for name in FOUR], dtype=torch.float64)
    setting = " × ".join(f"{count:,}" for count in logits.shape) + " logits"
    key = Key("error of metrics of tokens", precision="bf16", part=PARTS[FOUR], setting=setting)
    return Claim(key, float((ours - exact).abs().max()), DRIFT_TARGET)


def _evaluated(batches: Batches, metrics: tuple[str, ...]) -> Metrics:
    evaluation = Evaluation(metrics=metrics, classes_dim=1)
    for logits, labels in batches():
        evaluation.update(logits, labels)
    return evaluation.compute()


def _log_softmax(batches: Batches) -> None:
    for logits, _ in batches():
        logits.log_softmax(1)


def _batches(logits: Tensor, predicted: Tensor, tokens: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The same logits again and again, each time with other labels."""
    for start in range(0, tokens, len(logits)):
        count = min(len(logits), tokens - start)
        yield logits[:count], _labels(predicted[:count], logits.shape[1])


def _once(logits: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    yield logits, labels


def _labels(predicted: Tensor, classes: int) -> Tensor:
    """Labels of which about half are predicted."""
    is_right = torch.rand(predicted.shape, device=predicted.device) < 0.5
    return predicted.where(is_right, torch.randint_like(predicted, classes))


def _random(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator(device).manual_seed(0)
    return torch.randn(shape, generator=generator, device=device, dtype=dtype).mul_(4)


def _fitting(device: torch.device, classes: int) -> int:
    """Tokens whose logits and log_softmax fit the memory of the device."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 1 << 30
    return max(1, free // (5 * classes))  # 2 bytes each, and some to spare


def _settle(device: torch.device) -> Callable[[], None]:
    return partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
