"""The driver and NVRTC."""
