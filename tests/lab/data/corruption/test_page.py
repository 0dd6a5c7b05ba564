"""The page on corruptions agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

from orthograd.lab.data.corruption import CORRUPTIONS, EXTRA

PAGE = (Path(__file__).parents[4] / "docs" / "corruptions.md").read_text()


def test_its_code_runs():
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(block, names)
    assert names["foggy"].shape == (100, 3, 32, 32)


def test_its_table_names_every_corruption():
    assert tuple(re.findall(r"^\| (\w+_?\w*) \| *[\d|]", PAGE, re.M)) == CORRUPTIONS + EXTRA
