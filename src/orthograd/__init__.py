"""⊥Grad: gradients orthogonal to the weights they change. Same accuracy, less overconfidence."""

from .attachment import Attachment
from .optimizer import OrthoGrad, attach, orthogonal, orthogonalize_

__version__ = "0.1.0"
__all__ = ["Attachment", "OrthoGrad", "attach", "orthogonal", "orthogonalize_"]
