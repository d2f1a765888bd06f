"""Schedules found by measuring: which of codegen's answers are the fastest for a kernel here.

`beam` searches, `measure` times, `store` keeps what was found.
"""
