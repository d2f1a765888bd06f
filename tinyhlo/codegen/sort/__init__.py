"""Sorts: `lower.py` chooses by the length of a row and by what the comparator means."""
