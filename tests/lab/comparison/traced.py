"""Everything that a page shows of one method, from the logits that its runs stored."""

from __future__ import annotations

import numpy as np
import pytest
import relplot
from scipy import special

from tests.lab.comparison import oracle


class Method:
    """Everything of one method that the page shows, from its logits: a list over seeds of each."""

    def __init__(self, store, name):
        records = sorted(
            (r for r in store.runs() if r["config"]["method"] == name), key=lambda record: record["config"]["seed"]
        )
        self.losses = np.array([record["losses"] for record in records])
        self.sets, self.scaled, self.scaled_sets, self.curves = (
            [],
            [],
            [],
            {"clean": [], "after_temperature": [], "shifted": []},
        )
        for record in records:
            tensors = store.get(record["config"]).read_tensors("predictions")
            self._add(record, {name: tensor.double().numpy() for name, tensor in tensors.items()})

    def _add(self, record, tensors):
        labels = tensors["labels"].astype(int)
        logits = {name.partition(".")[2]: value for name, value in tensors.items() if name.startswith("logits.")}
        held_out = logits.pop("held_out")
        degree = record["after_temperature"]["temperature"]
        assert degree == pytest.approx(oracle.temperature(held_out, tensors["labels.held_out"].astype(int)), rel=1e-4)
        scaled = logits["clean"] / degree
        self.sets.append({name: oracle.metrics(value, labels) for name, value in logits.items()})
        self.scaled_sets.append(
            {
                name: oracle.metrics(value / degree, labels)
                | {"smooth_ece": record["after_temperature"]["shifted"][name]["smooth_ece"]}
                for name, value in logits.items()
                if name != "clean"
            }
        )
        self.scaled.append(
            oracle.metrics(scaled, labels) | {"smooth_ece": smooth(record["after_temperature"], scaled, labels)}
        )
        for name, found in self.sets[-1].items():
            found["smooth_ece"] = record["metrics"][name]["smooth_ece"]
        smooth({"metrics": record["metrics"]["clean"]}, logits["clean"], labels)
        shifted = [value for name, value in logits.items() if name != "clean"]
        self.curves["clean"].append(oracle.reliability(logits["clean"], labels))
        self.curves["after_temperature"].append(oracle.reliability(scaled, labels))
        self.curves["shifted"].append(oracle.reliability(np.concatenate(shifted), np.tile(labels, len(shifted))))

    def values(self, images, metric):
        if images == "temperature-scaled":
            return [run[metric] for run in self.scaled]
        if images == "shifted-temperature-scaled":
            return [np.mean([found[metric] for found in run.values()]) for run in self.scaled_sets]
        if images == "clean":
            return [run["clean"][metric] for run in self.sets]
        return [np.mean([found[metric] for name, found in run.items() if name != "clean"]) for run in self.sets]

    def over_severity(self, metric, shift=None):
        """(seeds, severities)."""
        shifts = [shift] if shift else sorted({name.rpartition(".")[0] for name in self.sets[0]} - {""})
        return np.array(
            [
                [
                    run["clean"][metric],
                    *(np.mean([run[f"{s}.{level}"][metric] for s in shifts]) for level in range(1, 6)),
                ]
                for run in self.sets
            ]
        )


def smooth(found, logits, labels):
    """Relplot's definition, to which it searches to 1e-3; the number of the record where that agrees."""
    p = special.softmax(logits, axis=1)
    expected = relplot.smECE(p.max(1), (p.argmax(1) == labels).astype(float))
    assert found["metrics"]["smooth_ece"] == pytest.approx(expected, abs=2e-3)
    return found["metrics"]["smooth_ece"]


def shown(value, expected, digits):
    """Whether a printed number is the expected one, rounded."""
    return abs(value - expected) <= 0.5 * 10.0**-digits + 1e-5 * max(1, abs(expected))
