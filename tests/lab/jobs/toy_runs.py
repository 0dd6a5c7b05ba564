"""Very short runs that show what was done."""

from __future__ import annotations

import os
import sys
import time

import torch

from orthograd.lab.jobs.jobs import Grid
from tests.patience import PATIENCE

EPOCHS_LOG = "epochs.log"


def train(config, folder, report):
    """A deterministic walk of a small tensor; each epoch writes a line, so that repeated work shows."""
    checkpoint = folder.load_checkpoint()
    tensors, state = checkpoint or ({"weights": torch.full((64,), float(config["seed"]))}, {"epoch": 0, "losses": []})
    weights, losses = tensors["weights"], state["losses"]
    for epoch in range(state["epoch"], config["epochs"]):
        time.sleep(config.get("seconds", 0.01))
        noise = torch.randn(64, generator=torch.Generator().manual_seed(1000 * config["seed"] + epoch))
        weights = 0.9 * weights + noise
        losses.append(float(weights.square().mean()))
        note(folder, epoch)
        folder.save_checkpoint({"weights": weights}, {"epoch": epoch + 1, "losses": losses})
        if not config.get("is_quiet"):
            report({"epoch": epoch + 1, "epochs": config["epochs"]})
    folder.write_tensors("logits", {"logits": weights.reshape(16, 4)})
    return {"metrics": {"losses": losses}, "timings": {"end": time.time()}, "threads": torch.get_num_threads()}


def meeting(config, folder, report):
    """`train`, once `config["at_once"]` runs have begun: a worker may start more slowly than another one trains."""
    (folder.path / "begun").touch()
    deadline = time.monotonic() + PATIENCE
    while len(list(folder.path.parent.glob("*/begun"))) < config["at_once"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected {config['at_once']} runs at once")
        time.sleep(0.02)
    return train(config, folder, report)


def note(folder, epoch):
    descriptor = os.open(folder.path / EPOCHS_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{epoch}\n".encode())
    os.close(descriptor)


def epochs_trained(folder):
    path = folder.path / EPOCHS_LOG
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def fragile(config, folder, report):
    """Ends as its config says: by an exception, sys.exit, a kill (also after its record), an orphan, or normally."""
    if config["how"] == "raise":
        raise ArithmeticError(f"diverged at seed {config['seed']}")
    if config["how"] == "exit":
        sys.exit(3)
    if config["how"] == "orphan":
        if (child := os.fork()) == 0:
            time.sleep(60)
            os._exit(0)
        (folder.path / "child").write_text(str(child))
        os.kill(os.getpid(), 9)
    if config["how"] == "die" and not (folder.load_checkpoint() or ({}, {"epoch": 0}))[1]["epoch"]:
        folder.save_checkpoint({"weights": torch.ones(64)}, {"epoch": 5, "losses": []})
        os.kill(os.getpid(), 9)
    if config["how"] == "die_after_record":
        folder.finish(train(config, folder, report))
        os.kill(os.getpid(), 9)
    return train(config, folder, report)


def threads(config, folder, report):
    """Number of threads that this run computes with."""
    return {"threads": torch.get_num_threads()}


def grid(runs, *, epochs=20, seconds=0.01, **more):
    return Grid.product({"epochs": epochs, "seconds": seconds, **more}, seed=range(runs))
