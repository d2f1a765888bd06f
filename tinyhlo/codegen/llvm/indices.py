"""Index expressions as LLVM IR: i64 scalars, or one number a lane.

Lane indices are i32 when range analysis allows it: dividing and gathering are cheaper then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyhlo.codegen.expressions import (
    Apply,
    Expression,
    Literal,
    Load,
    atom_free,
    index_free,
    index_loads,
)
from tinyhlo.codegen.llvm.convert import int_to_int
from tinyhlo.codegen.llvm.types import lanes_type, splat, value_type
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import I32, I64, DType
from tinyhlo.ir.index import (
    Atom,
    Data,
    Index,
    Quotient,
    Remainder,
    Var,
    atoms_of,
    reach,
    stride_in_lanes,
    sums_of,
)
from tinyhlo.ir.ops import Op

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.values import Values


SMALL = 1 << 30  # what numbers that are added and multiplied in an i32 stay below


def scalar(v: Values, index: Index) -> str:
    """A uniform index, or lane 0 of one that is affine in the vector variable, as an i64."""
    if not index.terms:
        return str(index.offset)
    home = v.home(index_free(index), index_loads(index))
    found = v.stack[home].indices.get(index)
    if found is None:
        with v.at(home):
            found = scalar_sum(v, index)
            if index_loads(index) < 2:
                v.scope.indices[index] = found
    return found


def scalar_sum(v: Values, index: Index) -> str:
    """Terms of outer scopes first, so that partial sums leave inner loops."""
    terms = list(index.terms)
    if len(terms) > 1:
        terms.sort(key=lambda term: v.home(atom_free(term[0]), 0))
        *outer, last = terms
        rest = Index(0, tuple(t for t in index.terms if t in outer))
        total = scalar(v, rest)
        part = scaled(v, *last)
        total = v.b.value(f"add nsw i64 {total}, {part}")
    else:
        total = scaled(v, *terms[0])
    if index.offset:
        total = v.b.value(f"add nsw i64 {total}, {index.offset}")
    return total


def scaled(v: Values, atom: Atom, coefficient: int) -> str:
    text = scalar_atom(v, atom)
    return text if coefficient == 1 else v.b.value(f"mul nsw i64 {text}, {coefficient}")


def scalar_atom(v: Values, atom: Atom) -> str:
    match atom:
        case Var():
            return v.variables[atom]
        case Data(value=value):
            return int_to_int(v.b, v.emit(value).text, value.dtype, I64, 1)
        case Quotient(dividend=dividend, divisor=divisor):
            return divide(v, scalar(v, dividend), dividend, divisor, I64, 1, "div")
        case Remainder(dividend=dividend, modulus=modulus):
            return divide(v, scalar(v, dividend), dividend, modulus, I64, 1, "rem")


def divide(
    v: Values, text: str, dividend: Index, divisor: int, wide: DType, lanes: int, op: str
) -> str:
    """Floor quotient or remainder: unsigned, after a shift that makes the dividend positive."""
    type_, scalar_ = value_type(wide, lanes), f"i{wide.bits}"
    low = dividend.bounds[0]
    shift = -(low // divisor) if low < 0 else 0
    if shift:
        text = v.b.value(f"add nsw {type_} {text}, {splat(str(shift * divisor), scalar_, lanes)}")
    result = v.b.value(f"u{op} {type_} {text}, {splat(str(divisor), scalar_, lanes)}")
    if shift and op == "div":
        result = v.b.value(f"sub nsw {type_} {result}, {splat(str(shift), scalar_, lanes)}")
    return result


def address(v: Values, pointer: str, element: str, index: Index, depth: int) -> str:
    """`pointer`, which exists from scope `depth` on, moved by a uniform index. Terms of outer loops
    are added in those loops, and the constant last: the innermost loop needs only an addressing
    mode, and LLVM's strength reduction, which is slow, has nothing to do."""
    if index.offset:
        start = address(v, pointer, element, index + -index.offset, depth)
        return v.moved(start, element, str(index.offset))
    if not index.terms:
        return pointer
    home = max(v.home(index_free(index), index_loads(index)), depth)
    key = (pointer, index)
    found = v.stack[home].addresses.get(key)
    if found is None:
        with v.at(home):
            outer = tuple(t for t in index.terms if v.home(atom_free(t[0]), 0) < home)
            inner = tuple(t for t in index.terms if t not in outer)
            if inner:
                start = address(v, pointer, element, Index(0, outer), depth)
                found = v.moved(start, element, scalar(v, Index(0, inner)))
            else:  # the memory is younger than the loops
                found = v.moved(pointer, element, scalar(v, index))
            if index_loads(index) < 2:
                v.scope.addresses[key] = found
    return found


# --- one number a lane ---------------------------------------------------------------------------


def stride(v: Values, index: Index) -> int | None:
    """How far apart neighbouring lanes are; None when that differs."""
    var, result = v.vector_var, 0
    for atom, coefficient in index.terms:
        if atom == var:
            result += coefficient
        elif not isinstance(atom, Var) and v.is_varying(names := atom_free(atom)):
            if var is None or v.in_step != var or v.is_varying(names - {var}):
                return None
            inside = stride_in_lanes(atom, var, v.lanes)
            if inside is None:
                return None
            result += coefficient * inside
    return result


def lanes(v: Values, index: Index) -> tuple[str, DType]:
    """One number a lane, and their type: i32 or i64."""
    wide = I32 if small(index) else I64
    return lanes_of(v, index, wide), wide


def small(index: Index) -> bool:
    """Whether every partial result fits 31 bits."""
    divisors = (atom.divisor for atom in atoms_of(index) if isinstance(atom, Quotient))
    return all(n < SMALL for n in (*map(reach, sums_of(index)), *divisors))


def lanes_of(v: Values, index: Index, wide: DType) -> str:
    """One number a lane, made once a scope unless it is of memory that may change."""
    key = index, wide, v.lanes
    found = v.scope.lane_indices.get(key)
    if found is None:
        found = lanes_sum(v, index, wide)
        if index_loads(index) < 2:
            v.scope.lane_indices[key] = found
    return found


def lanes_sum(v: Values, index: Index, wide: DType) -> str:
    """Uniform terms as one scalar, broadcast; varying ones added."""
    lanes, scalar_ = v.lanes, f"i{wide.bits}"
    type_ = lanes_type(scalar_, lanes)
    step = stride(v, index)
    if step is not None:
        base = int_to_int(v.b, scalar(v, index), I64, wide, 1)
        total = v.b.broadcast(base, scalar_, lanes)
        if step == 0:
            return total
        numbers = ", ".join(f"{scalar_} {k * step}" for k in range(lanes))
        return v.b.value(f"add {type_} {total}, <{numbers}>")
    fixed = tuple(t for t in index.terms if t[0] == v.vector_var or not varies(v, t[0]))
    total = ""
    if fixed:
        total = lanes_of(v, Index(index.offset, fixed), wide)
    elif index.offset:
        total = splat(str(index.offset), scalar_, lanes)
    for atom, coefficient in index.terms:
        if (atom, coefficient) in fixed:
            continue
        part = lanes_atom(v, atom, wide)
        if coefficient != 1:
            part = v.b.value(f"mul {type_} {part}, {splat(str(coefficient), scalar_, lanes)}")
        total = v.b.value(f"add {type_} {total}, {part}") if total else part
    return total


def varies(v: Values, atom: Atom) -> bool:
    return v.is_varying(atom_free(atom))


def lanes_atom(v: Values, atom: Atom, wide: DType) -> str:
    match atom:
        case Data(value=value):
            return int_to_int(v.b, v.text(value, v.lanes), value.dtype, wide, v.lanes)
        case Quotient(dividend=dividend, divisor=divisor):
            return divide(v, lanes_of(v, dividend, wide), dividend, divisor, wide, v.lanes, "div")
        case Remainder(dividend=dividend, modulus=modulus):
            return divide(v, lanes_of(v, dividend, wide), dividend, modulus, wide, v.lanes, "rem")
    raise TypeError(atom)


def lanes_within(v: Values, condition: Condition) -> str:
    """low <= index < high, for each lane."""
    shifted = condition.index + -condition.low
    text, wide = lanes(v, shifted)
    type_ = value_type(wide, v.lanes)
    extent = condition.high - condition.low
    if wide is I32:  # of indices that are so small, all that are not negative lie below
        extent = min(extent, SMALL)
    end = splat(str(extent), f"i{wide.bits}", v.lanes)
    return v.b.value(f"icmp ult {type_} {text}, {end}")


def are_narrow(where: Index) -> bool:
    """Whether indices that are data are loaded as narrow integers: a scalar load extends one for
    nothing, and clamping it takes no instruction. Taking it out of a vector takes one."""
    atoms = [atom for atom, _ in where.terms]
    return all(isinstance(a, Var) or (isinstance(a, Data) and is_narrow(a.value)) for a in atoms)


def is_narrow(value: Expression) -> bool:
    match value:
        case Apply(op=Op.CAST | Op.MIN | Op.MAX, arguments=(inner, *others)):
            return is_narrow(inner) and all(isinstance(other, Literal) for other in others)
        case Load(dtype=dtype):
            return dtype.bits <= 16
        case _:
            return False
