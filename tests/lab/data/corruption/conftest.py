from __future__ import annotations

import pytest

from orthograd.lab.data.corruption import CORRUPTIONS, EXTRA


@pytest.fixture(params=CORRUPTIONS + EXTRA)
def name(request):
    """Each corruption, with what it needs."""
    if request.param == "frost":
        request.getfixturevalue("frost")
    return request.param
