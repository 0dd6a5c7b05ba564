"""`orthograd compare` where a model or data function of the user's own changes, or gives something else each time.

Each command is a process of its own, as a user's are: within one, Python would not read changed code again.
"""

from __future__ import annotations

import json

import pytest

from orthograd.lab.jobs.store import Store
from tests.cli.forks import Forks

MINE = """
import numpy
import torch
from functools import lru_cache
from torch import nn
from orthograd.lab.data import Dataset

SHARED = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))

def images(generator):
    return torch.rand(90, 1, 4, 4, generator=generator)

def dataset(images, labels=torch.arange(90) % 3):
    return Dataset("mine", images, labels, images[:30], labels[:30], classes=3)

def data():
    return dataset(images(torch.Generator().manual_seed(0)))

def unseeded():
    return dataset(images(None))

@lru_cache
def unseeded_but_cached():
    return dataset(images(torch.Generator().manual_seed(torch.Generator().seed())))

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, classes))

def unseeded_net(shape, classes):
    model = net(shape, classes)
    model[1].weight.data = torch.tensor(numpy.random.rand(8, 16)).float()
    return model

def shared_net(shape, classes):
    return SHARED
"""
WIDTH = "nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, classes)"
WIDE = MINE.replace(WIDTH, WIDTH.replace("8", "80"))
TINY = ("--seeds", "2", "--epochs", "2", "--workers", "1", "--labels-per-class", "5")


@pytest.fixture(scope="module")
def forks():
    with Forks() as forks:
        yield forks


@pytest.fixture(scope="module")
def compared(forks):
    def run(folder, *arguments, data="mine:data", model="mine:net", code=MINE):
        (folder / "mine.py").write_text(code)
        return forks.run(folder, "compare", "--dataset", data, "--model", model, *TINY, "--out", "out", *arguments)

    return run


def refusal(done):
    """What a refused command says, in one line and without a traceback."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


def files(folder):
    return {path: path.read_bytes() for path in folder.glob("out/**/*") if path.is_file()}


@pytest.fixture(scope="module")
def finished(compared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    done = compared(folder)
    assert done.returncode == 0, done.stderr
    return folder


CHANGES = {
    "width": (WIDTH, WIDTH.replace("8", "80"), "another network: 163 parameters, and 1,603"),
    "activation": ("nn.ReLU()", "nn.Tanh()", "another network: the same initial values, but other logits"),
    "initial values": (
        "return nn.S",
        "torch.rand(1); return nn.S",
        "another network: other initial values of 1.",
    ),
    "images": ("manual_seed(0)", "manual_seed(1)", "other data"),
    "labels": ("% 3", "% 3 * 2 % 3", "other data"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new", "words"), CHANGES.values(), ids=CHANGES)
def test_runs_of_code_that_has_changed_are_neither_reused_nor_touched(compared, finished, old, new, words):
    before = files(finished)
    said = refusal(compared(finished, code=MINE.replace(old, new)))
    assert words in said
    assert "--out" in said
    assert files(finished) == before


@pytest.mark.slow
@pytest.mark.parametrize("more", [("--seeds", 3), ("--first-seed", 2), ("--dry-run",)], ids=lambda more: str(more[0]))
def test_nor_are_they_mixed_with_others(compared, finished, more):
    before = files(finished)
    assert "another network" in refusal(compared(finished, *more, code=WIDE))
    assert files(finished) == before


@pytest.mark.slow
def test_the_code_of_the_runs_goes_on_with_them(compared, finished):
    assert compared(finished, "--dry-run").returncode == 0


@pytest.mark.slow
def test_a_checkpoint_of_another_network_is_not_gone_on_from(compared, tmp_path):
    stopping = MINE.replace("def net(", "import itertools, os\nFORWARDS = itertools.count()\ndef net(").replace(
        "nn.Flatten(), nn.Linear(16, 8)", "Stop(), nn.Flatten(), nn.Linear(16, 8)"
    )
    stopping += """
class Stop(nn.Module):
    def forward(self, images):
        if next(FORWARDS) > 30:
            os._exit(1)
        return images
"""
    assert compared(tmp_path, "--epochs", 40, code=stopping).returncode == 1
    begun = files(tmp_path)
    assert any("checkpoint" in path.name for path in begun)
    going = MINE.replace("nn.Flatten(), nn.Linear(16, 8)", "nn.Identity(), nn.Flatten(), nn.Linear(16, 8)")
    wide = going.replace(WIDTH, WIDTH.replace("8", "80"))
    for workers in (1, 2):
        assert "another network" in refusal(compared(tmp_path, "--epochs", 40, "--workers", workers, code=wide))
        assert files(tmp_path) == begun
    done = compared(tmp_path, "--epochs", 40, "--workers", 2, code=going)  # the same network, but for what stops it
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_data_function_without_a_seed_is_refused_before_anything_is_trained(compared, tmp_path):
    said = refusal(compared(tmp_path, "--workers", 2, data="mine:unseeded"))
    assert "expected mine:unseeded to give the same images and labels each time" in said
    assert "manual_seed" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_workers_that_get_other_data_than_the_command_do_not_train(compared, tmp_path):
    done = compared(tmp_path, "--workers", 2, data="mine:unseeded_but_cached")
    assert done.returncode == 1
    assert "other data" in done.stderr
    assert not list(tmp_path.glob("out/runs/*/record.json"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            "mine:unseeded_net",
            "to make the same network each time for the same seed, got another network: other initial",
        ),
        ("mine:shared_net", "to make a new network each time, got 1.weight in common with the last one"),
    ],
)
def test_a_model_function_that_does_not_follow_the_seed_is_refused(compared, tmp_path, model, words):
    assert f"expected {model} {words}" in refusal(compared(tmp_path, model=model))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_folder_that_mixes_networks_or_data_gets_no_page(compared, forks, finished, tmp_path):
    """As an earlier version would have left it, too, whose records say no more than the number of parameters."""
    wide = tmp_path / "wide"
    wide.mkdir()
    done = compared(wide, "--first-seed", 2, code=WIDE)
    assert done.returncode == 0, done.stderr
    for number, forgotten in enumerate([(), ("fingerprint",)]):
        store = Store(tmp_path / str(number) / "runs")
        for folder in (finished, wide):
            for record in Store(folder / "out" / "runs").runs():
                ours = {"config", "hash", "files", "sha256", *forgotten}
                run = store.get(record["config"])
                with run.claim():
                    run.finish({name: part for name, part in record.items() if name not in ours})
        said = refusal(forks.run(tmp_path, "report", number))
        assert "another network: 163 parameters, and 1,603" in said
        assert "seed 2" in said


@pytest.mark.slow
def test_images_out_of_range_are_refused_with_what_to_do(compared, tmp_path):
    said = refusal(compared(tmp_path, code=MINE.replace("return torch.rand(", "return 16 * torch.rand(")))
    assert "expected train images in float32 from 0 to 1" in said
    assert "divide" in said


@pytest.mark.slow
def test_every_record_has_the_same_fingerprint_whoever_trained(compared, finished, tmp_path):
    assert compared(tmp_path, "--workers", 2).returncode == 0
    records = [
        json.loads(path.read_text())["fingerprint"]
        for folder in (finished, tmp_path)
        for path in folder.glob("out/runs/*/record.json")
    ]
    assert len(records) == 8
    assert all(each == records[0] for each in records)
