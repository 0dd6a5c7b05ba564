"""Measurements of `orthograd bench`: ratios from interleaved runs, and seconds of long work."""
