"""Expressions under conditions: chosen, jumped around, or loaded under a mask.

In: a Guard and the open Scopes of Values. Out: the Value that holds it:

    [0 <= i < n ? x[i]*2 : 0], i one for all lanes  ->  a jump; without loads, or one row: a select
    [0 <= j < n ? x[j] : 0], j the vector axis      ->  a masked load
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyhlo.codegen.expressions import Expression, Guard, Literal, Load, atom_free, index_free
from tinyhlo.codegen.llvm import indices
from tinyhlo.codegen.llvm.types import lanes_type, literal_text, scalar_type, splat, value_type
from tinyhlo.codegen.scopes import Value
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import BOOL, U8
from tinyhlo.ir.index import Index, Var

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.values import Values

FAR = 1024  # elements: memory so far outside of an array may not be mapped


def guard(v: Values, e: Guard) -> Value:
    """The value, or the other one where a condition does not hold: nothing is loaded there."""
    if any(v.is_varying(index_free(c.index)) for c in e.conditions):
        return varying_guard(v, e)
    condition = all_hold(v, e.conditions)
    if not e.value.loads:
        return choose(v, condition, e.value, e.otherwise)
    match e:
        case Guard(value=Load() as load, otherwise=Literal() as other) if is_row(v, load):
            return load_either(v, condition, load, other)
        case _:
            return branch(v, condition, e)


def is_row(v: Values, e: Load) -> bool:
    """Whether one vector of memory holds all lanes."""
    return v.is_varying(e.free) and v.scope.mask is None and indices.stride(v, e.index) == 1


def load_either(v: Values, condition: str, e: Load, other: Literal) -> Value:
    """A vector of memory, or of a constant in memory: the address is selected, not the value, so
    that windows over padded rows are straight-line code."""
    dtype, lanes = e.dtype, v.lanes
    name, stored = f"@lanes.{dtype.name}.{other.bits}.{lanes}", U8 if dtype is BOOL else dtype
    type_ = value_type(stored, lanes)
    text = splat(literal_text(other.bits, stored), scalar_type(stored), lanes)
    v.b.declarations[name] = f"{name} = private constant {type_} {text}"
    address = v.address(e.memory, e.index)
    place = v.b.value(f"select i1 {condition}, ptr {address}, ptr {name}")
    return Value(v.load_lanes(e.memory, place, lanes), lanes)


def choose(v: Values, condition: str, then: Expression, other: Expression) -> Value:
    lanes = max(v.emit(then).lanes, v.emit(other).lanes)
    chosen = v.b.value(
        f"select i1 {condition}, "
        f"{value_type(then.dtype, lanes)} {v.text(then, lanes)}, "
        f"{value_type(then.dtype, lanes)} {v.text(other, lanes)}"
    )
    return Value(chosen, lanes)


def all_hold(v: Values, conditions: tuple[Condition, ...]) -> str:
    """Uniform conditions as one i1."""
    result = ""
    for condition in conditions:
        index = v.index(condition.index + -condition.low)
        extent = condition.high - condition.low
        held = v.b.value(f"icmp ult i64 {index}, {extent}")
        result = v.b.value(f"and i1 {result}, {held}") if result else held
    return result


def branch(v: Values, condition: str, e: Guard) -> Value:
    """Uniform conditions: jump."""
    then, other, after = (v.b.fresh() for _ in range(3))
    lanes = v.lanes if v.is_varying(e.free) else 1
    lines, results = [f"  br i1 {condition}, label %{then}, label %{other}"], list[str]()
    for name, part in ((then, e.value), (other, e.otherwise)):
        with v.innermost():
            v.open(name, guard=True)
            text = v.text(part, lanes)
            scope = v.close()
        lines += [f"{name}:", *scope.lines, f"  br label %{after}"]
        results.append(f"[{text}, %{scope.label}]")
    v.scope.lines += [*lines, f"{after}:"]
    v.scope.label = after
    return Value(v.b.value(f"phi {value_type(e.dtype, lanes)} {', '.join(results)}"), lanes)


def reaches_far(condition: Condition) -> bool:
    """Whether lanes may be far outside."""
    first, last = condition.index.bounds
    return condition.low - first > FAR or last - condition.high > FAR


def some_lane_holds(v: Values, condition: Condition) -> str | None:
    """Whether a condition may hold in a lane, as an i1; None when lanes are not evenly apart."""
    stride = indices.stride(v, condition.index)
    if stride is None or not is_affine(v, condition.index):
        return None
    reach = abs(stride) * (v.lanes - 1)
    start = v.index(condition.index + (max(stride, 0) * (v.lanes - 1) - condition.low))
    return v.b.value(f"icmp ult i64 {start}, {condition.high - condition.low + reach}")


def is_affine(v: Values, index: Index) -> bool:
    """Whether lanes differ by the vector variable alone."""
    atoms = [atom for atom, _ in index.terms]
    return not any(v.is_varying(atom_free(a)) for a in atoms if not isinstance(a, Var))


def varying_guard(v: Values, e: Guard) -> Value:
    """Conditions differ between lanes: masked loads and a select."""
    lanes = v.lanes
    mask_type = lanes_type("i1", lanes)
    varying = [c for c in e.conditions if v.is_varying(index_free(c.index))]
    mask = ""
    for condition in varying:
        held = indices.lanes_within(v, condition)
        mask = v.b.value(f"and {mask_type} {mask}, {held}") if mask else held
    reached = v.scope.reached
    if len(varying) < len(e.conditions):
        uniform = all_hold(v, tuple(c for c in e.conditions if c not in varying))
        reached = v.b.value(f"and i1 {uniform}, {reached}") if reached else uniform
        mask = v.b.value(f"select i1 {uniform}, {mask_type} {mask}, {mask_type} zeroinitializer")
    for condition in varying:
        if reaches_far(condition) and (some := some_lane_holds(v, condition)):
            reached = v.b.value(f"and i1 {some}, {reached}") if reached else some
    outer = v.scope.mask
    inner = v.b.value(f"and {mask_type} {mask}, {outer}") if outer else mask
    block = v.b.fresh()
    with v.innermost():
        v.open(block, guard=True, mask=inner, reached=reached)
        value = v.text(e.value, lanes)
        scope = v.close()
    if scope.label != block:  # it has several blocks, and what was hoisted out of it may too
        v.scope.lines.extend([f"  br label %{block}", f"{block}:"])
        v.scope.label = scope.label
    v.scope.lines.extend(scope.lines)
    match e:
        case Guard(value=Load() as load, otherwise=Literal(bits=0)):
            loaded = scope.table(load).get(load)
            if loaded is not None and loaded.lanes == lanes:
                return Value(value, lanes)  # a load under a mask leaves 0
        case _:
            pass
    otherwise = v.text(e.otherwise, lanes)
    return Value(v.b.select(mask, value, otherwise, value_type(e.dtype, lanes), lanes), lanes)
