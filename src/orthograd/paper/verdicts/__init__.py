"""Whether what the paper claims came out again: its numbers, our differences, and the verdict on each claim."""
