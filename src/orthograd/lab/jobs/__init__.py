"""Jobs, independent of training: store, records, checkpoints and executors (processes, Ray)."""
