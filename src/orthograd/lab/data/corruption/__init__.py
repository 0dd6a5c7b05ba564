"""The corruptions of CIFAR-10-C, made in batches on any device."""

from .fetching import fetch_frost
from .generation import CORRUPTIONS, EXTRA, SEVERITIES, corrupt
from .textures import frost_textures

__all__ = ["CORRUPTIONS", "EXTRA", "SEVERITIES", "corrupt", "fetch_frost", "frost_textures"]
