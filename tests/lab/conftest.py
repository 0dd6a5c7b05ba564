from __future__ import annotations

import pytest

from orthograd.lab.jobs.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")
