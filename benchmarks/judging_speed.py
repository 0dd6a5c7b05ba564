"""Claim: on an H200, CIFAR-10-C is made within half a minute, and ResNet-18 answers for it within five seconds."""

from _claims import check

from orthograd.lab.bench.training import judging_speed

check(on_cuda=[judging_speed])
