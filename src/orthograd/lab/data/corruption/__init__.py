"""The corruptions of CIFAR-10-C, made in batches on any device."""

from ..shifts import SEVERITIES
from .frost import fetch_frost, frost_textures
from .generation import CORRUPTIONS, EXTRA, check_name, corrupt

__all__ = ["CORRUPTIONS", "EXTRA", "SEVERITIES", "check_name", "corrupt", "fetch_frost", "frost_textures"]
