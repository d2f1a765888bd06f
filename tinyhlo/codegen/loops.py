"""The LoopProgram: a small statement grammar, printed like code, that every renderer reads.

Expressions are scalar values at one point of the iteration space. They are hash-consed: equal
expressions are the same object, so sharing is identity and walks are linear in distinct nodes.

    Literal 1.5f32 | IndexValue (i*4 + j) | Load x[i*4 + j] | Read acc | Apply add(a, b)
    | Guard (conditions ? value : otherwise)          # value is only evaluated when they hold

Statements run in order:

    for i in 96 parallel: body      | acc = 0.0         | acc += value     | (a, b) = (x, y)
    y[i*4 + j] = value              | if condition: ... | local t: f32[64]

An axis has a kind; moves (`codegen/moves.py`) rewrite axes, renderers honour kinds. Sibling loops
may use the same variable again: each loop binds it anew.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Union

import numpy as np

from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.index import ZERO, Condition, Data, Index, Quotient, Remainder, Var, substitute
from tinyhlo.ir.ops import Op


class Axis(Enum):
    """How the iterations of a loop run."""

    PARALLEL = "parallel"  # over workers of the pool
    SERIAL = "serial"  # one after another; independent, so a move may run them otherwise
    ORDERED = "ordered"  # each iteration needs the one before; with lanes, sums are prefixes
    VECTOR = "vector"  # SIMD lanes; the renderer adds the remainder
    REDUCE = "reduce"  # only accumulates: any order; `width` > 1 keeps one accumulator a lane


@dataclass(frozen=True, slots=True)
class Memory:
    """A kernel's view of memory: argument `name` of `size` elements; `local` is private scratch."""

    name: str
    dtype: DType
    size: int
    local: bool = False
    constant: bool = False  # nobody writes it while the kernel runs


# --- expressions ---------------------------------------------------------------------------------

Name = Union[Var, str]  # a loop variable or a register
NOTHING: frozenset[Name] = frozenset()
_serials = itertools.count()
_interned: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()


class _Interning(type):
    """Calling a class gives the one instance with these fields."""

    def __call__(cls, *fields: Any) -> Any:
        key = (cls, *fields)
        found = _interned.get(key)
        if found is None:
            found = super().__call__(*fields)
            _interned[key] = found
        return found


@dataclass(frozen=True, eq=False, repr=False, slots=True, weakref_slot=True)
class _Expression(metaclass=_Interning):
    """What all expressions know of themselves: `free` names (loop variables and registers), and
    whether they load from memory (0 no, 1 from constant memory only, 2 from any)."""

    free: frozenset[Name] = field(init=False, repr=False)
    loads: int = field(init=False, repr=False)
    serial: int = field(init=False, repr=False)

    def _describe(self, free: frozenset[Name], loads: int) -> None:
        object.__setattr__(self, "free", free)
        object.__setattr__(self, "loads", loads)
        object.__setattr__(self, "serial", next(_serials))

    def depends_on(self, var: Var) -> bool:
        return var in self.free

    def substitute(self, values: Mapping[Var, Index], done: Renamed | None = None) -> Expression:
        shared: Renamed = {} if done is None else done
        return substitute_expression(self, values, shared)  # type: ignore[arg-type]

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


Expression = Union[Literal, IndexValue, Load, Read, Apply, Guard]


def index_free(index: Index) -> frozenset[Name]:
    """Variables and registers that occur anywhere in an index."""
    names: frozenset[Name] = NOTHING
    for atom, _ in index.terms:
        match atom:
            case Var():
                names = names | {atom}
            case Quotient(dividend=inner) | Remainder(dividend=inner):
                names = names | index_free(inner)
            case Data(value=value):
                names = names | value.free
    return names


def index_loads(index: Index) -> int:
    """Like `_Expression.loads`."""
    loads = 0
    for atom, _ in index.terms:
        match atom:
            case Quotient(dividend=inner) | Remainder(dividend=inner):
                loads = max(loads, index_loads(inner))
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

    match root:
        case IndexValue(index=index, dtype=dtype):
            result: Expression = IndexValue(substitute(index, values, done), dtype)
        case Load(memory=memory, index=index):
            result = Load(memory, substitute(index, values, done))
        case Apply(op=op, arguments=arguments, dtype=dtype):
            result = Apply(op, tuple(again(a) for a in arguments), dtype)
        case Guard(conditions=conditions, value=value, otherwise=otherwise):
            inner = tuple(
                Condition(substitute(c.index, values, done), c.low, c.high) for c in conditions
            )
            result = Guard(inner, again(value), again(otherwise))
        case _:
            result = root
    done[root] = result
    return result


def literal(value: Any, dtype: DType) -> Literal:
    """The Literal of a Python or NumPy scalar."""
    raw = np.asarray(value).astype(dtype.numpy).tobytes()
    return Literal(int.from_bytes(raw, "little"), dtype)


def as_index(value: Expression, bounds: tuple[int, int]) -> Index:
    """An integer expression as an Index: sums of affine parts stay affine, the rest is Data."""
    from tinyhlo.ir.index import index

    match value:
        case IndexValue(index=inner):
            return inner
        case Literal(bits=bits, dtype=dtype):
            sign = dtype.kind == "signed" and bits >> (dtype.bits - 1)
            return Index(bits - (1 << dtype.bits) if sign else bits, ())
    return index(Data(value, bounds))


# --- statements ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Loop:
    """Run `body` for `var` in `start` .. min(start + count, var.extent), `width` lanes at a time.

    `count` None means up to the extent. A strip (start = p*B, count = B) is how a split looks:
    `var` keeps its meaning, so no index has to be rewritten, and the last strip is just shorter.
    """

    var: Var
    axis: Axis
    body: Body
    width: int = 1
    start: Index = ZERO
    count: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Bind:
    """Give `var` a value: how a collapsed loop recovers its former variables."""

    var: Var
    index: Index


@dataclass(frozen=True, eq=False, slots=True)
class Declare:
    """A new register with its first value."""

    name: str
    value: Expression


@dataclass(frozen=True, eq=False, slots=True)
class Accumulate:
    """name = op(name, value), `op` a monoid."""

    name: str
    op: Op
    value: Expression


@dataclass(frozen=True, eq=False, slots=True)
class Assign:
    """Set several registers at once; every value is computed first."""

    names: tuple[str, ...]
    values: tuple[Expression, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Store:
    """memory[index] = value. Values of consecutive Stores are all computed before any is stored."""

    memory: Memory
    index: Index
    value: Expression


@dataclass(frozen=True, eq=False, slots=True)
class If:
    """Run `body` when all conditions hold."""

    conditions: tuple[Condition, ...]
    body: Body


@dataclass(frozen=True, eq=False, slots=True)
class Allocate:
    """Private scratch for the rest of the enclosing body."""

    memory: Memory


Place = tuple[Memory, Index]


@dataclass(frozen=True, eq=False, slots=True)
class TileProduct:
    """A register tile of a matrix product: for every row r and every vector v of `lanes` columns,

        tile[tile_start + r*tile_row + v*lanes + lane] (+)=
            sum over `depth` of left[left_rows[r] + left_step]
                              * right[right_vectors[v] + right_step + lane]

    The two steps are indices over the variables in `depth`, the last of which runs fastest.
    `accumulate` adds to what the tile holds. With a `group` of 2, a lane sums the products of two
    neighbours on the left and two on the right: lane l's lie at right + 2*l. What lies `ahead` is
    fetched into the cache meanwhile, for whoever takes the tile."""

    left: Memory
    left_rows: tuple[Index, ...]
    left_step: Index
    right: Memory
    right_vectors: tuple[Index, ...]
    right_step: Index
    depth: tuple[Var, ...]
    tile: Memory
    tile_start: Index
    tile_row: int
    lanes: int
    accumulate: bool
    group: int = 1
    ahead: tuple[Place, ...] = ()

    @property
    def indices(self) -> tuple[Index, ...]:
        """Every index but the steps: those that names around the statement occur in."""
        ahead = (where for _, where in self.ahead)
        return (*self.left_rows, *self.right_vectors, self.tile_start, *ahead)

    def substitute(self, values: Mapping[Var, Index]) -> TileProduct:
        return replace(
            self,
            left_rows=tuple(substitute(i, values) for i in self.left_rows),
            right_vectors=tuple(substitute(i, values) for i in self.right_vectors),
            tile_start=substitute(self.tile_start, values),
            ahead=tuple((memory, substitute(i, values)) for memory, i in self.ahead),
        )


Statement = Union[Loop, Bind, Declare, Accumulate, Assign, Store, If, Allocate, TileProduct]
Body = tuple[Statement, ...]


@dataclass(frozen=True, eq=False, slots=True)
class LoopProgram:
    """The loops of one kernel. `arguments` are its reads, then its writes, as in `Launch`;
    `in_place` lists (write, read) positions that are the same memory; `tables` are small constant
    arrays; `moves` is the schedule that was applied, for people to read."""

    name: str
    reads: tuple[Memory, ...]
    writes: tuple[Memory, ...]
    body: Body
    in_place: tuple[tuple[int, int], ...] = ()
    tables: tuple[tuple[Memory, np.ndarray], ...] = ()
    moves: tuple[str, ...] = ()

    def __str__(self) -> str:
        from tinyhlo.codegen.printer import format_program

        return format_program(self)
