"""What tinyhlo is timed with: `tinyhlo bench`, or `python -m benchmarks.record`."""
