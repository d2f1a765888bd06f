"""Two products with work on rows between them, attention above all: scores stay in the cache.

`lower.py` writes the kernel, `pack.py` its operands; `mask.py` finds the scores that nobody reads.
"""
