"""One run: a frozen config in, a trained network out, the same bits each time."""
