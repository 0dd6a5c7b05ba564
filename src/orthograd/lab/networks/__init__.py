"""Network functions by name; each takes the shape of an image and the number of classes."""

from .resnet import resnet18, resnet50
from .small import cnn, cnn_batchnorm, mlp, mlp_no_bias
from .wide_resnet import wide_resnet28_10

MODELS = {
    "cnn": cnn,
    "cnn_batchnorm": cnn_batchnorm,
    "mlp": mlp,
    "mlp_no_bias": mlp_no_bias,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "wide_resnet28_10": wide_resnet28_10,
}

__all__ = ["MODELS", "cnn", "cnn_batchnorm", "mlp", "mlp_no_bias", "resnet18", "resnet50", "wide_resnet28_10"]
