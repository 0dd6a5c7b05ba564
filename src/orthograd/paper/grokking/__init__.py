"""Grokking, where ⊥Grad comes from: the experiments of Prieto et al. (2025), with seeds trained side by side."""
