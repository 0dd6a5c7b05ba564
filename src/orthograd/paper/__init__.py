"""The paper's experiments as data, its numbers, and what our runs say to each of them."""
