"""What records keep, and what is read back from them."""

from __future__ import annotations

import json
import math

import pytest
import torch

from orthograd.calibration import Evaluation, ReliabilityCurve, average
from orthograd.lab.comparison.output import command_of, names_of
from orthograd.lab.comparison.pair import MethodPair
from orthograd.lab.comparison.records import by_severity
from tests.lab.comparison.records import record, runs


def curve(seed):
    evaluation = Evaluation()
    generator = torch.Generator().manual_seed(seed)
    evaluation.update(3 * torch.randn(50, 10, generator=generator), torch.randint(10, (50,), generator=generator))
    return evaluation.reliability()


@pytest.mark.parametrize("given", [curve(0), average([curve(0), curve(1)])], ids=["one run", "two runs"])
def test_a_reliability_curve_comes_back_from_json_bit_for_bit(given):
    assert given.accuracy.isnan().any()
    found = ReliabilityCurve.from_dict(json.loads(json.dumps(given.as_dict(), allow_nan=False)))
    for name, value in vars(given).items():
        back = getattr(found, name)
        if isinstance(value, torch.Tensor):
            assert back.dtype == value.dtype
            torch.testing.assert_close(back, value, rtol=0, atol=0, equal_nan=True)
        else:
            assert back == value


def test_data_that_is_no_curve_is_refused():
    with pytest.raises(ValueError, match=r"expected a curve of share, .*, got share"):
        ReliabilityCurve.from_dict({"share": [1.0]})


def test_severities_of_one_shift_and_of_all():
    run = record("baseline", 0)
    one, two = run["metrics"]["noise.1"]["ece"], run["metrics"]["blur.1"]["ece"]
    assert by_severity([run], "ece", shift="noise")[0][:2] == [run["metrics"]["clean"]["ece"], one]
    assert by_severity([run], "ece")[0][1] == pytest.approx((one + two) / 2)
    run["metrics"]["blur.1"]["ece"] = None
    assert math.isnan(by_severity([run], "ece")[0][1])


def test_the_command_names_what_is_not_usual_and_quotes_it():
    pair = MethodPair.of(
        runs(("baseline", "label_smoothing"), model="a b:c"), baseline="baseline", candidate="label_smoothing"
    )
    assert command_of(pair) == "orthograd compare --seeds 3 --candidate label_smoothing --model 'a b:c' --epochs 4"
    assert names_of(pair) == ("SGD", "label smoothing")
    other = MethodPair.of(runs(("baseline", "mine")), baseline="baseline", candidate="mine")
    assert names_of(other) == ("SGD", "mine")
