"""Repair after training: calibrators, fitted on held-out logits."""
