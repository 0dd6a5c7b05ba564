"""The report of `orthograd evaluate`: one self-contained HTML page."""
