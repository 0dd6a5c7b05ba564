"""The report of a comparison: one self-contained HTML page from the records of its runs."""
