"""Transcendental functions as primitives, within 1.5 units in the last place: `expand.py`."""
