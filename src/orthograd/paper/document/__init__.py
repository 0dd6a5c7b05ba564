"""The document that shows every number of the paper beside ours, from the records alone."""
