"""The section on where ⊥Grad acts."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from orthograd.lab.comparison.page import diagnosis
from orthograd.lab.comparison.pair import MethodPair
from tests.lab.comparison.records import runs

NAMES = ("SGD", "⊥Grad")


def part(radial, norm, share=0.1):
    return {"radial": radial, "share": share * radial, "norm": norm}


def with_diagnosis(records):
    for record in records:
        grown = 4.0 if record["config"]["method"] == "baseline" else 3.0
        parameters = {
            "conv.weight": {"kind": "rows invariant", "start": part(0.0, 2.0), "end": part(1e-9, 2.5)},
            "conv.bias": {"kind": "idle", "start": part(0.3, 1.0), "end": part(0.4, 1.0)},
            "head.weight": {"kind": "outputs", "start": part(0.01, 2.0), "end": part(0.5, grown)},
            "rest.of.a.long.name<b>": {"kind": None, "start": None, "end": None},
        }
        record["diagnosis"] = {"samples": 100, "parameters": parameters}
    return MethodPair.of(records, baseline="baseline", candidate="orthograd")


def parsed(markup):
    return ElementTree.fromstring(f"<div>{markup}</div>")


def words(element):
    return " ".join("".join(element.itertext()).split())


def test_every_parameter_has_its_means_and_the_effect_of_its_norm():
    root = parsed(diagnosis.section(with_diagnosis(runs()), NAMES))
    rows = {words(row.find("th")): [words(cell) for cell in row.findall("td")] for row in root.iter("tr")}
    assert rows["head.weight"] == ["1%", "50%", "50%", "2", "4", "3", "rescales the outputs"]
    assert rows["conv.weight"][:3] == ["0%", "< 0.01%", "< 0.01%"]
    assert rows["conv.bias"][:3] == ["–", "–", "–"]
    assert rows["rest.of.a.long.name<b>"][-1] == "not measured"


def test_the_drawing_is_described_and_leaves_out_what_is_rounding():
    root = parsed(diagnosis.section(with_diagnosis(runs()), NAMES))
    (drawing,) = root.findall(".//figure/div//svg")
    assert drawing.get("role") == "img"
    assert "head.weight 50% and 50%" in words(drawing.find("desc"))
    assert "conv.bias" not in words(drawing)
    assert root.find(".//figure/details//table") is not None
    text = diagnosis.section(with_diagnosis(runs()), NAMES)
    identities = re.findall(r' id="([^"]*)"', text)
    assert len(identities) == len(set(identities))


def test_records_without_it_have_no_such_section():
    assert diagnosis.section(MethodPair.of(runs(), baseline="baseline", candidate="orthograd"), NAMES) is None
    records = runs()
    with_diagnosis(records)
    del records[0]["diagnosis"]
    assert diagnosis.section(MethodPair.of(records, baseline="baseline", candidate="orthograd"), NAMES) is None
