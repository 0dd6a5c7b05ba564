from __future__ import annotations

import pytest

from orthograd.lab.data.corruption import CORRUPTIONS, EXTRA


@pytest.fixture(params=CORRUPTIONS + EXTRA)
def name(request):
    """Each corruption, skipped without the files it needs."""
    if request.param == "frost":
        request.getfixturevalue("frost")
    return request.param
