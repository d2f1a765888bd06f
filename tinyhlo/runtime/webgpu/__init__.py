"""Devices of WebGPU: through wgpu on this machine, and pages for a browser."""
