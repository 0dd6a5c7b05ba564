"""Claim: an ECE over forty million samples is right to 1e-9."""

from _claims import check

from orthograd.lab.bench.evaluation import ece_drift

check(lambda _: ece_drift())
