"""Random typed graphs and inputs for property tests.

    graph, arguments = random_program(seed)

Small shapes (extents 0, 1 and more, ranks 0 to 3), all views, elementwise primitives, reduces,
scans and gathers; inputs hold NaN, infinities, both zeros and the integers' limits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinyhlo.ir import build, dtypes
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import Graph, Node, Shape
from tinyhlo.ir.ops import COMPARISONS, Op

DTYPES = (dtypes.F32, dtypes.F64, dtypes.I32, dtypes.U8, dtypes.BOOL)
FLOAT_OPS = (Op.NEG, Op.ABS, Op.FLOOR, Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MAX, Op.MIN, Op.REM)
INTEGER_OPS = (Op.NEG, Op.NOT, Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.REM, Op.MAX, Op.MIN, Op.AND)
INTEGER_OPS += (Op.OR, Op.XOR, Op.SHL, Op.SHR, Op.SAR, Op.POPCOUNT, Op.CLZ)
BOOL_OPS = (Op.NOT, Op.AND, Op.OR, Op.XOR)
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5)
SPLATS = (0.0, -0.0, 1.0, 2.0)
Random = np.random.Generator


def random_program(seed: int, size: int = 12) -> tuple[Graph, list[np.ndarray]]:
    """A graph of about `size` nodes with up to four results, and arguments for it."""
    random = np.random.default_rng(seed)
    shapes = [random_shape(random) for _ in range(3)]
    kinds = [pick(random, DTYPES) for _ in shapes]
    pool: list[Node] = [
        build.param(k, shape, dtype)
        for k, (shape, dtype) in enumerate(zip(shapes, kinds, strict=True))
    ]
    params = tuple(node.type for node in pool)
    arguments = [random_array(random, node.shape, node.dtype) for node in pool]
    for _ in range(size):
        source = pick(random, pool[-5:])
        pool.append(pick(random, STEPS)(random, source, pool))
    return Graph(params, tuple(pool[-4:])), arguments


def pick(random: Random, options):  # type: ignore[no-untyped-def]
    return options[int(random.integers(len(options)))]


def random_shape(random: Random) -> Shape:
    rank = int(random.integers(4))
    return tuple(
        int(n) for n in random.choice([0, 1, 2, 3, 4], rank, p=[0.04, 0.26, 0.3, 0.2, 0.2])
    )


def random_array(random: Random, shape: Shape, dtype: DType) -> np.ndarray:
    if dtype.kind == "bool":
        return np.asarray(random.integers(0, 2, shape), np.bool_)
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        special = np.array([limits.min, limits.max, 0, 1, 31], dtype.numpy)
        plain = np.asarray(random.integers(0, 9, shape), dtype.numpy)
        return np.where(random.random(shape) < 0.3, random.choice(special, shape), plain)
    plain = np.asarray(random.standard_normal(shape), dtype.numpy)
    special = np.asarray(random.choice(SPECIAL, shape), dtype.numpy)
    return np.where(random.random(shape) < 0.3, special, plain).astype(dtype.numpy)


def elementwise(random: Random, source: Node, pool: list[Node]) -> Node:
    floats, integers = source.dtype.is_float, source.dtype.is_integer
    op = pick(random, FLOAT_OPS if floats else INTEGER_OPS if integers else BOOL_OPS)
    if op.arity == 1:
        return build.elementwise(op, source)
    return build.elementwise(op, *two(random, source, pool))


def two(random: Random, source: Node, pool: list[Node]) -> tuple[Node, Node]:
    others = [node for node in pool if node.type == source.type]
    splat = build.full(pick(random, SPLATS), source.shape, source.dtype)
    other = pick(random, [*others, splat])
    return (source, other) if random.random() < 0.7 else (other, source)


def select(random: Random, source: Node, pool: list[Node]) -> Node:
    condition = build.elementwise(pick(random, sorted(COMPARISONS, key=str)), source, source)
    return build.where(condition, *two(random, source, pool))


def cast(random: Random, source: Node, pool: list[Node]) -> Node:
    return build.cast(source, pick(random, DTYPES))


def reshape(random: Random, source: Node, pool: list[Node]) -> Node:
    shape = list(source.shape)
    if len(shape) > 1 and random.random() < 0.5:
        shape[:2] = [shape[0] * shape[1]]
    else:
        shape.insert(int(random.integers(len(shape) + 1)), 1)
    return build.reshape(source, tuple(shape)) if len(shape) < 5 else source


def permute(random: Random, source: Node, pool: list[Node]) -> Node:
    return build.permute(source, [int(k) for k in random.permutation(len(source.shape))])


def expand(random: Random, source: Node, pool: list[Node]) -> Node:
    shape = tuple(int(random.integers(1, 4)) if n == 1 else n for n in source.shape)
    return build.expand(source, shape)


def pad(random: Random, source: Node, pool: list[Node]) -> Node:
    rank = len(source.shape)
    low, high = random.integers(-1, 3, rank).tolist(), random.integers(0, 2, rank).tolist()
    low = [max(a, 0) if n < 2 else a for a, n in zip(low, source.shape, strict=True)]
    interior = random.choice([0, 0, 0, 1], rank).tolist()
    fill = build.scalar(pick(random, SPLATS), source.dtype)
    return build.pad(source, fill, low, high, interior)


def slice_(random: Random, source: Node, pool: list[Node]) -> Node:
    start = [int(random.integers(n)) if n else 0 for n in source.shape]
    stop = [int(random.integers(a, n + 1)) for a, n in zip(start, source.shape, strict=True)]
    stop = [max(a + 1, b) if n else b for a, b, n in zip(start, stop, source.shape, strict=True)]
    return build.slice_(source, start, stop, random.integers(1, 3, len(start)).tolist())


def flip(random: Random, source: Node, pool: list[Node]) -> Node:
    return build.flip(source, [k for k in range(len(source.shape)) if random.random() < 0.5])


def reduce(random: Random, source: Node, pool: list[Node]) -> Node:
    op = Op.OR if source.dtype.kind == "bool" else pick(random, (Op.ADD, Op.MAX, Op.MIN))
    return build.reduce(op, source, [k for k in range(len(source.shape)) if random.random() < 0.4])


def scan(random: Random, source: Node, pool: list[Node]) -> Node:
    if not source.shape or source.dtype.kind == "bool":
        return source
    axis = int(random.integers(len(source.shape)))
    return build.scan(Op.MAX, source, axis, bool(random.integers(2)))


def gather(random: Random, source: Node, pool: list[Node]) -> Node:
    if not source.shape or 0 in source.shape:
        return source
    places = [random.integers(0, n, (3,)).astype(np.int32) for n in source.shape]
    return build.gather(source, [build.constant(place) for place in places])


VIEW_STEPS = (reshape, permute, expand, pad, slice_, flip)
STEPS: tuple[Callable[[Random, Node, list[Node]], Node], ...] = (
    *VIEW_STEPS,
    *(elementwise,) * 5,
    *(select, cast, reduce, scan, gather),
)
