"""Claim: a fitted temperature is within 1e-12 nats of the best, in half of scikit-learn's time."""

from _claims import check

from orthograd.benchmark.temperature import temperature_excess, temperature_time

check(lambda _: temperature_excess(), lambda _: temperature_time())
