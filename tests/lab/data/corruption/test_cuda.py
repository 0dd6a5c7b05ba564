"""On a GPU: the same pixels where nothing is random, the same distribution where something is."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from orthograd.lab.data.corruption import SEVERITIES, corrupt
from tests.lab.data.corruption.reference import DETERMINISTIC, arrays, statistics_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_the_gpu_agrees_with_the_cpu(name):
    images = arrays("clean").repeat(16, 1, 1, 1)
    for severity in SEVERITIES:
        here = corrupt(images, name, severity=severity)
        there = corrupt(images.cuda(), name, severity=severity)
        assert there.is_cuda
        assert torch.equal(there, corrupt(images.cuda(), name, severity=severity))
        assert torch.equal(there[:100], corrupt(images[:100].cuda(), name, severity=severity))
        if name in DETERMINISTIC:
            difference = (here.int() - there.cpu().int()).abs()
            assert difference.max() <= 1
            assert (difference == 0).double().mean() > 0.99
        else:
            here, there = (statistics_of(each.unflatten(0, (16, -1)), arrays("clean")) for each in (here, there.cpu()))
            error = ((here.var(0) + there.var(0)) / 16).sqrt()
            assert ((here.mean(0) - there.mean(0)) / error).abs().max() < stats.t.isf(1e-6, 30), severity
            assert math.isfinite(float(error.sum()))
