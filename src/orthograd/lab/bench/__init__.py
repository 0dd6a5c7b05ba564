"""What `orthograd bench` measures: ratios from interleaved runs; seconds of long work alone."""
