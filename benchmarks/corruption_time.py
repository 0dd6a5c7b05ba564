"""Claim: two CPU cores corrupt 10,000 images in all 15 × 5 ways in five minutes."""

from _claims import check

from orthograd.lab.bench.corruption import corruption_time

check(lambda _: corruption_time())
