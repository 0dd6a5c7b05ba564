"""A training run as a job: train, predict, evaluate, record."""
