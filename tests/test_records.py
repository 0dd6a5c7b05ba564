"""Published numbers stay what they were: what is renamed or moved in the records changes none of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).parents[1] / "docs/results"
DIGESTS = Path(__file__).parent / "published_numbers.json"


def numbers(node: Any) -> Iterator[str]:
    """Every number below a node of JSON, whatever it is called."""
    if isinstance(node, dict | list):
        for part in node.values() if isinstance(node, dict) else node:
            yield from numbers(part)
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield repr(node)


def digest(path: Path) -> dict[str, Any]:
    """How many numbers a record holds, and a hash of them that does not depend on their order."""
    values = sorted(numbers(json.loads(path.read_text(encoding="utf-8"))))
    return {"count": len(values), "sha256": hashlib.sha256("\n".join(values).encode()).hexdigest()}


def digests() -> dict[str, dict[str, Any]]:
    return {path.relative_to(RESULTS).as_posix(): digest(path) for path in sorted(RESULTS.rglob("*.json"))}


@pytest.mark.slow
def test_every_published_number_is_what_it_was():
    """After new runs: python -m tests.test_records, and look at what git says has changed."""
    expected, actual = json.loads(DIGESTS.read_text()), digests()
    assert actual.keys() == expected.keys()
    assert [name for name in expected if actual[name] != expected[name]] == []


def test_a_number_that_changes_or_is_lost_is_noticed(tmp_path):
    path = tmp_path / "record.json"
    seen = []
    for values in ([0.1, 2], [2, 0.1], [0.10000000000000002, 2], [0.1]):
        path.write_text(json.dumps({"values": values}))
        seen.append(digest(path)["sha256"])
    assert seen[0] == seen[1]
    assert len(set(seen)) == 3


if __name__ == "__main__":
    DIGESTS.write_text(json.dumps(digests(), indent=1) + "\n")
