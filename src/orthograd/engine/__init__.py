"""Fast ⊥Grad: the mathematics of `orthograd.projection` for CPU, CUDA and sharded tensors."""
