"""Addition modulo 113 as a data set."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from orthograd.cli.main import app
from orthograd.lab.data import DATASETS, modular_addition


def test_every_pair_is_there_once_with_its_sum():
    data = modular_addition()
    assert data.shape == (1, 2, 113)
    images, labels = torch.cat([data.train_images, data.test_images]), torch.cat([data.train_labels, data.test_labels])
    pairs = images[:, 0].argmax(-1)
    assert len(pairs.unique(dim=0)) == len(pairs) == 113**2
    assert torch.equal(labels, pairs.sum(1) % 113)
    assert data.test_labels.bincount().tolist() == [40] * 113
    assert data.train_labels.bincount().tolist() == [73] * 113
    assert DATASETS["modular_addition"]().sha256 == data.sha256


@pytest.mark.slow
def test_compare_takes_it_like_any_other_data_set(tmp_path):
    settings = {"model": "mlp_no_bias", "optimizer": "adamw", "labels-per-class": 45, "batch-size": 5085, "epochs": 2}
    settings |= {"weight-decay": 0, "seeds": 2, "workers": 1, "out": tmp_path}
    options = [str(part) for name, value in settings.items() for part in (f"--{name}", value)]
    result = CliRunner().invoke(app, ["compare", "--dataset", "modular_addition", *options])
    assert result.exit_code == 0, result.output
    assert list(tmp_path.glob("*.html"))
    records = [json.loads(path.read_text()) for path in tmp_path.rglob("record.json")]
    assert len(records) == 4
