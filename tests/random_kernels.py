"""Random programs in the shapes of real ones, large enough for every move of code generation.

    graph, arguments = random_kernels(seed)

Each value has named axes, as in einsum: two values are combined over the union of their axes in a
random order, products are summed over some of them, and there are softmaxes, windows, scans,
choices by position, splits and merges of axes, and loops around all that. Extents are odd and even,
below and above a vector. Values stay moderate and every step is continuous, so that what generated
code gives differs from the interpreter by rounding alone; `tolerance` measures how much that is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tinyhlo.ir import build, dtypes
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op

SHORT = (1, 2, 2, 3, 3, 4, 5, 6, 7, 8)
LONG = (9, 12, 16, 17, 31, 33, 64, 100, 130, 257)
AXES = 5
FLOATS = (dtypes.F32, dtypes.F32, dtypes.F32, dtypes.F64, dtypes.BF16, dtypes.F16)
DTYPES = (*FLOATS, dtypes.I32, dtypes.I8)
MOST_ELEMENTS = 1 << 15
MOST_PRODUCTS = 1 << 19  # of a contraction, before it is summed
TRIPS = 3


@dataclass(frozen=True)
class Value:
    """A node whose axis k is called `axes[k]`."""

    node: Node
    axes: tuple[int, ...]


class Maker:
    """Makes one program; `extents[a]` is the length of the axis called a."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.dtype: DType = self.pick(DTYPES)
        short = self.random.random()
        self.extents = [
            self.pick(SHORT if self.random.random() < short else LONG) for _ in range(AXES)
        ]
        self.pool: list[Value] = []

    def pick(self, options: Sequence):  # type: ignore[no-untyped-def,type-arg]
        return options[int(self.random.integers(len(options)))]

    def some(self, axes: Sequence[int]) -> tuple[int, ...]:
        """A few of the axes in a random order."""
        order = self.random.permutation(np.asarray(axes, int))
        return tuple(int(a) for a in order[: self.random.integers(len(order) + 1)])

    def shape(self, axes: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.extents[a] for a in axes)

    def size(self, axes: Sequence[int]) -> int:
        return prod(self.shape(axes))

    def axis(self, extent: int) -> int:
        self.extents.append(extent)
        return len(self.extents) - 1

    def param_axes(self) -> tuple[int, ...]:
        while True:
            axes = self.some(range(AXES))
            if axes and self.size(axes) <= MOST_ELEMENTS:
                return axes

    def over(self, value: Value, axes: Sequence[int]) -> Node:
        """`value` repeated along what it lacks of `axes`."""
        places = [axes.index(a) for a in value.axes]
        return build.broadcast(value.node, self.shape(axes), places)

    def scaled(self, value: Value, factor: float) -> Value:
        if not self.dtype.is_float:
            return value
        scale = build.full(factor, value.node.shape, self.dtype)
        return Value(build.elementwise(Op.MUL, value.node, scale), value.axes)

    def recent(self) -> Value:
        return self.pick(self.pool[-4:])

    # steps

    def unary(self, x: Value) -> Value:
        floats = (Op.NEG, Op.ABS, Op.TANH, Op.ERF, Op.ERFC, Op.SIN)
        op = self.pick(floats if self.dtype.is_float else (Op.NEG, Op.ABS, Op.NOT))
        return Value(build.elementwise(op, x.node), x.axes)

    def binary(self, x: Value) -> Value:
        y = self.pick(self.pool)
        union = {*x.axes, *y.axes}
        axes = tuple(int(a) for a in self.random.permutation(sorted(union)))
        if self.size(axes) > MOST_ELEMENTS:
            return x
        op = self.pick((Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.MIN))
        return Value(build.elementwise(op, self.over(x, axes), self.over(y, axes)), axes)

    def contract(self, x: Value) -> Value:
        """Some sum over an axis that only one factor has, or have one that neither has."""
        y = self.pick(self.pool)
        shared = [a for a in x.axes if a in y.axes]
        alone = [a for a in x.axes if a not in y.axes]
        summed, axes = set(self.some(shared)), {*x.axes, *y.axes}
        if alone and self.random.random() < 0.3:
            summed.add(self.pick(alone))
        if self.random.random() < 0.2:
            axes.add(int(self.random.integers(AXES)))
        union = tuple(int(a) for a in self.random.permutation(sorted(axes)))
        kept = tuple(a for a in union if a not in summed)
        if self.size(union) > MOST_PRODUCTS or self.size(kept) > MOST_ELEMENTS or not summed:
            return x
        product = build.elementwise(Op.MUL, self.over(x, union), self.over(y, union))
        total = build.reduce(Op.ADD, product, [k for k, a in enumerate(union) if a in summed])
        return self.scaled(Value(total, kept), self.size(tuple(summed)) ** -0.5)

    def reduce(self, x: Value) -> Value:
        summed = set(self.some(x.axes))
        op = self.pick((Op.ADD, Op.ADD, Op.MAX, Op.MIN))
        total = build.reduce(op, x.node, [k for k, a in enumerate(x.axes) if a in summed])
        factor = self.size(tuple(summed)) ** -0.5 if op is Op.ADD else 1.0
        return self.scaled(Value(total, tuple(a for a in x.axes if a not in summed)), factor)

    def normalise(self, x: Value) -> Value:
        """A softmax, or the value less its mean, over some axes."""
        over = self.some(x.axes)
        places = [k for k, a in enumerate(x.axes) if a in over]
        kept = tuple(a for a in x.axes if a not in over)

        def reduced(op: Op, node: Node) -> Node:
            return self.over(Value(build.reduce(op, node, places), kept), x.axes)

        if not self.dtype.is_float or self.random.random() < 0.5:
            return Value(build.elementwise(Op.SUB, x.node, reduced(Op.MAX, x.node)), x.axes)
        e = build.exp(build.elementwise(Op.SUB, x.node, reduced(Op.MAX, x.node)))
        return Value(build.elementwise(Op.DIV, e, reduced(Op.ADD, e)), x.axes)

    def place(self, x: Value) -> int:
        return int(self.random.integers(len(x.axes)))

    def windows(self, x: Value) -> Value:
        """Neighbours along an axis added up, or the largest of them."""
        if not x.axes:
            return x
        at, taps, stride = self.place(x), self.pick((2, 3, 5)), self.pick((1, 1, 2))
        one = [int(k == at) for k in range(len(x.axes))]
        fill = build.scalar(0, self.dtype)
        padded = build.pad(x.node, fill, [k * (taps // 2) for k in one], [k * taps for k in one])
        size = [taps if k else 1 for k in one]
        steps = [stride if k else 1 for k in one]
        seen = build.window(padded, size, steps, [1] * len(one))
        rank = len(one)
        result = build.reduce(self.pick((Op.ADD, Op.MAX)), seen, range(rank, 2 * rank))
        axes = list(x.axes)
        axes[at] = self.axis(result.shape[at])
        return Value(result, tuple(axes))

    def shift(self, x: Value) -> Value:
        if not x.axes:
            return x
        at = self.place(x)
        one = [int(k == at) for k in range(len(x.axes))]
        if self.random.random() < 0.3:
            return Value(build.flip(x.node, [at]), x.axes)
        by = self.pick((1, -1, 2))
        if x.node.shape[at] <= 2:
            return x
        low, high = [k * by for k in one], [-k * by for k in one]
        return Value(build.pad(x.node, build.scalar(1, self.dtype), low, high), x.axes)

    def part(self, x: Value) -> Value:
        """Some elements along an axis, which gets a name of its own."""
        if not x.axes:
            return x
        at = self.place(x)
        shape = x.node.shape
        start = [int(self.random.integers(n)) if k == at else 0 for k, n in enumerate(shape)]
        step = [self.pick((1, 1, 2, 3)) if k == at else 1 for k in range(len(shape))]
        node = build.slice_(x.node, start, shape, step)
        axes = list(x.axes)
        axes[at] = self.axis(node.shape[at])
        return Value(node, tuple(axes))

    def choice(self, x: Value) -> Value:
        if not x.axes:
            return x
        at = self.place(x)
        y = self.pick([v for v in self.pool if v.axes == x.axes] or [x])
        where = build.iota(x.node.shape, dtypes.I32, at)
        bound = build.full(int(self.random.integers(5)), x.node.shape, dtypes.I32)
        condition = build.elementwise(self.pick((Op.LT, Op.EQ)), where, bound)
        return Value(build.where(condition, x.node, y.node), x.axes)

    def scan(self, x: Value) -> Value:
        if not x.axes:
            return x
        op = self.pick((Op.ADD, Op.MAX))
        node = build.scan(op, x.node, self.place(x), bool(self.random.integers(2)))
        return self.scaled(Value(node, x.axes), 0.25)

    def merge(self, x: Value) -> Value:
        if len(x.axes) < 2:
            return x
        a, b, *rest = x.node.shape
        return Value(build.reshape(x.node, (a * b, *rest)), (self.axis(a * b), *x.axes[2:]))

    def split(self, x: Value) -> Value:
        for at, extent in enumerate(x.node.shape):
            for factor in (4, 3, 2):
                if extent % factor == 0 and extent > factor:
                    shape = x.node.shape
                    parts = (extent // factor, factor)
                    node = build.reshape(x.node, shape[:at] + parts + shape[at + 1 :])
                    new = tuple(map(self.axis, parts))
                    return Value(node, x.axes[:at] + new + x.axes[at + 1 :])
        return x

    def gather(self, x: Value) -> Value:
        """Rows in another order, some of them twice."""
        if not x.axes:
            return x
        at = self.place(x)
        shape = list(x.node.shape)
        count = self.pick((1, 3, 8, 20))
        rows = self.random.integers(0, shape[at], count).astype(np.int32)
        shape[at] = count
        if prod(shape) > MOST_ELEMENTS:
            return x
        picked = build.broadcast(build.constant(rows), tuple(shape), (at,))
        places = [
            picked if k == at else build.iota(tuple(shape), dtypes.I32, k)
            for k in range(len(shape))
        ]
        axes = list(x.axes)
        axes[at] = self.axis(count)
        return Value(build.gather(x.node, places), tuple(axes))

    def sort(self, x: Value) -> Value:
        if not x.axes:
            return x
        a, b = (build.param(k, (), self.dtype) for k in range(2))
        comparator = Graph((a.type, b.type), (build.elementwise(Op.LT, a, b),))
        return Value(build.sort((x.node,), self.place(x), comparator)[0], x.axes)

    def scatter(self, x: Value) -> Value:
        """Rows of two arrays, as of complex numbers, added up at places that some of them share."""
        if not x.axes:
            return x
        at = self.place(x)
        shape = list(x.node.shape)
        rows = self.random.integers(-1, 5, shape[at]).astype(np.int32)
        picked = build.broadcast(build.constant(rows), x.node.shape, (at,))
        places = [
            picked if k == at else build.iota(x.node.shape, dtypes.I32, k)
            for k in range(len(shape))
        ]
        shape[at] = 4
        target = build.full(0, tuple(shape), self.dtype)
        y = self.pick([v for v in self.pool if v.axes == x.axes] or [x])
        given = [build.param(k, (), self.dtype) for k in range(4)]
        sums = tuple(build.elementwise(Op.ADD, given[k], given[k + 2]) for k in range(2))
        combiner = Graph(tuple(node.type for node in given), sums)
        axes = list(x.axes)
        axes[at] = self.axis(4)
        parts = build.scatter((target, target), (x.node, y.node), places, combiner, False)
        return self.scaled(Value(build.elementwise(Op.SUB, *parts), tuple(axes)), 0.5)

    def update(self, x: Value) -> Value:
        """Another value written over a part of this one, at a place that is computed."""
        y = self.pick(self.pool)
        if y.axes != x.axes or not x.axes:
            return x
        stop = [max(1, n // 2) for n in x.node.shape]
        part = build.slice_(y.node, [0] * len(stop), stop)
        start = build.reduce(Op.MAX, build.iota((3,), dtypes.I32, 0), (0,))
        last = [n - k for n, k in zip(x.node.shape, stop, strict=True)]
        starts = [build.elementwise(Op.MIN, start, build.scalar(k, dtypes.I32)) for k in last]
        return Value(build.update_slice(x.node, part, starts), x.axes)

    def branch(self, x: Value) -> Value:
        """One of two values, by a number that is known when the program runs only."""
        number = build.reduce(Op.MIN, build.iota((2,), dtypes.I32, 0), (0,))
        chosen = build.elementwise(Op.MAX, build.scalar(self.pick((0, 1)), dtypes.I32), number)
        y = self.pick([v for v in self.pool if v.axes == x.axes] or [x])
        given = [build.param(k, x.node.shape, self.dtype) for k in range(2)]
        types = tuple(node.type for node in given)
        difference = build.elementwise(Op.SUB, *given)
        graphs = [Graph(types, (difference,)), Graph(types, (given[1],))]
        return Value(build.branch(chosen, (x.node, y.node), graphs)[0], x.axes)

    def cast(self, x: Value) -> Value:
        """Through another type and back."""
        if not self.dtype.is_float:
            return Value(build.cast(build.cast(x.node, dtypes.I8), self.dtype), x.axes)
        return Value(build.cast(build.cast(x.node, dtypes.F64), self.dtype), x.axes)

    def fitted(self, x: Value, axes: tuple[int, ...]) -> Node:
        """`x` with exactly these axes: what it has too much is summed."""
        extra = [k for k, a in enumerate(x.axes) if a not in axes]
        total = build.reduce(Op.ADD, x.node, extra)
        kept = Value(total, tuple(a for a in x.axes if a in axes))
        return self.over(self.scaled(kept, 0.5 / prod(x.node.shape[k] for k in extra)), axes)

    def loop(self, x: Value) -> Value:
        """A few iterations that change a state like `x` by what random steps make of it."""
        outer = self.pool
        given = [x, *(self.pick(outer) for _ in range(2))]
        counter = build.param(0, (), dtypes.I32)
        inner = [
            Value(build.param(k, v.node.shape, self.dtype), v.axes) for k, v in enumerate(given, 1)
        ]
        self.pool = list(inner)
        for _ in range(4):
            self.pool.append(self.pick(STEPS)(self, self.recent()))
        new = self.fitted(self.pool[-1], x.axes)
        state = build.elementwise(Op.ADD, inner[0].node, new)
        state = build.elementwise(Op.TANH, state) if self.dtype.is_float else state
        self.pool = outer
        types = (counter.type, *(v.node.type for v in given))
        one, last = build.scalar(1, dtypes.I32), build.scalar(TRIPS, dtypes.I32)
        following = build.elementwise(Op.ADD, counter, one)
        body = Graph(types, (following, state, *(v.node for v in inner[1:])))
        condition = Graph(types, (build.elementwise(Op.LT, counter, last),))
        start = [build.scalar(0, dtypes.I32), *(v.node for v in given)]
        return Value(build.loop(start, condition, body, TRIPS)[1], x.axes)


Step = Callable[[Maker, Value], Value]
VIEWS: tuple[Step, ...] = (Maker.shift, Maker.part, Maker.merge, Maker.split, Maker.gather)
STEPS: tuple[Step, ...] = (
    *VIEWS,
    *(Maker.unary, Maker.binary, Maker.contract, Maker.reduce, Maker.normalise) * 3,
    *(Maker.windows, Maker.choice, Maker.scan),
    *(Maker.sort, Maker.scatter, Maker.update, Maker.branch, Maker.cast),
)


def random_kernels(seed: int, size: int = 9) -> tuple[Graph, list[np.ndarray]]:
    """A graph of about `size` steps with up to three results, and arguments for it."""
    maker = Maker(seed)
    for k in range(3):
        axes = maker.param_axes()
        maker.pool.append(Value(build.param(k, maker.shape(axes), maker.dtype), axes))
    params = [value.node.type for value in maker.pool]
    for _ in range(size):
        step = Maker.loop if maker.random.random() < 0.06 else maker.pick(STEPS)
        maker.pool.append(step(maker, maker.recent()))
    arguments = [array(maker.random, type_.shape, type_.dtype) for type_ in params]
    return Graph(tuple(params), tuple(v.node for v in maker.pool[-3:])), arguments


def array(random: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    if dtype.is_float:
        return random.standard_normal(shape).astype(dtype.numpy)
    return np.asarray(random.integers(-100, 100, shape), dtype.numpy)


def tolerance(graph: Graph, arguments: Sequence[np.ndarray]) -> list[float]:
    """How far each result may be from the interpreter's: what a change of the arguments in their
    last digits makes of it, and a few roundings."""
    dtype = graph.params[0].dtype
    if not dtype.is_float:
        return [0.0] * len(graph.results)
    step = 8 * 2.0**-dtype.mantissa_bits
    signs = [np.random.default_rng(1).choice([-1, 1], x.shape) for x in arguments]
    moved = [
        (x.astype(np.float64) * (1 + step * sign)).astype(x.dtype)
        for x, sign in zip(arguments, signs, strict=True)
    ]
    pairs = zip(run_graph(graph, arguments), run_graph(graph, moved), strict=True)
    wide = [(a.astype(np.float64), b.astype(np.float64)) for a, b in pairs]
    return [
        30 * float(np.abs(a - b).max(initial=0)) + 16 * step * float(np.abs(a).max(initial=0.1))
        for a, b in wide
    ]
