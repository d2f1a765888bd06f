"""What few lanes need, by a function that is called only if one does.

  usual = ...                                  ; of all lanes
  br i1 %any, label %rare, label %joined       ; some lane needs the other value
rare:
  %value = call @far_sin.v16f32(...)           ; noinline, cold
  %chosen = select %condition, %value, %usual

A call saves every register that holds a vector, which takes longer than a few operations: a
function of so few is inlined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyhlo.codegen.expressions import Apply, Expression, Literal, Rarely, Read
from tinyhlo.codegen.llvm.types import literal_text, splat, suffix, value_type
from tinyhlo.codegen.scopes import Value
from tinyhlo.codegen.walks import walk, work_of
from tinyhlo.ir.ops import Op

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.values import Values

FEW = 8  # operations that are inlined


def rarely(v: Values, e: Rarely) -> Value:
    """Call the function if any lane needs it."""
    parts = (e.usual, e.condition, *e.inputs)
    lanes = max(v.emit(part).lanes for part in parts)
    usual, condition, *inputs = (v.text(part, lanes) for part in parts)
    types = [value_type(part.dtype, lanes) for part in parts]
    any_lane = condition if lanes == 1 else any_of(v, e.condition, lanes)
    before, rare, joined = v.scope.label, v.b.fresh(), v.b.fresh()
    v.b.line(f"br i1 {any_lane}, label %{rare}, label %{joined}")
    v.b.lines.append(f"{rare}:")
    given = ", ".join(f"{t} {text}" for t, text in zip(types[2:], inputs, strict=True))
    value = v.b.value(f"call {types[0]} {function(v, e, lanes)}({given})")
    chosen = v.b.select(condition, value, usual, types[0], lanes)
    v.b.line(f"br label %{joined}")
    v.b.lines.append(f"{joined}:")
    v.scope.label = joined
    return Value(v.b.value(f"phi {types[0]} [{usual}, %{before}], [{chosen}, %{rare}]"), lanes)


def any_of(v: Values, condition: Expression, lanes: int) -> str:
    """Whether a condition holds in any lane."""
    match condition:
        case Apply(op=Op.LT, arguments=(x, Literal() as bound)) if x.dtype.is_float:
            whole = v.target.vector_bytes // x.dtype.itemsize
            if lanes > whole and lanes % whole == 0:
                return any_below(v, x, bound, lanes, whole)
        case _:
            pass
    return any_bit(v, v.text(condition, lanes), lanes)


def any_below(v: Values, x: Expression, bound: Literal, lanes: int, whole: int) -> str:
    """Whether floats in registers of `whole` lanes are below a number, by one comparison of their
    least. One that is no number is passed over; but where the first is none it stays the least,
    and counts as below."""
    every, one, text = value_type(x.dtype, lanes), value_type(x.dtype, whole), v.text(x, lanes)
    least, *others = (
        v.b.shuffle(every, range(start, start + whole), text) for start in range(0, lanes, whole)
    )
    for other in others:
        smaller = v.b.value(f"fcmp olt {one} {other}, {least}")
        least = v.b.select(smaller, other, least, one, whole)
    limit = splat(literal_text(bound.bits, x.dtype), value_type(x.dtype, 1), whole)
    return any_bit(v, v.b.value(f"fcmp ult {one} {least}, {limit}"), whole)


def any_bit(v: Values, bits: str, lanes: int) -> str:
    return v.b.intrinsic(f"llvm.vector.reduce.or.v{lanes}i1", "i1", [(f"<{lanes} x i1>", bits)])


def function(v: Values, e: Rarely, lanes: int) -> str:
    """The name of the function that computes `e.value` in so many lanes."""
    name = f"@{e.name}.{suffix(e.dtype, lanes)}"
    if name not in v.b.declarations:
        inner = v.apart()
        inputs = [Read(f"input{k}", part.dtype) for k, part in enumerate(e.inputs)]
        for read in inputs:
            inner.bind(read.name)
            inner.scope.table(read)[read] = Value(f"%{read.name}", lanes)
        given = ", ".join(f"{value_type(r.dtype, lanes)} %{r.name}" for r in inputs)
        widest = max(part.dtype.itemsize for part in walk([e.value]))
        type_, piece = value_type(e.dtype, lanes), max(2, v.target.vector_bytes // widest)
        split = lanes > piece and lanes % piece == 0
        result = in_pieces(inner, e, inputs, lanes, piece) if split else inner.text(e.value, lanes)
        called = "alwaysinline" if has_few_operations(e) else "noinline cold"
        v.b.declarations[name] = "\n".join(
            [
                f"define internal {type_} {name}({given}) {called} #0 {{",
                *inner.b.lines,
                f"  ret {type_} {result}",
                "}",
            ]
        )
    return name


def has_few_operations(e: Rarely) -> bool:
    """On floats: LLVM takes those on integers apart where there is no instruction for vectors."""
    parts = walk([e.value])
    return all(part.dtype.is_float for part in parts) and work_of([e.value]) <= FEW


def in_pieces(v: Values, e: Rarely, inputs: list[Read], lanes: int, piece: int) -> str:
    """`e.value` of all lanes by calls with a `piece` of them each: LLVM needs several times as
    long for code whose every value fills several registers, and this code seldom runs."""
    callee, result = function(v, e, piece), "poison"
    whole, part = value_type(e.dtype, lanes), value_type(e.dtype, piece)
    insert = f"llvm.vector.insert.{suffix(e.dtype, lanes)}.{suffix(e.dtype, piece)}"
    for start in range(0, lanes, piece):
        given: list[str] = []
        for read in inputs:
            every, order = value_type(read.dtype, lanes), range(start, start + piece)
            taken = v.b.shuffle(every, order, f"%{read.name}")
            given.append(f"{value_type(read.dtype, piece)} {taken}")
        value = v.b.value(f"call {part} {callee}({', '.join(given)})")
        places = [(whole, result), (part, value), ("i64", str(start))]
        result = v.b.intrinsic(insert, whole, places)
    return result
