"""Claim: what ⊥Grad hands on is orthogonal to 1e-6 and as long as the gradient to 1e-4, however close to parallel."""

from _claims import check

from orthograd.lab.bench.precision import precision

check(precision)
