from __future__ import annotations

import pytest

from orthograd.experiment import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")
