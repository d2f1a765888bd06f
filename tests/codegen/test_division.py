"""Division in lanes: integers of every type, exactly, next to whole quotients and to the largest;
floats by one divisor and by constants, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import run_native
from tinyhlo.codegen.expressions import Load, Memory, where
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.math.reciprocals import close, largest, reciprocal
from tinyhlo.codegen.math.terms import Term
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir.build import cast, constant, elementwise, expand, full, param, reshape
from tinyhlo.ir.dtypes import BF16, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.index import Var, index
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

SIZE = 6000


def both(dtype: DType, size: int) -> Graph:
    x, y = param(0, (size,), dtype), param(1, (size,), dtype)
    return Graph((x.type, y.type), (elementwise(Op.DIV, x, y), elementwise(Op.REM, x, y)))


def pairs(dtype: DType, largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Multiples of numbers of all sizes and their neighbours, the ends of the type, and zeros."""
    random = np.random.default_rng(largest % 1000)
    low, high = max(int(dtype.bounds[0]), -largest), min(int(dtype.bounds[1]), largest)
    size = np.exp2(random.uniform(0, np.log2(high), SIZE)).astype(object)
    y = [int(value) for value in size]
    x = [int(random.random() * (high // b)) * b + k % 3 - 1 for k, b in enumerate(y)]
    ends = [low, low + 1, 0, 1, 2, high - 1, high] + ([-1, -2] if low < 0 else [])
    x += [a for a in ends for _ in ends]
    y += ends * len(ends)
    sign = random.choice([-1, 1], (2, len(x))) if low < 0 else np.ones((2, len(x)), int)
    signed = [
        [int(s) * a for s, a in zip(*part, strict=True)] for part in zip(sign, (x, y), strict=True)
    ]
    a, b = (np.array([min(max(v, low), high) for v in part], dtype.numpy) for part in signed)
    return a, b


def exact(x: int, y: int, dtype: DType) -> tuple[int, int]:
    """StableHLO's division rounds to zero; by zero it gives all ones and leaves everything."""
    if y == 0:
        return -1 if dtype.bounds[0] < 0 else int(dtype.bounds[1]), x
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    rest = x - quotient * y
    return (x if quotient > dtype.bounds[1] else quotient), rest


@pytest.mark.parametrize("largest", [1 << 63, 1 << 51, 1 << 20], ids=["all", "2^51", "2^20"])
@pytest.mark.parametrize("dtype", [I8, U8, I16, U16, I32, U32, I64, U64], ids=str)
def test_quotients_and_remainders(dtype: DType, largest: int) -> None:
    x, y = pairs(dtype, largest)
    found = run_native(both(dtype, x.size), [x, y])
    wanted = [exact(int(a), int(b), dtype) for a, b in zip(x, y, strict=True)]
    for got, want in zip(found, zip(*wanted, strict=True), strict=True):
        np.testing.assert_array_equal(got, np.array(want, dtype.numpy))


def test_every_pair_of_bytes() -> None:
    x, y = (m.ravel() for m in np.meshgrid(*[np.arange(-128, 128, dtype=np.int8)] * 2))
    found = run_native(both(I8, x.size), [x, y])
    wanted = [exact(int(a), int(b), I8) for a, b in zip(x, y, strict=True)]
    for got, want in zip(found, zip(*wanted, strict=True), strict=True):
        np.testing.assert_array_equal(got, np.array(want, np.int8))


@pytest.mark.parametrize("dtype", [I8, U16, I32, I64], ids=str)
def test_lanes_are_divided_as_floats(dtype: DType) -> None:
    there = named_target("x86-64-v3", threads=2)
    loops = choose_moves(lower_fused(Kernel("divided", both(dtype, 4096))), there)
    text = str(render_kernel(loops, there, "divided", False, {}))
    assert "fdiv <" in text


def ratios(dtype: DType, size: int) -> Graph:
    """A row by one number."""
    x, y = param(0, (size,), dtype), param(1, (), dtype)
    divisor = expand(reshape(y, (1,)), (size,))
    return Graph((x.type, y.type), (elementwise(Op.DIV, x, divisor),))


def near(dtype: DType, exponents: int, size: int, seed: int) -> np.ndarray:
    """Numbers of either sign between 2^-exponents and 2^exponents."""
    random = np.random.default_rng(seed)
    digits = random.integers(1 << 50, 1 << 51, size) | 1
    with np.errstate(over="ignore"):
        sizes = random.integers(-exponents, exponents, size) - 50
        values = np.ldexp(digits.astype(np.float64), sizes)
        return (values * random.choice([-1, 1], size)).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("seed", range(40))
def test_many_dividends_by_one_divisor(dtype: DType, seed: int) -> None:
    """To the bit, with the ends of the range, zeros of both signs and denormals among them."""
    info = np.finfo(dtype.numpy)
    special = [0, -0.0, np.inf, -np.inf, np.nan, info.max, info.tiny, -info.smallest_subnormal, 1]
    x = near(dtype, 120, 5003, seed)
    x[seed * 7 : seed * 7 + len(special)] = special
    y = near(dtype, 26, 1, seed + 100)
    (got,) = run_native(ratios(dtype, x.size), [x, y.reshape(())])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got.view(np.uint8), (x / y).view(np.uint8))


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize(
    "divisor", [0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -1e-38, 1e-45, 2.0, 1 - 2**-24]
)
def test_divisors_that_have_no_useful_reciprocal(dtype: DType, divisor: float) -> None:
    x = np.concatenate([near(dtype, 120, 500, 1), np.array([0, -0.0, np.inf, np.nan], dtype.numpy)])
    y = np.array(divisor, dtype.numpy)
    (got,) = run_native(ratios(dtype, x.size), [x, y])
    with np.errstate(all="ignore"):
        want = x / y
    same_bits(got, want)


CONSTANTS = [3, 255, 0.229, 6, 7, 3**0.5, 10, 1000, 1e-3, 1e-9, 1e30, 3e38, 1e-30, 1e-38, 1e-45]
EXTREMES = [2, 0.125, 0.0, np.inf, np.nan]
# by the first no pair of parts is exact; by the second one but not the nearest
NONE, OTHER = 5.977097988128662, 1.1610206365585327


def hardest(dtype: DType, divisor: float) -> np.ndarray:
    """Dividends whose quotients lie closest to the middle between two floats, in some sizes."""
    fraction, _ = np.frexp(abs(divisor))
    digits = dtype.mantissa_bits + 1
    whole = int(np.ldexp(np.float64(fraction), digits)) if np.isfinite(divisor) and divisor else 1
    found = np.array([x for x, *_ in close(whole, digits)], np.float64)
    sizes = np.arange(-90, 70, 8)
    return np.ldexp(found[:, None], sizes[None, :] - digits).ravel().astype(dtype.numpy)


def same_bits(got: np.ndarray, want: np.ndarray) -> None:
    """And NaN where NaN is wanted."""
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), ~numbers)
    np.testing.assert_array_equal(got[numbers].view(np.uint8), want[numbers].view(np.uint8))


def by_constant(x: Node, divisor: float) -> Node:
    return elementwise(Op.DIV, x, full(divisor, x.shape, x.dtype))


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("number", [*CONSTANTS, *EXTREMES, NONE, OTHER])
def test_constant_divisors(dtype: DType, sign: int, number: float) -> None:
    """To the bit: any dividends; those known not to be small, as sums with a constant and numbers
    that were integers are; quotients of quotients."""
    divisor = float(dtype.numpy.type(sign * number))
    info = np.finfo(dtype.numpy)
    special = [0, -0.0, np.inf, np.nan, info.max, info.tiny, info.smallest_subnormal, 1, divisor]
    exponents = -info.minexp + 20  # denormals, too
    parts = near(dtype, exponents, 3000, 5), hardest(dtype, divisor), np.array(special, dtype.numpy)
    x = np.concatenate([*parts, *(-part for part in parts)])
    k = np.random.default_rng(3).integers(-1 << 31, 1 << 31, x.size).astype(np.int32)
    k[::100] = 0
    node, integer = param(0, x.shape, dtype), param(1, k.shape, I32)
    sums = elementwise(Op.SUB, node, full(1, x.shape, dtype))
    whole = cast(integer, dtype)
    dividends = node, sums, elementwise(Op.NEG, sums), whole, elementwise(Op.NEG, whole)
    quotients = (
        *(by_constant(each, divisor) for each in dividends),
        by_constant(by_constant(node, 7), divisor),
    )
    found = run_native(Graph((node.type, integer.type), quotients), [x, k])
    with np.errstate(all="ignore"):
        y, less = dtype.numpy.type(divisor), x - dtype.numpy.type(1)
        floats = k.astype(dtype.numpy)
        wanted = x / y, less / y, -less / y, floats / y, -floats / y, x / dtype.numpy.type(7) / y
    for got, want in zip(found, wanted, strict=True):
        same_bits(got, want)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize(
    "table", [(0.229, 0.224, 0.225), (NONE, 3.0, 2.0), (-7.0, 1e-45, np.inf, 0.0), tuple(CONSTANTS)]
)
def test_tables_of_divisors(dtype: DType, table: tuple[float, ...]) -> None:
    """A constant for each column."""
    divisors = np.array(table, dtype.numpy)
    x = near(dtype, 120, 4096 * divisors.size, 7).reshape(4096, divisors.size)
    x[:8] = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, 1e-30, 3e38])[:, None]
    node = param(0, x.shape, dtype)
    row = expand(reshape(constant(divisors), (1, divisors.size)), x.shape)
    graph = Graph((node.type,), (elementwise(Op.DIV, node, row),))
    (got,) = run_native(graph, [x])
    with np.errstate(all="ignore"):
        same_bits(got, x / divisors)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize(
    "table",
    [(0.229, 0.224, 0.225), (0.1, 3.0, 2.0, NONE, OTHER), (-7.0, 0.1), (1e-45, np.inf, 0.0)],
)
def test_tables_of_divisors_of_bytes(dtype: DType, table: tuple[float, ...]) -> None:
    """Zeros of both signs, and differences of a quotient and a constant, among the dividends."""
    divisors = np.array(table, dtype.numpy)
    bytes_ = np.arange(4096 * divisors.size).astype(np.uint8).reshape(4096, divisors.size)
    mean = np.linspace(0, 0.6, divisors.size).astype(dtype.numpy)
    k = param(0, bytes_.shape, U8)
    whole = cast(k, dtype)

    def row(values: np.ndarray) -> Node:
        return expand(reshape(constant(values), (1, values.size)), k.shape)

    less = elementwise(Op.SUB, by_constant(whole, 255), row(mean))
    dividends = whole, elementwise(Op.NEG, whole), less
    graph = Graph((k.type,), tuple(elementwise(Op.DIV, x, row(divisors)) for x in dividends))
    floats = bytes_.astype(dtype.numpy)
    with np.errstate(all="ignore"):
        wanted = [x / divisors for x in (floats, -floats, floats / dtype.numpy.type(255) - mean)]
        for got, want in zip(run_native(graph, [bytes_]), wanted, strict=True):
            same_bits(got, want)


@pytest.mark.parametrize("divisor", [0.1, -0.2, NONE])
def test_every_fraction_by_constants_of_three_operations(divisor: float) -> None:
    y = np.float32(divisor)
    k = np.arange(1 << 23, 1 << 24, dtype=np.int32)
    node = param(0, k.shape, I32)
    (got,) = run_native(Graph((node.type,), (by_constant(cast(node, F32), float(y)),)), [k])
    assert reciprocal(float(y), F32) is None
    np.testing.assert_array_equal(got, k.astype(np.float32) / y)


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
def test_where_two_operations_are_not_exact_known_dividends_take_three(name: str) -> None:
    """Of what is known to be neither small nor large."""
    there = named_target(name, threads=2)
    k, x = param(0, (4096,), U8), param(0, (4096,), F32)
    less = elementwise(Op.SUB, by_constant(cast(k, F32), 255), full(0.4, k.shape, F32))
    for dividend in (cast(k, F32), less, elementwise(Op.ADD, x, full(1, x.shape, F32))):
        start = x if dividend.inputs[0] is x else k
        graph = Graph((start.type,), (by_constant(dividend, 0.1),))
        loops = choose_moves(lower_fused(Kernel("divided", graph)), there)
        text = str(render_kernel(loops, there, "divided", False, {}))
        multiplied = "llvm.fma" in text and "fdiv <" not in text and "@quotient" not in text
        assert multiplied == (start is k)


def test_the_largest_that_is_known() -> None:
    memory = Memory("x", F32, 8)
    x: Term = Load(memory, index(Var("i", 8)))
    byte: Term = Load(Memory("k", U8, 8), index(Var("i", 8))).cast(F32)
    assert largest(x) == largest(byte / 0.0) == largest(byte * np.inf) == np.inf
    assert largest(byte) == 255
    assert largest(-byte / 5 - 1.0) == 52
    assert largest(byte * byte) == 255**2
    assert largest(where(byte.equals(0), byte.constant(np.nan), byte)) == np.inf
    assert largest(byte.constant(0.0) * x) == np.inf


HALVES = [0.1, 0.2, -3, 7, 255, 1000, 65504, 1e-3, 6e-8, 6e-5, 0.25, 0.0, -0.0, np.inf, np.nan]


def test_every_half_by_constants() -> None:
    x = np.arange(1 << 16).astype(np.uint16).view(np.float16)
    node = param(0, x.shape, F16)
    found = run_native(Graph((node.type,), tuple(by_constant(node, y) for y in HALVES)), [x])
    with np.errstate(all="ignore"):
        for got, y in zip(found, HALVES, strict=True):
            same_bits(got, x / np.float16(y))


def test_halves_are_multiplied() -> None:
    x = param(0, (4096,), F16)
    loops = lower_fused(Kernel("divided", Graph((x.type,), (by_constant(x, 0.2),))))
    for name in ("x86-64-v3", "x86-64-v4"):
        there = named_target(name, threads=2)
        text = str(render_kernel(choose_moves(loops, there), there, "divided", False, {}))
        assert "fdiv <" not in text


@pytest.mark.parametrize("dtype", [BF16, F16, I32, U16])
def test_constant_divisors_of_other_types(dtype: DType) -> None:
    x = param(0, (4096,), dtype)
    numbers = np.random.default_rng(1).integers(0, 100, 4096).astype(dtype.numpy)
    (got,) = run_native(Graph((x.type,), (by_constant(x, 7),)), [numbers])
    exact = numbers.astype(np.float64) / 7
    np.testing.assert_array_equal(got, exact.astype(dtype.numpy))


def test_elements_of_short_tables_are_numbers() -> None:
    """Where rows are written out nothing is loaded from the table."""
    k = param(0, (64, 3), U8)
    row = reshape(constant(np.array([3, 5, 7], np.float32)), (1, 3))
    graph = Graph((k.type,), (elementwise(Op.DIV, cast(k, F32), expand(row, k.shape)),))
    there = named_target("x86-64-v4", threads=2)
    loops = choose_moves(lower_fused(Kernel("divided", graph)), there)
    assert "table0" not in str(loops)
    assert "fdiv" not in str(render_kernel(loops, there, "divided", False, {}))


@pytest.mark.parametrize("dtype", [F32, F64])
def test_parts_of_reciprocals_are_tried(dtype: DType) -> None:
    """In 14 of 15 of all sizes a pair is exact; of short constants in all."""
    random = np.random.default_rng(2)
    divisors = np.exp2(random.uniform(-30, 30, 400)).astype(dtype.numpy)
    none = sum(reciprocal(float(divisor), dtype) is None for divisor in divisors)
    assert 10 < none < 50
    assert all(reciprocal(float(k), dtype) for k in range(3, 1024) if k & k - 1)


@pytest.mark.parametrize(
    ("name", "otherwise"), [("x86-64-v3", "fdiv <"), ("x86-64-v4", "@quotient.")]
)
def test_dividends_known_not_to_be_small_are_multiplied(name: str, otherwise: str) -> None:
    there = named_target(name, threads=2)
    x, k = param(0, (4096,), F32), param(0, (4096,), U8)
    known = elementwise(Op.ADD, x, full(1, x.shape, F32)), cast(k, F32)
    for dividend in (x, *known, elementwise(Op.MAX, known[0], full(0, x.shape, F32))):
        start = k if dividend is known[1] else x
        graph = Graph((start.type,), (by_constant(dividend, 3),))
        loops = choose_moves(lower_fused(Kernel("divided", graph)), there)
        text = str(render_kernel(loops, there, "divided", False, {}))
        assert (otherwise in text) == (dividend is x)
        assert ("llvm.fma" in text) == (dividend is not x or name == "x86-64-v4")


@pytest.mark.parametrize(
    ("dtype", "name", "holds"),
    [
        (F32, "x86-64-v4", True),
        (F64, "x86-64-v4", True),
        (F32, "x86-64-v3", False),
        (F64, "x86-64-v3", True),
        (F64, "x86-64-v2", False),
    ],
)
def test_where_dividing_is_slow_a_reciprocal_serves_all_lanes(
    dtype: DType, name: str, holds: bool
) -> None:
    there = named_target(name, threads=2)
    loops = choose_moves(lower_fused(Kernel("divided", ratios(dtype, 4096))), there)
    text = str(render_kernel(loops, there, "divided", False, {}))
    assert ("@quotient." in text) == holds


def test_a_rare_function_of_few_operations_is_inlined() -> None:
    """Not one of integers, which are taken apart lane by lane, and not one of many operations."""
    there = named_target("x86-64-v4", threads=2)
    x = param(0, (4096,), F32)
    angles = Graph((x.type,), (elementwise(Op.SIN, x),))
    for name, graph, few in [
        ("quotient", ratios(F32, 4096), True),
        (f"far_{Op.DIV.label}", both(I64, 4096), False),
        (f"far_{Op.SIN.label}", angles, False),
    ]:
        loops = choose_moves(lower_fused(Kernel("divided", graph)), there)
        functions = render_kernel(loops, there, "divided", False, {}).declarations
        texts = [text for key, text in functions.items() if key.startswith(f"@{name}.")]
        assert texts, name
        assert all(("alwaysinline" in text) == few for text in texts)
