"""⊥Grad for any PyTorch optimizer, and the tools to measure whether your classifier's confidence got better."""

from typing import TYPE_CHECKING

from .imports import lazily

if TYPE_CHECKING:
    from . import optim
    from .attachment import Attachment, attachment_of
    from .diagnosis import Recorder, diagnose
    from .optim.scope import everywhere
    from .optimizer import OrthoGrad, attach, orthogonal, orthogonalize_

__version__ = "0.1.0"
__all__ = [
    "Attachment",
    "OrthoGrad",
    "Recorder",
    "attach",
    "attachment_of",
    "diagnose",
    "everywhere",
    "optim",
    "orthogonal",
    "orthogonalize_",
]

_HOMES = {
    "Attachment": "attachment",
    "attachment_of": "attachment",
    "Recorder": "diagnosis",
    "diagnose": "diagnosis",
    "everywhere": "optim.scope",
    "optim": "optim",
}
__getattr__ = lazily(__name__, dict.fromkeys(__all__, "optimizer") | _HOMES)
