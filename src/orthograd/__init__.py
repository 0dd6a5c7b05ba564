"""⊥Grad: gradients orthogonal to the weights they change. Same accuracy, less overconfidence."""

from typing import TYPE_CHECKING

from .lazy import lazily

if TYPE_CHECKING:
    from .attachment import Attachment
    from .optimizer import OrthoGrad, attach, orthogonal, orthogonalize_

__version__ = "0.1.0"
__all__ = ["Attachment", "OrthoGrad", "attach", "orthogonal", "orthogonalize_"]

__getattr__ = lazily(__name__, {"Attachment": "attachment"} | dict.fromkeys(__all__[1:], "optimizer"))
