"""Claim: under project="update" the update itself is orthogonal, where momentum or Adam undo project="gradient"."""

from _claims import check

from orthograd.lab.bench.radial import update_cosines

check(lambda _device: update_cosines())
