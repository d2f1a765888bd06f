"""Vectorised reduces: one accumulator a lane, combined when the outermost reduce loop ends.

for i in 0..1000 lanes 8 reduce: sum += x[i]
->  sum8 = 0; 125 rounds of sum8 += x[i..i+8]; sum += the eight, halved until one is left
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tinyhlo.codegen.identities import identity
from tinyhlo.codegen.llvm.bodies import changed
from tinyhlo.codegen.llvm.scopes import Register, register_type
from tinyhlo.codegen.llvm.types import value_type
from tinyhlo.codegen.loops import Accumulate, Axis, Loop
from tinyhlo.ir.ops import Op

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.statements import Statements


def around(r: Statements, loop: Loop, run: Callable[[], None]) -> None:
    """`run` the loop with lanes for its accumulators, unless a loop around it has made them."""
    names = accumulators(loop) if r.lanes == 1 else {}
    names = {n: v for n, v in names.items() if n not in r.lane_registers}
    for name, (op, width) in names.items():
        scalar = r.registers[name]
        type_ = value_type(scalar.dtype, width)
        lanes = Register(r.slot(type_), scalar.dtype, width)
        first = r.text(identity(op, scalar.dtype), width)
        r.b.line(f"store {type_} {first}, ptr {lanes.slot}")
        r.lane_registers[name] = (scalar, lanes)
    run()
    for name, (op, _) in names.items():
        fold(r, name, op, *r.lane_registers.pop(name))


def fold(r: Statements, name: str, op: Op, scalar: Register, lanes: Register) -> None:
    """Halve until one lane is left; then the remainder's accumulator joins."""
    dtype, width = lanes.dtype, lanes.lanes
    text = r.b.value(f"load {register_type(lanes)}, ptr {lanes.slot}")
    while width > 1:
        half = width // 2
        type_ = value_type(dtype, width)
        parts: list[str] = []
        for first in (0, half):
            chosen = ", ".join(f"i32 {first + k}" for k in range(half))
            shuffle = f"shufflevector {type_} {text}, {type_} poison, <{half} x i32> <{chosen}>"
            parts.append(r.b.value(shuffle))
        width = half
        if width == 1:
            single = value_type(dtype, 1)
            parts = [r.b.value(f"extractelement <1 x {single}> {part}, i64 0") for part in parts]
        text = r.combine(op, parts[0], parts[1], dtype, width)
    type_ = register_type(scalar)
    before = r.b.value(f"load {type_}, ptr {scalar.slot}")
    after = r.combine(op, before, text, dtype, 1)
    r.b.line(f"store {type_} {after}, ptr {scalar.slot}")
    r.forget((name,))


def accumulators(loop: Loop) -> dict[str, tuple[Op, int]]:
    """Accumulators of vectorised reduce loops in `loop` that outlive it: name -> (op, lanes)."""
    found: dict[str, tuple[Op, int]] = {}
    outliving = changed((loop,))

    def walk(inner: Loop, width: int) -> None:
        if inner.axis is not Axis.REDUCE:
            return
        width = max(width, inner.width)
        for statement in inner.body:
            if isinstance(statement, Loop):
                walk(statement, width)
            elif isinstance(statement, Accumulate) and width > 1 and statement.name in outliving:
                found[statement.name] = (statement.op, width)

    walk(loop, 1)
    return found
