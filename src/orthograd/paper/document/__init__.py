"""The pages with every number of the paper beside ours, made from the records."""
