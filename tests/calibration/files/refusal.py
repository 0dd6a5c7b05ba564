"""What tests of files share: a file is refused with words that help."""

from __future__ import annotations

import pytest

from orthograd.calibration.files.reading import read_predictions


def refused(path, *words, **options):
    with pytest.raises(ValueError, match="expected") as error:
        read_predictions(path, **options)
    for word in words:
        assert word in str(error.value)
