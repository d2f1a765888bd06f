"""Code for devices that run grids of work-items: GPUs, and OpenCL on anything."""
