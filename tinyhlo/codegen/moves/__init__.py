"""Rewrites of a loop nest, each legal or refused: `heuristics.py` chooses them.

The small ones stand in `basic.py`, every other one in a file of its own.
"""
