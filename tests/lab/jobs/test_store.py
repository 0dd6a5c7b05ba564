from __future__ import annotations

import json

import pytest
import torch

from orthograd.lab import files
from orthograd.lab.jobs.files import StoreError
from orthograd.lab.jobs.store import Store
from tests.lab.jobs.finished_runs import CONFIG, finished, names


def test_a_finished_run_is_read_as_it_was_written(store):
    run = finished(store)
    record = store.get(dict(reversed(CONFIG.items()))).record()
    assert record["metrics"]["loss"] == 0.1 + 0.2
    assert (record["config"], record["hash"]) == (CONFIG, run.path.name)
    assert list(record["files"]) == ["logits.safetensors"]
    assert run.read_tensors("logits")["logits"].equal(torch.arange(12.0).reshape(3, 4))
    assert list(store.runs()) == [record]
    assert names(run) == ["config.json", "lock", "logits.safetensors", "record.json"]
    run.verify()


def test_a_checkpoint_holds_tensors_of_every_dtype_and_state(store):
    run = store.get(CONFIG)
    tied = torch.randn(3, 2)
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    tensors = {
        "a": tied, "b": tied, "view": tied[:, 1], "image": image, "scalar": torch.tensor(3), "empty": torch.zeros(0, 2),
        "half": torch.randn(4).bfloat16(), "flag": torch.tensor([True]), "wide": torch.ones(1).expand(3),
        "parameter": torch.nn.Parameter(torch.randn(2)),
    }  # fmt: skip
    state = {"epoch": 3, "momentum": [0.1, None], "rng": list(range(700))}
    assert run.load_checkpoint() is None
    with run.claim():
        run.save_checkpoint(tensors, state)
        loaded, note = store.get(CONFIG).load_checkpoint()
        assert note == state
        assert loaded.keys() == tensors.keys()
        assert all(
            loaded[name].equal(tensor) and loaded[name].dtype == tensor.dtype for name, tensor in tensors.items()
        )
        assert run.is_resumable
        run.finish({})
        assert run.load_checkpoint() is None


def test_a_run_that_is_claimed_is_no_one_elses(store):
    run, other = store.get(CONFIG), store.get(CONFIG)
    with run.claim() as is_ours, other.claim() as is_theirs:
        assert (is_ours, is_theirs) == (True, False)
        with pytest.raises(StoreError, match=r"logits.safetensors: cannot be written outside"):
            other.write_tensors("logits", {})
        run.save_checkpoint({}, 1)
    with other.claim() as is_theirs:
        assert is_theirs
    with pytest.raises(StoreError, match=r"checkpoint.safetensors: cannot be written outside"):
        run.save_checkpoint({}, 1)


def test_a_finished_run_is_not_written_again(store):
    run = finished(store)
    with run.claim():
        for write in (lambda: run.finish({}), lambda: run.write_tensors("x", {}), lambda: run.save_checkpoint({}, 0)):
            with pytest.raises(StoreError, match="the run is finished"):
                write()


def test_reports_and_names_that_cannot_be_are_refused(store):
    run = store.get(CONFIG)
    with run.claim():
        with pytest.raises(ValueError, match="got files, hash"):
            run.finish({"hash": 1, "files": 2})
        with pytest.raises(ValueError, match=r"record\['loss'\] as a finite number, got nan"):
            run.finish({"loss": float("nan")})
        with pytest.raises(TypeError, match=r"checkpoint\['state'\]\['x'\] as plain JSON data, got tensor"):
            run.save_checkpoint({}, {"x": torch.zeros(1)})
        with pytest.raises(TypeError, match="got None"):
            run.finish(None)
        for name in ("../x", ".x", "", "checkpoint", "a/b"):
            with pytest.raises(ValueError, match="expected a name"):
                run.write_tensors(name, {})
        with pytest.raises(TypeError, match="'a' as a tensor, got list"):
            run.write_tensors("a", {"a": [1]})
    assert not run.is_finished


def test_a_file_in_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "runs").write_text("")
    store = Store(tmp_path / "runs")
    with pytest.raises(files.FileError, match=r"runs.*: cannot be made a folder"), store.get(CONFIG).claim():
        pass
    with pytest.raises(files.FileError, match=r"runs: cannot be listed: Not a directory"):
        list(store.runs())
    assert list(Store(tmp_path / "nothing").runs()) == []


def test_without_fcntl_a_warning_says_what_is_lost(store, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    with pytest.warns(RuntimeWarning, match="no fcntl"), store.get(CONFIG).claim() as is_ours:
        assert is_ours


def test_records_are_strict_json_for_other_tools(store):
    text = (finished(store).path / "record.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["config"] == CONFIG
