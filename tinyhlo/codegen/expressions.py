"""Expressions: scalar values at one point of the iteration space.

    Literal 1.5f32 | IndexValue (i*4 + j) | Load x[i*4 + j] | Read acc | Apply add(a, b)
    | Guard (conditions ? value : otherwise)          # value is only evaluated when they hold
    | Rarely (condition ? rule(inputs) : usual)       # rule is a function of its own, seldom called

They are hash-consed: equal expressions are the same object, so sharing is identity, and a walk must
look at each once: a value that is used twice at every level is a tree of 2 to the depth.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, Union

import numpy as np

from tinyhlo.codegen.folding import fits, fold
from tinyhlo.ir import meaning
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import BOOL, DType
from tinyhlo.ir.index import (
    Atom,
    Data,
    Index,
    Quotient,
    Remainder,
    Var,
    constant,
    index,
    substitute,
)
from tinyhlo.ir.interned import Interned
from tinyhlo.ir.operators import Operators, dtype_of
from tinyhlo.ir.ops import COMPARISONS, Op
from tinyhlo.records import dataclass


class Memory(NamedTuple):
    """A kernel's view of memory: argument `name` of `size` elements; `local` is private scratch."""

    name: str
    dtype: DType
    size: int
    local: bool = False
    constant: bool = False  # nobody writes it while the kernel runs
    width: int = 0  # texels of a row of an image, each of 4 elements; 0: an array

    @property
    def height(self) -> int:
        """Rows of an image."""
        return self.size // (4 * self.width)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


Name = Union[Var, str]  # a loop variable or a register
NOTHING: frozenset[Name] = frozenset()
_serials = itertools.count()
_interned: Interned[Any] = Interned()


class _Interning(type):
    """Calling a class gives the one instance with these fields."""

    def __call__(cls, *fields: Any) -> Any:
        key = (cls, *fields)
        found = _interned.get(key)
        if found is None:
            found = _interned.keep(key, super().__call__(*fields))
        return found


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class _Expression(Operators["Expression"], metaclass=_Interning):
    """What all expressions know of themselves: `free` names (loop variables and registers), and
    whether they load from memory (0 no, 1 from constant memory only, 2 from any)."""

    free: frozenset[Name] = field(init=False, repr=False)
    loads: int = field(init=False, repr=False)
    serial: int = field(init=False, repr=False)

    def _describe(self, free: frozenset[Name], loads: int) -> None:
        object.__setattr__(self, "free", free)
        object.__setattr__(self, "loads", loads)
        object.__setattr__(self, "serial", next(_serials))

    def constant(self, value: float) -> Expression:
        return literal(value, dtype_of(self))

    def combined(self, op: Op, operands: Sequence[Expression], dtype: DType | None) -> Expression:
        natural = BOOL if op in COMPARISONS else operands[-1].dtype
        return apply(op, tuple(operands), dtype or natural)

    def depends_on(self, var: Var) -> bool:
        return var in self.free

    def substitute(self, values: Mapping[Var, Index], done: Renamed | None = None) -> Expression:
        shared: Renamed = {} if done is None else done
        return substitute_expression(self, values, shared)  # type: ignore[arg-type]

    def as_index(self, bounds: tuple[int, int]) -> Index:
        return as_index(self, bounds)  # type: ignore[arg-type]

    def __str__(self) -> str:
        """A short stable name; `codegen/printer.py` writes expressions out."""
        return f"#{self.serial:09d}"

    __repr__ = __str__


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Literal(_Expression):
    """A constant, as the `bits` of its representation (so -0.0 and NaN are themselves)."""

    bits: int
    dtype: DType

    def __post_init__(self) -> None:
        self._describe(NOTHING, 0)

    @property
    def known(self) -> int | None:  # type: ignore[override]
        return number_of(self) if self.dtype.is_integer else None


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class IndexValue(_Expression):
    """An index expression as a number of type `dtype`."""

    index: Index
    dtype: DType

    def __post_init__(self) -> None:
        self._describe(index_free(self.index), index_loads(self.index))


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Load(_Expression):
    """Element `index` of `memory`."""

    memory: Memory
    index: Index

    def __post_init__(self) -> None:
        own = 1 if self.memory.constant else 2
        self._describe(index_free(self.index), max(own, index_loads(self.index)))

    @property
    def dtype(self) -> DType:
        return self.memory.dtype


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Read(_Expression):
    """The value of register `name` (an accumulator or a shared subexpression)."""

    name: str
    dtype: DType

    def __post_init__(self) -> None:
        self._describe(frozenset((self.name,)), 0)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Apply(_Expression):
    """An elementwise primitive."""

    op: Op
    arguments: tuple[Expression, ...]
    dtype: DType

    def __post_init__(self) -> None:
        free, loads = NOTHING, 0
        for argument in self.arguments:
            if not argument.free <= free:
                free = free | argument.free if free else argument.free
            loads = max(loads, argument.loads)
        self._describe(free, loads)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Guard(_Expression):
    """`value` where all conditions hold, else `otherwise`; loads in `value` are not executed
    where they do not."""

    conditions: tuple[Condition, ...]
    value: Expression
    otherwise: Expression

    def __post_init__(self) -> None:
        free = self.value.free | self.otherwise.free
        loads = max(self.value.loads, self.otherwise.loads)
        for condition in self.conditions:
            free = free | index_free(condition.index)
            loads = max(loads, index_loads(condition.index))
        self._describe(free, loads)

    @property
    def dtype(self) -> DType:
        return self.value.dtype


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Rarely(_Expression):
    """`value` where `condition` holds, else `usual`. It is over Reads "input0", "input1" ... for
    `inputs`, and computed by the function `name`, which is only called if a lane needs it."""

    name: str
    condition: Expression
    inputs: tuple[Expression, ...]
    value: Expression
    usual: Expression

    def __post_init__(self) -> None:
        parts = (self.condition, self.usual, *self.inputs)
        free = NOTHING.union(*(part.free for part in parts))
        self._describe(free, max(part.loads for part in parts))

    @property
    def dtype(self) -> DType:
        return self.usual.dtype


Expression = Union[Literal, IndexValue, Load, Read, Apply, Guard, Rarely]


def apply(op: Op, arguments: tuple[Expression, ...], dtype: DType) -> Expression:
    """`op` applied, folded where index ranges allow it."""
    if op is Op.WHERE and isinstance(arguments[0], Literal):
        return arguments[1] if arguments[0].bits else arguments[2]
    if op is Op.WHERE and arguments[1] is arguments[2]:
        return arguments[1]
    if IndexValue in map(type, arguments):
        match fold(op, tuple(map(as_affine, arguments)), dtype):
            case Index() as where:
                return IndexValue(where, dtype)
            case bool(holds):
                return Literal(int(holds), BOOL)
            case None:
                pass
    return Apply(op, arguments, dtype)


def where(condition: Expression, then: Expression, other: Expression) -> Expression:
    """`then` where `condition` holds."""
    return apply(Op.WHERE, (condition, then, other), then.dtype)


def as_affine(value: Expression) -> Index | None:
    """An integer that is an index or a constant."""
    match value:
        case IndexValue(index=index, dtype=dtype) if dtype.is_integer and fits(index, dtype):
            return index
        case Literal(dtype=dtype) if dtype.is_integer:
            return constant(number_of(value))
    return None


def number_of(value: Literal) -> int:
    """The number that an integer literal is."""
    negative = value.dtype.kind == "signed" and value.bits >> (value.dtype.bits - 1)
    return value.bits - (1 << value.dtype.bits) if negative else value.bits


def float_of(value: Literal) -> float:
    """The number that a literal of floats is."""
    raw = value.bits.to_bytes(value.dtype.itemsize, "little")
    return float(np.frombuffer(raw, value.dtype.numpy)[0])


@lru_cache(maxsize=4096)
def has_registers(names: frozenset[Name]) -> bool:
    """Whether any of the names is a register."""
    return any(type(name) is str for name in names)


def index_free(index: Index) -> frozenset[Name]:
    """Variables and registers that occur anywhere in an index."""
    names: frozenset[Name] = NOTHING
    for atom, _ in index.terms:
        match atom:
            case Var():
                names = names | {atom}
            case Quotient() | Remainder():
                names = names | atom.free
            case Data(value=value):
                names = names | value.free
    return names


def atom_free(atom: Atom) -> frozenset[Name]:
    return frozenset((atom,)) if type(atom) is Var else index_free(Index(0, ((atom, 1),)))


def index_loads(index: Index) -> int:
    """Whether an index loads from memory, in the numbers of `_Expression.loads`."""
    loads = 0
    for atom, _ in index.terms:
        match atom:
            case Quotient(data=data) | Remainder(data=data):
                loads = max(loads, *(value.loads for value in data), 0)
            case Data(value=value):
                loads = max(loads, value.loads)
            case _:
                pass
    return loads


Renamed = dict["Expression", "Expression"]


def substitute_expression(
    root: Expression, values: Mapping[Var, Index], done: Renamed
) -> Expression:
    """`root` with loop variables replaced; `done` shares the work between expressions."""
    if root.free.isdisjoint(values):
        return root
    found = done.get(root)
    if found is not None:
        return found

    def again(inner: Expression) -> Expression:
        return substitute_expression(inner, values, done)

    result = done[root] = rebuilt(root, again, lambda index: substitute(index, values, done))
    return result


def rebuilt(
    e: Expression,
    value_of: Callable[[Expression], Expression],
    index_of: Callable[[Index], Index],
) -> Expression:
    """The same operation over other operands, at other indices; a guard that these decide
    disappears."""
    match e:
        case IndexValue(index=index, dtype=dtype):
            return IndexValue(index_of(index), dtype)
        case Load(memory=memory, index=index):
            return Load(memory, index_of(index))
        case Apply(op=op, arguments=arguments, dtype=dtype):
            return apply(op, tuple([value_of(each) for each in arguments]), dtype)
        case Guard(conditions=conditions, value=value, otherwise=otherwise):
            left = undecided(c.of(index_of(c.index)) for c in conditions)
            if left is None:
                return value_of(otherwise)
            return Guard(left, value_of(value), value_of(otherwise)) if left else value_of(value)
        case Rarely(name=name, condition=condition, inputs=inputs, value=value, usual=usual):
            given = tuple([value_of(each) for each in inputs])
            return Rarely(name, value_of(condition), given, value, value_of(usual))
        case _:
            return e


def exchanged(
    root: Expression,
    known: Renamed,
    values: Mapping[Var, Index] = MappingProxyType({}),
    names: Mapping[str, str] = MappingProxyType({}),
) -> Expression:
    """`root` with some of its parts replaced: those in `known`, which also collects what became of
    the others, loop variables by `values`, registers by `names`."""
    found = known.get(root)
    if found is not None:
        return found
    match root:
        case Read(name=name, dtype=dtype):
            result: Expression = Read(names.get(name, name), dtype)
        case _:
            result = rebuilt(
                root,
                lambda e: exchanged(e, known, values, names),
                lambda where: substitute(where, values) if values else where,
            )
    known[root] = result
    return result


def undecided(conditions: Iterable[Condition]) -> tuple[Condition, ...] | None:
    """The conditions that may or may not hold; None when one does not."""
    left = tuple(condition for condition in conditions if not condition.always)
    return None if any(condition.never for condition in left) else left


def in_rows(memory: Memory, where: Index, stride: int) -> bool:
    """Whether memory consists of rows of `stride` elements, and `where` is in the same place of its
    row for all values of its variables."""
    return memory.size % stride == 0 and all(factor % stride == 0 for _, factor in where.terms)


def literal(value: Any, dtype: DType) -> Literal:
    """The Literal of a Python or NumPy scalar."""
    raw = np.asarray(value).astype(dtype.numpy).tobytes()
    return Literal(int.from_bytes(raw, "little"), dtype)


def identity(op: Op, dtype: DType) -> Literal:
    """The neutral element of a monoid."""
    return literal(meaning.identity(op, dtype), dtype)


def as_index(value: Expression, bounds: tuple[int, int]) -> Index:
    """An integer expression as an Index: sums of affine parts stay affine, the rest is Data, known
    to lie within `bounds`."""
    match value:
        case IndexValue(index=inner, dtype=dtype) if fits(inner, dtype):
            return inner
        case Literal():
            return constant(number_of(value))
        case Apply(op=Op.ADD, arguments=(first, second)) if not wraps(first, second):
            return as_index(first, known_bounds(first)) + as_index(second, known_bounds(second))
    low, high = known_bounds(value)
    return index(Data(value, (max(low, bounds[0]), min(high, bounds[1]))))


def wraps(first: Expression, second: Expression) -> bool:
    """Whether a sum might leave its type."""
    ends = zip(known_bounds(first), known_bounds(second), strict=True)
    low, high = (a + b for a, b in ends)
    least, most = first.dtype.bounds
    return low < least or high > most


def known_bounds(value: Expression) -> tuple[int, int]:
    """All values that an integer expression can have, as far as a look at its top shows."""
    low, high = (int(end) for end in value.dtype.bounds)
    match value:
        case Literal():
            return number_of(value), number_of(value)
        case IndexValue(index=inner):
            first, last = inner.bounds
            return (first, last) if low <= first and last <= high else (low, high)
        case Apply(op=Op.MAX | Op.MIN as op, arguments=(one, other)):
            join = max if op is Op.MAX else min
            ends = zip(known_bounds(one), known_bounds(other), strict=True)
            first, last = (join(a, b) for a, b in ends)
            return first, last
        case _:
            return low, high
