"""Evaluation of predictions for a record: metrics, temperatures, reliability; for GPU runs in separate processes.

Concurrent runs on a GPU end together. Threads that compute metrics slow each other down, since they share one memory
allocator: nine on two cores took three times as long as processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from ... import calibration
from ...calibration.calibrators.temperature import TemperatureFit
from ..jobs import files
from ..jobs.processes import available_cores

BINS = 10
"""Confidence bins of every binned metric and of the reliability diagrams."""
MAIN = (*calibration.PAPER, "smooth_ece", "aurc")
"""Metrics under distribution shift; clean images have all metrics."""
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    # glibc keeps freed memory, instead of zeroing new memory for every tensor. This saves a third of the time.
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
}


def evaluation(predictions: dict[str, Tensor]) -> dict[str, Any]:
    """Metrics before and after temperature scaling, and reliability curves."""
    scaled = after_temperature(predictions)
    return {
        "metrics": metrics_of(predictions),
        "after_temperature": scaled,
        "after_temperature_on_test": after_temperature_on_test(predictions),
        "reliability": reliability(predictions, None if scaled is None else scaled["temperature"]),
    }


def evaluation_by(helpers: Helpers | None, path: Path, predictions: dict[str, Tensor]) -> dict[str, Any]:
    """`evaluation` by a helper process, which reads the predictions from their file; here if there is none."""
    result = helpers.evaluation(path) if helpers else None
    return evaluation(predictions) if result is None else result


class Helpers:
    """Processes that evaluate files of predictions inside a block; at most half of the cores.

    Each reads requests and writes results line by line. They end when their input is closed.
    """

    def __init__(self, most: int) -> None:
        count, environment = max(1, min(most, available_cores() // 2)), {**os.environ, **ENVIRONMENT}
        self._all = [
            subprocess.Popen(
                [sys.executable, "-c", f"import sys, {__name__} as own; own.serve(sys.stdin, sys.stdout)"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
                start_new_session=True,  # they do not get Ctrl-C
            )
            for _ in range(count)
        ]
        self._idle, self._well, self._changed = list(self._all), count, threading.Condition()

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *error: object) -> None:
        """End all helpers, also busy ones: a run that waits for one evaluates without it."""
        for helper in self._all:
            helper.kill()
            helper.communicate()

    def evaluation(self, path: Path) -> dict[str, Any] | None:
        """Evaluation of a file by the next idle helper; None if it failed or no helper is left."""
        with self._changed:
            while not self._idle and self._well:
                self._changed.wait()
            if not self._well:
                return None
            helper = self._idle.pop()
        result: dict[str, Any] | None = None
        try:
            result = json.loads(_reply(helper, path))
            is_well = True
        except (OSError, ValueError):  # it has ended, perhaps in the middle of a line
            helper.kill()
            is_well = False
        with self._changed:
            if is_well:
                self._idle.append(helper)
            else:
                self._well -= 1
            self._changed.notify_all()
        return result


def _reply(helper: subprocess.Popen[str], path: Path) -> str:
    assert helper.stdin is not None
    assert helper.stdout is not None
    print(json.dumps(str(path.absolute())), file=helper.stdin, flush=True)
    return helper.stdout.readline()


def serve(requests: IO[str], results: IO[str]) -> None:
    """Evaluate one file after another."""
    torch.set_num_threads(1)
    for line in requests:
        result: dict[str, Any] | None = None
        try:
            result = evaluation(files.read(Path(json.loads(line)))[0])
        except Exception as error:  # the caller evaluates again and raises it
            print(f"could not evaluate {line.strip()}: {error!r}", file=sys.stderr)
        print(json.dumps(result), file=results, flush=True)


def metrics_of(predictions: dict[str, Tensor]) -> dict[str, dict[str, Any]]:
    """All metrics of clean test images, and the main ones for each shift and severity."""
    return {
        images: _metrics(logits, predictions["labels"], calibration.ALL if images == "clean" else MAIN)
        for images, logits in _tested(predictions).items()
    }


def after_temperature(predictions: dict[str, Tensor]) -> dict[str, Any] | None:
    """Metrics after temperature scaling on held-out clean images, for test images with and without shifts.

    None if there are no held-out images.
    """
    if "logits.held_out" not in predictions:
        return None
    scaled = _scaled(predictions, "logits.held_out", "labels.held_out", calibration.ALL)
    shifted = {images: logits for images, logits in _tested(predictions).items() if images != "clean"}
    return scaled | {
        "shifted": {
            images: _metrics(logits.double() / scaled["temperature"], predictions["labels"], MAIN)
            for images, logits in shifted.items()
        }
    }


def after_temperature_on_test(predictions: dict[str, Tensor]) -> dict[str, Any]:
    """Metrics of clean test images after temperature scaling on the same images: an upper bound."""
    return _scaled(predictions, "logits.clean", "labels", MAIN)


def _scaled(predictions: dict[str, Tensor], logits: str, labels: str, metrics: Sequence[str]) -> dict[str, Any]:
    fit: TemperatureFit = calibration.fit_temperatures(predictions[logits][None], predictions[labels])[0]
    scaled = predictions["logits.clean"].double() / fit.temperature
    return {
        "temperature": float(fit.temperature),
        "certificate": str(fit),
        "metrics": _metrics(scaled, predictions["labels"], metrics),
    }


def _metrics(logits: Tensor, labels: Tensor, metrics: Sequence[str]) -> dict[str, Any]:
    result: dict[str, Any] = calibration.evaluate(logits, labels, bins=BINS, metrics=metrics).as_dict()["metrics"]
    return result


def reliability(predictions: dict[str, Tensor], temperature: float | None) -> dict[str, dict[str, Any] | None]:
    """Reliability curves of clean images, of these after temperature scaling, and of all shifts together."""
    tested = _tested(predictions)
    clean = tested.pop("clean")
    scaled = [] if temperature is None else [clean.double() / temperature]
    return {
        "clean": _curve([clean], predictions["labels"]),
        "after_temperature": _curve(scaled, predictions["labels"]),
        "shifted": _curve(list(tested.values()), predictions["labels"]),
    }


def _curve(parts: list[Tensor], labels: Tensor) -> dict[str, Any] | None:
    if not parts:
        return None
    evaluation = calibration.Evaluation(bins=BINS, metrics=["ece"])
    for logits in parts:
        evaluation.update(logits, labels)
    return evaluation.reliability().as_dict()


def _tested(predictions: dict[str, Tensor]) -> dict[str, Tensor]:
    """Logits of test images, by the name of the images."""
    parts = ((name.partition("."), logits) for name, logits in predictions.items())
    return {images: logits for (prefix, _, images), logits in parts if prefix == "logits" and images != "held_out"}
