"""Loops as WGSL, the language of WebGPU. Renderers: those of `codegen/c` with another `Language`.

kernels       the text around a kernel's lines; `statements`, `arithmetic`
wide          integers of 64 bits, as two words; `library`: other functions
resident      small statements that follow each other, as one entry point
plan          how kernels follow each other
"""
