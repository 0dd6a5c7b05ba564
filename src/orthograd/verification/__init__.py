"""Evidence that ⊥Grad acts: a check of the first steps of training, and of steps on a copy."""
