"""Records of runs in; tables, page and files out."""
