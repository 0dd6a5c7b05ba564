"""The photographs of frost, fetched once and kept between runs."""

from __future__ import annotations

import pytest

from orthograd.corruption import CORRUPTIONS, EXTRA, fetch_frost, frost_textures


@pytest.fixture(scope="session")
def frost(request):
    with pytest.MonkeyPatch.context() as patch:
        try:
            frost_textures()
        except FileNotFoundError:
            folder = request.config.cache.mkdir("orthograd")
            patch.setenv("ORTHOGRAD_DATA", str(folder))
            fetch_or_skip()
        yield frost_textures()


def fetch_or_skip():
    try:
        fetch_frost()
    except RuntimeError as error:
        pytest.skip(f"the photographs of frost cannot be had here: {error}")


@pytest.fixture(params=CORRUPTIONS + EXTRA)
def name(request):
    """Each corruption, with what it needs."""
    if request.param == "frost":
        request.getfixturevalue("frost")
    return request.param
