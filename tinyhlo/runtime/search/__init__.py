"""Schedules found by measuring: which of codegen's answers are the fastest for a kernel here."""
