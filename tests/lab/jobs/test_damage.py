from __future__ import annotations

import os
import shutil

import pytest
import torch

from orthograd.lab.files import FileError
from orthograd.lab.jobs.files import StoreError
from tests.lab.jobs.finished_runs import CONFIG, finished


def edited(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


DAMAGES = {
    "truncated record": ("record.json", "do not parse", lambda p: os.truncate(p, 50)),
    "empty record": ("record.json", "0 bytes that do not parse", lambda p: os.truncate(p, 0)),
    "record of another shape": ("record.json", "expected a JSON object, got list", lambda p: p.write_text("[]")),
    "record without its parts": ("record.json", "got none of config, hash", lambda p: p.write_text("{}")),
    "binary record": ("record.json", "do not parse", lambda p: p.write_bytes(b"\xff\xfe\x00")),
    "edited metric": ("record.json", "was changed", lambda p: edited(p, "0.30000000000000004", "0.2")),
    "edited config in record": ("record.json", "was changed", lambda p: edited(p, '"sgd"', '"adam"')),
    "infinite metric": ("record.json", "do not parse", lambda p: edited(p, "0.30000000000000004", "1e999")),
    "edited config": ("config.json", "is the config of run", lambda p: edited(p, '"sgd"', '"adam"')),
    "truncated config": ("config.json", "do not parse", lambda p: os.truncate(p, 5)),
    "missing config": ("config.json", "cannot be read: No such file", lambda p: p.unlink()),
    "missing tensors": ("logits.safetensors", "cannot be read: No such file", lambda p: p.unlink()),
    "truncated tensors": ("logits.safetensors", "bytes, got 20", lambda p: os.truncate(p, 20)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_by_file_and_never_repaired(store, damage):
    name, words, harm = DAMAGES[damage]
    run = finished(store)
    harm(run.path / name)
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    for look in (run.record, run.verify, lambda: list(store.runs())):
        with pytest.raises(FileError, match=f"{name}: .*{words}"):
            look()
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


def test_a_record_of_another_run_is_refused(store):
    run, other = finished(store), store.get({"seed": 1})
    with other.claim():
        pass
    shutil.copy(run.path / "record.json", other.path / "record.json")
    with pytest.raises(StoreError, match=rf"record.json: belongs to run {run.hash}, not to {other.hash}"):
        other.record()
    shutil.copytree(run.path, store.folder / "copy")
    with pytest.raises(StoreError, match="not to copy"):
        list(store.runs())


def test_a_changed_bit_is_found_on_demand(store):
    run = finished(store)
    path = run.path / "logits.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    run.record()
    with pytest.raises(StoreError, match=r"logits.safetensors: expected SHA-256"):
        run.verify()


def test_broken_checkpoints_are_named(store):
    run, other = store.get(CONFIG), store.get({"seed": 1})
    with run.claim(), other.claim():
        run.save_checkpoint({"a": torch.ones(3)}, 1)
        shutil.copy(run.path / "checkpoint.safetensors", other.path)
        with pytest.raises(StoreError, match=rf"is a checkpoint of run {run.hash}, not of {other.hash}"):
            other.load_checkpoint()
        for length in (0, 4, 30, 100):
            os.truncate(run.path / "checkpoint.safetensors", length)
            with pytest.raises(StoreError, match=rf"checkpoint.safetensors: expected safetensors, got {length} bytes"):
                run.load_checkpoint()
        edited(run.path / "config.json", '"sgd"', '"adam"')
    with pytest.raises(StoreError, match=r"config.json: is the config of run"), run.claim():
        pass
    (run.path / "config.json").unlink()
    with pytest.raises(FileError, match=r"config.json: cannot be read"), run.claim():
        pass
