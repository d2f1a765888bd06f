"""A fused Kernel as loops: demand-driven, from the results back to the loads.

In: a Kernel of elementwise ops, views, gathers and reduces in any combination. Out: a LoopProgram
whose axes are all serial; `codegen/moves/heuristics.py` decides how they run. A softmax row:

    for i in 64:
      max0 = -inf
      for j in 100: max0 = max(max0, x[i*100 + j])
      sum1 = 0.0
      for j in 100: sum1 += exp(x[i*100 + j] - max0)
      for j in 100: y[i*100 + j] = exp(x[i*100 + j] - max0) / sum1

A reduce becomes a register, computed in the innermost scope that binds the variables of its
index. Loop variables are named by depth and extent, so sibling loops over the same range use the
same variable and equal subexpressions in them are the same object: `codegen/moves` joins such
loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from itertools import product

from tinyhlo.codegen.expressions import (
    NOTHING,
    Expression,
    Guard,
    IndexValue,
    Literal,
    Load,
    Memory,
    Name,
    Read,
    apply,
    as_index,
    has_registers,
    identity,
    index_free,
    literal,
    where,
)
from tinyhlo.codegen.loops import (
    Accumulate,
    Axis,
    Body,
    Declare,
    If,
    Loop,
    LoopProgram,
    Statement,
    Store,
)
from tinyhlo.codegen.lowering.joined_parts import Bounds, Parts, Position, cut_alike, find_pieces
from tinyhlo.codegen.lowering.ordered import ordered_source
from tinyhlo.codegen.regions import combine
from tinyhlo.ir.conditions import Condition, assuming
from tinyhlo.ir.dtypes import I16
from tinyhlo.ir.graph import (
    VIEWS,
    Barrier,
    Constant,
    Elementwise,
    Gather,
    Iota,
    MultiReduce,
    Node,
    Output,
    Pad,
    Param,
    Reduce,
    Shape,
    intern,
)
from tinyhlo.ir.index import ZERO, Index, Var, index, linear
from tinyhlo.ir.ops import MULTIPLICATIONS, Op
from tinyhlo.ir.views import through
from tinyhlo.records import dataclass
from tinyhlo.schedule.columns import loop_order
from tinyhlo.schedule.program import Kernel

Conditions = tuple[Condition, ...]
Key = tuple[Node, int, int]  # a value, and which position and conditions it is asked for
Tables = dict[Constant, Memory]  # where small constant arrays lie
LETTERS = "ijklmnopqrstuvwxyz"


def letter(depth: int) -> str:
    """The name of the variable of a loop inside so many others."""
    return LETTERS[depth] if depth < len(LETTERS) else f"i{depth}"


@dataclass(eq=False, slots=True)
class Scope:
    """A body under construction: the loop over `var`, an `if` (var None), or the whole kernel."""

    parent: Scope | None
    var: Var | None
    depth: int
    conditions: Conditions = ()
    statements: list[Statement] = field(default_factory=list)
    children: dict[Var, Scope] = field(default_factory=dict)  # loops of the results
    stores: list[Statement] = field(default_factory=list)
    memo: dict[Key, Expression] = field(default_factory=dict)

    def home(self, names: frozenset[Name]) -> Scope:
        """The outermost scope on the way up in which all `names` are bound."""
        scope = self
        while scope.parent is not None and (scope.var is None or scope.var not in names):
            scope = scope.parent
        return scope

    def find(self, key: Key) -> Expression | None:
        """A value that this scope or one around it has computed."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.memo.get(key)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def body(self) -> Body:
        """Stores come last, so that a result written in place is still read by the loops."""
        loops = tuple(Loop(var, Axis.SERIAL, child.body()) for var, child in self.children.items())
        return (*self.statements, *loops, *self.stores)


class Lowering:
    """Lowers a kernel, or a part of one that shares the `tables` of other parts; `reads` and
    `writes` are where its params and results lie."""

    def __init__(self, kernel: Kernel, tables: Tables | None = None) -> None:
        self.kernel = kernel
        overwritten = {param for _, param in kernel.in_place}
        self.reads = tuple(
            Memory(f"x{p}", type_.dtype, type_.size, constant=p not in overwritten)
            for p, type_ in enumerate(kernel.graph.params)
        )
        self.writes = tuple(
            Memory(f"y{k}", node.dtype, node.type.size)
            for k, node in enumerate(kernel.graph.results)
        )
        self.root = Scope(None, None, 0)
        self.tables: Tables = {} if tables is None else tables
        self.positions: dict[Position, Position] = {}
        self.guards: dict[Conditions, Conditions] = {(): ()}
        self.names = 0
        self.pieces: dict[Node, Parts] = {}

    def program(self, body: Body, moves: Sequence[str] | None = None) -> LoopProgram:
        """`body` as the loops of the whole kernel, with its `moves` where they are chosen."""
        tables = tuple((memory, node.value) for node, memory in self.tables.items())
        name, in_place, done = self.kernel.name, self.kernel.in_place, tuple(moves or ())
        planned = moves is not None
        return LoopProgram(name, self.reads, self.writes, body, in_place, tables, done, planned)

    def next_part(self) -> Lowering:
        """Of what follows in the kernel: it has the same tables, and other names."""
        part = Lowering(self.kernel, self.tables)
        part.names = self.names
        return part

    # --- scopes ------------------------------------------------------------------------------

    def nest(
        self,
        scope: Scope,
        shape: Shape,
        order: Sequence[int] = (),
        part: bool = False,
        suffix: str = "",
    ) -> tuple[Scope, Position]:
        """Descend into result loops over `shape`, sharing those that exist; `order` lists the axes
        from the outermost loop on. Of a `part` only loops along the same axis are shared: a border
        of a square is a row, or a column. Those of another `suffix` are others."""
        at: list[Index] = [ZERO] * len(shape)
        for axis in order or range(len(shape)):
            if shape[axis] == 1:
                continue
            aside = str(axis) if part and axis != scope.depth else ""
            var = Var(letter(scope.depth) + aside + suffix, shape[axis])
            child = scope.children.get(var)
            if child is None:
                child = scope.children[var] = Scope(scope, var, scope.depth + 1)
            scope = child
            at[axis] = index(var)
        return scope, self.position(tuple(at))

    def position(self, at: Position) -> Position:
        """The one tuple equal to `at`, so that memo keys can be identities."""
        return self.positions.setdefault(at, at)

    def fresh(self, label: str) -> str:
        self.names += 1
        return f"{label}{self.names - 1}"

    def store(self, node: Node, memory: Memory) -> None:
        """Compute a whole result, each part that was joined into it by loops of its own."""
        if node.type.size == 0:
            return
        order = loop_order(node)
        parts = list(product(*find_pieces(node, self.pieces)))
        for part in parts:
            shape = tuple(stop - start for start, stop in part)
            scope, local = self.nest(self.root, shape, order, len(parts) > 1)
            starts = (start for start, _ in part)
            at = self.position(tuple(i + k for i, k in zip(local, starts, strict=True)))
            value = self.emit(node, at, scope, ())
            scope.stores.append(Store(memory, linear(at, node.shape), value))

    # --- values ------------------------------------------------------------------------------

    def value(self, node: Node, at: Sequence[Index], guards: Conditions = ()) -> Expression:
        """The value of `node` at `at`, outside of all result loops, where `guards` hold."""
        held = self.guards.setdefault(guards, guards)
        return self.emit(node, self.position(tuple(at)), self.root, held)

    def emit(self, node: Node, at: Position, scope: Scope, guards: Conditions) -> Expression:
        """The value of `node` at `at`, inside `scope`, where `guards` are known to hold."""
        key = (node, id(at), id(guards))
        found = scope.find(key)
        if found is not None:
            return found
        value = self.compute(node, at, scope, guards)
        (scope if has_registers(value.free) else self.root).memo[key] = value
        return value

    def compute(self, node: Node, at: Position, scope: Scope, guards: Conditions) -> Expression:
        match node:
            case Elementwise(inputs=(test, *chosen), op=Op.WHERE):
                choice = self.emit(test, at, scope, guards)
                if isinstance(choice, Literal):
                    return self.emit(chosen[0 if choice.bits else 1], at, scope, guards)
                return where(choice, *(self.emit(source, at, scope, guards) for source in chosen))
            case Elementwise(inputs=inputs, op=op):
                values = tuple([self.emit(source, at, scope, guards) for source in inputs])
                return apply(Op.MUL if op in MULTIPLICATIONS else op, values, node.dtype)
            case Param(position=position):
                return Load(self.reads[position], linear(at, node.shape))
            case Constant():
                return self.constant(node, at)
            case Iota(axis=axis):
                return IndexValue(at[axis], node.dtype)
            case Pad():
                return self.pad(node, at, scope, guards)
            case Gather(inputs=(source, *indices)):
                return self.gather(source, indices, at, scope, guards)
            case Reduce():
                return self.reduce(node, at, scope, guards)
            case Output(inputs=(MultiReduce() as source,), position=position):
                return self.multi_reduce(source, position, at, scope, guards)
            case Barrier(inputs=(source,)):
                return self.emit(source, at, scope, guards)
            case _ if isinstance(node, VIEWS):
                inner, _ = through(node, at)
                if guards:
                    inner = tuple([assuming(each, guards) for each in inner])
                return self.emit(node.inputs[0], self.position(inner), scope, guards)
        raise TypeError(f"{type(node).__name__} cannot be part of a fused loop nest")

    def constant(self, node: Constant, at: Position) -> Expression:
        if node.value.size == 1:
            return literal(node.value, node.dtype)
        memory = self.tables.get(node)
        if memory is None:
            name = f"table{len(self.tables)}"
            memory = Memory(name, node.dtype, node.type.size, constant=True)
            self.tables[node] = memory
        return Load(memory, linear(at, node.shape))

    def pad(self, node: Pad, at: Position, scope: Scope, guards: Conditions) -> Expression:
        source, fill = node.inputs
        inner, conditions = through(node, at)
        known = tuple(c for c in conditions if c not in guards)
        outside = self.emit(fill, self.position(()), scope, guards)
        if any(condition.never for condition in known):
            return outside
        if not known:
            return self.emit(source, self.position(inner), scope, guards)
        held = (*guards, *known)
        held = self.guards.setdefault(held, held)
        value = self.emit(source, self.position(inner), scope, held)
        return Guard(known, value, outside)

    def gather(
        self, source: Node, indices: list[Node], at: Position, scope: Scope, guards: Conditions
    ) -> Expression:
        inner = tuple(
            as_index(self.emit(node, at, scope, guards), (0, extent - 1))
            for node, extent in zip(indices, source.shape, strict=True)
        )
        return self.emit(source, self.position(inner), scope, guards)

    # --- reduces -----------------------------------------------------------------------------

    def reduce(self, node: Reduce, at: Position, scope: Scope, guards: Conditions) -> Expression:
        order, source = ordered_source(node) or (None, node.inputs[0])
        home = scope.home(names_of(at))
        register = Read(self.fresh(node.op.label), I16 if order else node.dtype)
        home.statements.append(Declare(register.name, identity(node.op, register.dtype)))

        def accumulate(inner: Scope, place: Position, held: Conditions) -> list[Statement]:
            value = self.emit(source, place, inner, held)
            return [Accumulate(register.name, node.op, order.key(value) if order else value)]

        for bounds in self.reduced_parts(source, node.axes):
            self.reduce_loops(home, bounds, node.axes, at, guards, accumulate)
        result = order.value(register, node.dtype) if order else register
        home.memo[node, id(at), id(guards)] = result  # found by scopes below
        return result

    def multi_reduce(
        self, node: MultiReduce, position: int, at: Position, scope: Scope, guards: Conditions
    ) -> Expression:
        count = len(node.results)
        sources, initials = node.inputs[:count], node.inputs[count:]
        home = scope.home(names_of(at))
        names = tuple(self.fresh("reduce") for _ in sources)
        for name, initial in zip(names, initials, strict=True):
            value = self.emit(initial, self.position(()), home, ())
            home.statements.append(Declare(name, value))
        reads = tuple(Read(n, t.dtype) for n, t in zip(names, node.results, strict=True))

        def accumulate(inner: Scope, place: Position, held: Conditions) -> list[Statement]:
            elements = [self.emit(source, place, inner, held) for source in sources]
            return [combine(names, node.combiner, elements)]

        whole = [(0, extent) for extent in sources[0].shape]
        self.reduce_loops(home, whole, node.axes, at, guards, accumulate)
        for k, read in enumerate(reads):  # other results may be asked for later
            result = intern(Output, node.results[k], (node,), k)
            home.memo[result, id(at), id(guards)] = read
        return reads[position]

    def reduced_parts(self, source: Node, axes: Sequence[int]) -> Iterable[Sequence[Bounds]]:
        """Bounds of what to reduce one after another: parts joined along `axes`, or the whole."""
        parts = find_pieces(source, self.pieces)
        whole = [((0, extent),) for extent in source.shape]
        return product(*(parts[k] if k in axes else whole[k] for k in range(len(whole))))

    def reduce_loops(
        self,
        home: Scope,
        bounds: Sequence[Bounds],
        axes: Sequence[int],
        at: Position,
        guards: Conditions,
        accumulate: Callable[[Scope, Position, Conditions], list[Statement]],
    ) -> None:
        """Append loops over the `bounds` of `axes` to `home`; `accumulate` gives the innermost
        statements. Where the index is only valid under guards, the loops stand inside an `if`."""
        if any(bounds[axis][0] == bounds[axis][1] for axis in axes):
            return
        bound = bound_names(home)
        held = tuple(c for c in guards if index_free(c.index) <= bound)
        held = self.guards.setdefault(held, held)
        scopes = [Scope(home, None, home.depth, held)] if held else []
        place: list[Index] = list(at)
        inner = scopes[-1] if scopes else home
        for axis in axes:
            start, stop = bounds[axis]
            if stop - start == 1:
                place.insert(axis, ZERO + start)
                continue
            var = Var(letter(inner.depth), stop - start)
            inner = Scope(inner, var, inner.depth + 1)
            scopes.append(inner)
            place.insert(axis, index(var) + start)
        statements = accumulate(inner, self.position(tuple(place)), held)
        inner.statements.extend(statements)
        for scope in reversed(scopes):
            assert scope.parent is not None
            if scope.var is None:
                scope.parent.statements.append(If(scope.conditions, scope.body()))
            else:
                scope.parent.statements.append(Loop(scope.var, Axis.REDUCE, scope.body()))


class LoweringAround(Lowering):
    """Lowers what comes before and after `node`, whose own values are what `read` gives: `seen`
    are the positions at which it was asked."""

    def __init__(
        self,
        kernel: Kernel,
        node: Node,
        read: Callable[[Position], Expression] | None = None,
        tables: Tables | None = None,
    ) -> None:
        super().__init__(kernel, tables)
        self.node, self.read = node, read
        self.seen: set[Position] = set()

    def value_after(
        self, own: Expression, node: Node, at: Sequence[Index], guards: Conditions = ()
    ) -> Expression:
        """The value of `node`, where that in the middle is `own`."""
        self.read = lambda _: own
        return self.value(node, at, guards)

    def compute(self, node: Node, at: Position, scope: Scope, guards: Conditions) -> Expression:
        if node is not self.node:
            return super().compute(node, at, scope, guards)
        assert self.read is not None
        self.seen.add(at)
        return self.read(at)


def names_of(at: Position) -> frozenset[Name]:
    return NOTHING.union(*map(index_free, at))


def bound_names(scope: Scope | None) -> frozenset[Name]:
    bound: set[Name] = set()
    while scope is not None:
        if scope.var is not None:
            bound.add(scope.var)
        bound.update(s.name for s in scope.statements if isinstance(s, Declare))
        scope = scope.parent
    return frozenset(bound)


def lower_fused(kernel: Kernel) -> LoopProgram:
    """The LoopProgram of a fused kernel, before any move."""
    lowering = Lowering(kernel)
    if kernel.in_place:
        cut_alike(kernel.graph.results, lowering.pieces)
    for node, memory in zip(kernel.graph.results, lowering.writes, strict=True):
        lowering.store(node, memory)
    return lowering.program(lowering.root.body())
