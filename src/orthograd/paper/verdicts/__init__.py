"""The verdict on each claim of the paper: its numbers, our differences, the rule."""
