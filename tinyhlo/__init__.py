"""tinyhlo: a small, readable compiler and runtime for JAX programs."""
