"""Loops as WGSL, the language of WebGPU: kernels (`kernels.py`) and how they follow each other
(`plan.py`). Renderers are those of `codegen/c` with another `Language`."""
