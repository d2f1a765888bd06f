"""Bytes of memory that a group shares.

shared_itemsize(I8, target)  ->  4 in WGSL, whose arrays consist of words; else 1
"""

from __future__ import annotations

from tinyhlo.codegen.expressions import Memory
from tinyhlo.ir.dtypes import DType
from tinyhlo.target import Target

WORD = 4


def shared_itemsize(dtype: DType, target: Target) -> int:
    return max(dtype.itemsize, WORD) if target.device == "WEBGPU" else dtype.itemsize


def shared_bytes(memory: Memory, target: Target) -> int:
    return memory.size * shared_itemsize(memory.dtype, target)
