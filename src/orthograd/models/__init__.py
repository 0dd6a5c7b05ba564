"""Networks by name: given the shape of an image and the number of classes, each makes one."""

from .small import cnn, cnn_batchnorm, mlp

MODELS = {"cnn": cnn, "cnn_batchnorm": cnn_batchnorm, "mlp": mlp}

__all__ = ["MODELS", "cnn", "cnn_batchnorm", "mlp"]
