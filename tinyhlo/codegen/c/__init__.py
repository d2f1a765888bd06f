"""Loops as C: one text for OpenCL and CUDA, whose differences stand in a prelude of each."""
