"""Jobs that know nothing of training: store, records, checkpoints, and who does them (processes, Ray)."""
