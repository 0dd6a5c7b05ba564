from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orthograd.lab.bench.claim import Claim, Key, interleaved, ratios, read_claims, write_record

RECORDS = Path(__file__).parents[3] / "docs" / "results"
CLAIMS = [path for path in sorted(RECORDS.glob("*.json")) if "claims" in json.loads(path.read_text(encoding="utf-8"))]


def test_interleaved_runs_give_ratios():
    seconds = interleaved({"base": lambda: None, "ours": lambda: None}, rounds=3, settle=lambda: None)
    assert seconds.keys() == {"base", "ours"}
    assert ratios({"base": 2.0, "ours": 3.0}, "base") == {"ours": 1.5}


def test_nan_keeps_no_bound():
    assert Claim(Key("what"), 1.0, 1.0).holds
    assert Claim(Key("what"), float("nan")).holds
    assert not Claim(Key("what"), float("nan"), 1.0).holds


@pytest.mark.parametrize("path", CLAIMS, ids=lambda path: path.name)
def test_committed_records_are_read_and_written_as_they_are(path, tmp_path):
    claims = read_claims(path)
    assert len({claim.key for claim in claims}) == len(claims), "expected every claim to have a key of its own"
    write_record(tmp_path / "again.json", claims, json.loads(path.read_text(encoding="utf-8"))["environment"])
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_a_record_is_utf8_wherever_it_is_written(tmp_path):
    code = (
        "from pathlib import Path\nfrom orthograd.lab.bench.claim import Claim, Key, write_record\n"
        f"write_record(Path({str(tmp_path / 'record.json')!r}), [Claim(Key('cos(g⊥, w)'), 0.5, 1.0)], {{}})"
    )
    variables = {**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    source = tmp_path / "script.py"
    source.write_text(code, encoding="utf-8")
    subprocess.run([sys.executable, str(source)], env=variables, check=True)
    assert read_claims(tmp_path / "record.json")[0].key.what == "cos(g⊥, w)"
