"""A finished run and the files in its folder."""

from __future__ import annotations

import torch

CONFIG = {"method": "sgd", "seed": 0, "rate": 0.1}


def finished(store, config=CONFIG):
    run = store.get(config)
    with run.claim():
        run.write_tensors("logits", {"logits": torch.arange(12.0).reshape(3, 4)})
        run.save_checkpoint({"weights": torch.ones(2)}, {"epoch": 1})
        run.finish({"metrics": {"loss": 0.1 + 0.2}, "versions": {"torch": "x"}})
    return run


def names(run):
    return sorted(path.name for path in run.path.iterdir())
