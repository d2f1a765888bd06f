"""The expansions of `codegen/math/expand.py`, evaluated in NumPy against wider arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from tinyhlo.codegen.expressions import Apply, Expression, Literal, Rarely, Read
from tinyhlo.codegen.math.expand import expand
from tinyhlo.codegen.math.tables import LOOKUPS
from tinyhlo.codegen.walks import walk
from tinyhlo.ir.dtypes import BF16, F32, F64, DType
from tinyhlo.ir.meaning import evaluate as meaning
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.target import Target

AVX2 = named_target("x86-64-v3", 1)
Array = np.ndarray
INF, NAN = np.inf, np.nan


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b = high + low exactly (Dekker), for moderate exponents."""

    def split(x: Array) -> tuple[Array, Array]:
        t = x * 134217729.0
        high = t - (t - x)
        return high, x - high

    product = a * b
    (a1, a2), (b1, b2) = split(a), split(b)
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded once (in f64: to within a hair of it)."""
    if a.dtype == np.float32:
        return (a.astype(np.float64) * b + c).astype(np.float32)
    product, low = two_product(a, b)
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    exact = total + (error + low)
    return np.where(np.isfinite(exact), exact, product + c)


def evaluate(root: Expression, values: dict[str, Array]) -> Array:
    """The NumPy value of an expression of Reads, Literals and Applys."""
    size = next(iter(values.values())).shape
    done: dict[Expression, Array] = {}

    def visit(e: Expression) -> Array:
        if e not in done:
            done[e] = compute(e)
        return done[e]

    def compute(e: Expression) -> Array:
        match e:
            case Read(name=name):
                return values[name]
            case Literal(bits=bits, dtype=dtype):
                raw = bits.to_bytes(dtype.itemsize, "little")
                return np.broadcast_to(np.frombuffer(raw, dtype.numpy)[0], size)
            case Apply(op=Op.FMA, arguments=arguments):
                return fma(*map(visit, arguments))
            case Apply(op=Op.SCALE, arguments=(x, n)):
                return scaled(visit(x), visit(n))
            case Apply(op=op, arguments=(k,), dtype=dtype) if op in LOOKUPS:
                return np.array(LOOKUPS[op], dtype.numpy)[visit(k) & 15]
            case Apply(op=op, arguments=arguments, dtype=dtype):
                return meaning(op, [visit(a) for a in arguments], dtype)
            case Rarely(condition=condition, inputs=inputs, value=value, usual=usual):
                given = {f"input{k}": visit(e) for k, e in enumerate(inputs)}
                return np.where(visit(condition), evaluate(value, given), visit(usual))
        raise TypeError(e)

    with np.errstate(all="ignore"):
        return visit(root)


def scaled(x: Array, n: Array) -> Array:
    """x * 2^floor(n) rounded once, NaN where n is."""
    whole = np.floor(np.nan_to_num(n)).astype(np.int32)
    return np.where(np.isnan(n), x.dtype.type(NAN), np.ldexp(x, whole))


def run(op: Op, dtype: DType, *arguments: Array, target: Target = AVX2) -> Array:
    reads = tuple(Read(f"x{k}", dtype) for k in range(len(arguments)))
    expression = expand(op, reads, dtype, target)
    assert expression is not None
    return evaluate(expression, {f"x{k}": value for k, value in enumerate(arguments)})


def size_of(expression: Expression) -> int:
    """Distinct primitives, without those of functions that are rarely called."""
    return sum(isinstance(e, Apply) for e in walk([expression]))


def ulps(found: Array, exact: Array, dtype: type) -> Array:
    """Distance in units of the last place of the rounded exact value; specials must agree."""
    with np.errstate(all="ignore"):
        return _ulps(found, exact, exact.astype(dtype), dtype)


def _ulps(found: Array, exact: Array, rounded: Array, dtype: type) -> Array:
    special_value = ~np.isfinite(rounded) | ~np.isfinite(found)
    same = (np.isnan(found) & np.isnan(rounded)) | (found == rounded)
    unit = np.spacing(np.abs(np.where(special_value, dtype(1), rounded)))
    distance = np.abs(found.astype(exact.dtype) - exact) / unit
    # where the exact value is within half a unit of overflow, either answer is right
    return np.where(special_value, np.where(same, 0.0, np.inf), distance).astype(np.float64)


def dense(dtype: type, low: float, high: float) -> Array:
    """Both signs, all magnitudes from `low` to `high`, and the special numbers."""
    generator = np.random.default_rng(0)
    exponents = generator.uniform(np.log2(low), np.log2(high), 200_000)
    values = np.exp2(exponents).astype(dtype)
    linear = generator.uniform(0, min(high, 100.0), 100_000).astype(dtype)
    small = generator.uniform(0, 2.0, 100_000).astype(dtype)
    tiny = np.finfo(dtype).smallest_subnormal
    edges = np.array([0, 1, 0.5, 2, tiny, tiny * 5, np.finfo(dtype).tiny], dtype)
    everything = np.concatenate([values, linear, small, edges, [dtype(INF), dtype(NAN)]])
    return np.concatenate([everything, -everything])


@dataclass(frozen=True)
class Case:
    """At most `limit` ulp on magnitudes from `low` to `high`."""

    op: Op
    exact: Callable[[Array], Array]
    limit: float
    low: float = 1e-44
    high: float = 3e38


SINGLE = (
    Case(Op.EXP, np.exp, 1.1),
    Case(Op.EXPM1, np.expm1, 2.0),
    Case(Op.LOG, np.log, 1.1),
    Case(Op.LOG1P, np.log1p, 1.5),
    Case(Op.SIN, np.sin, 1.6),
    Case(Op.COS, np.cos, 1.6),
    Case(Op.TAN, np.tan, 3.6),
    Case(Op.TANH, np.tanh, 1.6),
    Case(Op.ERF, special.erf, 1.4),
    Case(Op.ERFC, special.erfc, 3.1),
)
DOUBLE = (
    Case(Op.EXP, np.exp, 1.1, 1e-320, 1e308),
    Case(Op.EXPM1, np.expm1, 2.0, 1e-320, 1e308),
    Case(Op.LOG, np.log, 1.1, 1e-320, 1e308),
    Case(Op.LOG1P, np.log1p, 1.5, 1e-320, 1e308),
    Case(Op.TANH, np.tanh, 2.2, 1e-320, 1e308),
    Case(Op.SIN, np.sin, 1.6, 1e-320, 1e308),
    Case(Op.COS, np.cos, 1.6, 1e-320, 1e308),
    Case(Op.TAN, np.tan, 3.6, 1e-320, 1e308),
)


@pytest.mark.parametrize(
    ("dtype", "kind", "wider"),
    [(F32, np.float32, np.float64), (F64, np.float64, np.longdouble)],
)
def test_exp_is_as_exact_where_instructions_scale_and_look_up(
    dtype: DType, kind: type, wider: type
) -> None:
    x = dense(kind, 1e-30, 1500.0)
    found = run(Op.EXP, dtype, x, target=named_target("x86-64-v4", 1))
    with np.errstate(all="ignore"):
        exact = np.exp(x.astype(wider))
    assert ulps(found, exact, kind).max() <= (1.0 if dtype is F32 else 0.7)
    assert run(Op.EXP, dtype, np.zeros(1, kind), target=named_target("x86-64-v4", 1)) == 1


@pytest.mark.parametrize(
    ("op", "exact", "limit"), [(Op.EXPM1, np.expm1, 1.5), (Op.TANH, np.tanh, 1.6)]
)
def test_differences_are_as_exact_where_instructions_look_up(
    op: Op, exact: Callable[[Array], Array], limit: float
) -> None:
    """Also next to 1/16, where the reduction begins, to the largest number, and for zeros."""
    x = np.concatenate([dense(np.float64, 1e-30, 700.0), np.linspace(-0.1, 0.1, 20_000)])
    x = np.concatenate([x, np.linspace(709.7, 709.79, 1000)])
    found = run(op, F64, x, target=named_target("x86-64-v4", 1))
    with np.errstate(all="ignore"):
        error = ulps(found, exact(x.astype(np.longdouble)), np.float64)
    assert error.max() <= limit, x[error.argmax()]
    np.testing.assert_array_equal(np.signbit(found[x == 0]), np.signbit(x[x == 0]))


@pytest.mark.parametrize("case", SINGLE, ids=lambda case: case.op.label)
def test_single_precision(case: Case) -> None:
    x = dense(np.float32, case.low, case.high)
    with np.errstate(all="ignore"):
        exact = case.exact(x.astype(np.float64))
    error = ulps(run(case.op, F32, x), exact, np.float32)
    worst = int(np.argmax(error))
    print(case.op.label, error[worst], "at", x[worst])
    assert error[worst] <= case.limit, (x[worst], exact[worst])


@pytest.mark.parametrize("case", DOUBLE, ids=lambda case: case.op.label)
def test_double_precision(case: Case) -> None:
    x = dense(np.float64, case.low, case.high)
    with np.errstate(all="ignore"):
        exact = case.exact(x.astype(np.longdouble))
    error = ulps(run(case.op, F64, x), exact, np.float64)
    worst = int(np.argmax(error))
    print(case.op.label, error[worst], "at", x[worst])
    assert error[worst] <= case.limit, (x[worst], exact[worst])


@pytest.mark.parametrize("op", [Op.SIN, Op.TANH, Op.EXPM1, Op.LOG1P, Op.ERF, Op.TAN])
def test_signed_zero(op: Op) -> None:
    zeros = np.array([0.0, -0.0], np.float32)
    assert list(np.signbit(run(op, F32, zeros))) == [False, True]


SPECIAL = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        0.5,
        -0.5,
        3.0,
        -3.0,
        INF,
        -INF,
        NAN,
        1e-40,
        -1e-40,
        3e38,
        1e30,
    ],
    np.float32,
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("op", "exact"), [(Op.POW, np.power), (Op.ATAN2, np.arctan2)])
def test_special_pairs(op: Op, exact: Callable[..., Array], dtype: type) -> None:
    a, b = (m.ravel().astype(dtype) for m in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        expected = exact(a.astype(np.longdouble), b.astype(np.longdouble))
        sign = np.signbit(expected.astype(dtype))
    found = run(op, F32 if dtype is np.float32 else F64, a, b)
    error = ulps(found, expected, dtype)
    bad = [(a[k], b[k], found[k], expected[k]) for k in np.flatnonzero(error > 2)]
    assert not bad
    number = ~np.isnan(found)
    assert (np.signbit(found) == sign)[number].all()


def test_pow_and_atan2_are_accurate() -> None:
    generator = np.random.default_rng(1)
    x = np.exp2(generator.uniform(-20, 20, 200_000)).astype(np.float32)
    y = generator.uniform(-8, 8, 200_000).astype(np.float32)
    exact = np.power(x.astype(np.float64), y.astype(np.float64))
    with np.errstate(over="ignore"):
        print("pow", (worst := ulps(run(Op.POW, F32, x, y), exact, np.float32).max()))
    assert worst <= 1.0
    x = x * np.where(generator.random(200_000) < 0.5, -1, 1).astype(np.float32)
    exact = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    print("atan2", (worst := ulps(run(Op.ATAN2, F32, y, x), exact, np.float32).max()))
    assert worst <= 2.5


def test_pow_of_f64() -> None:
    """Results of all sizes, by bases of all sizes and next to 1."""
    generator = np.random.default_rng(4)
    wide = np.exp2(generator.uniform(-1074, 1023, 100_000))
    near = 1 + generator.normal(size=100_000) * np.exp2(generator.uniform(-30, -2, 100_000))
    x = np.concatenate([wide, near, generator.uniform(0, 10, 100_000)])
    y = generator.uniform(-745, 709, x.size) / np.log(x)
    exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    print("pow", (worst := ulps(run(Op.POW, F64, x, y), exact, np.float64).max()))
    assert worst <= 1.3


def test_erf_of_f64() -> None:
    generator = np.random.default_rng(5)
    x = np.concatenate(
        [generator.uniform(0, 6.5, 2000), np.exp2(generator.uniform(-1074, 3, 1000))]
    )
    with mp.workdps(40):
        wanted = [mp.erf(mp.mpf(float(value))) for value in x]
        pairs = zip(run(Op.ERF, F64, x), wanted, strict=True)
        error = [abs(mp.mpf(float(f)) - w) / np.spacing(float(w)) for f, w in pairs]
    print("erf", max(error))
    assert max(error) <= 1.4
    ends = run(Op.ERF, F64, np.array([INF, -INF, 0.0, -0.0, NAN]))
    np.testing.assert_array_equal(ends, [1.0, -1.0, 0.0, -0.0, NAN])
    assert (np.signbit(ends) == [False, True, False, True, False])[:4].all()


def test_angles_of_f64_next_to_quarter_turns() -> None:
    """Where most digits of an angle cancel, up to the largest that is reduced here."""
    generator = np.random.default_rng(2)
    turns = np.concatenate([np.arange(1.0, 5000.0), generator.integers(1, 6 << 27, 50_000)])
    x = turns * (np.pi / 2)
    x = np.concatenate([x, np.nextafter(x, 0), np.nextafter(x, INF)])
    for op, exact, limit in ((Op.SIN, mp.sin, 1.6), (Op.COS, mp.cos, 1.6), (Op.TAN, mp.tan, 3.6)):
        some = x[:: len(x) // 1000]
        with mp.workdps(60):
            wanted = [exact(mp.mpf(float(value))) for value in some]
            found = run(op, F64, some)
            pairs = zip(found, wanted, strict=True)
            error = [abs(mp.mpf(float(f)) - w) / np.spacing(abs(float(w))) for f, w in pairs]
        assert max(error) <= limit, op


def test_atan2_of_f64() -> None:
    generator = np.random.default_rng(3)
    sizes = [np.exp2(generator.uniform(*span, 100_000)) for span in ((-4, 4), (-1074, 1024))]
    y = np.concatenate([*sizes, generator.uniform(0, 2, 100_000)])
    x = np.concatenate([*(generator.permutation(s) for s in sizes), np.ones(100_000)])
    x *= np.where(generator.random(x.size) < 0.5, -1, 1)
    wide = np.arctan2(y.astype(np.longdouble), x.astype(np.longdouble))
    error = ulps(run(Op.ATAN2, F64, y, x), wide, np.float64)
    print("atan2 f64", error.max(), "at", y[error.argmax()], x[error.argmax()])
    assert error.max() <= 2.2
    special = np.array([0.0, 1.0, 5e-324, 2e-308, 1.7e308, INF, NAN])
    a, b = (m.ravel() for m in np.meshgrid(*[np.concatenate([special, -special])] * 2))
    found, wanted = run(Op.ATAN2, F64, a, b), np.arctan2(a, b)
    assert (ulps(found, wanted.astype(np.longdouble), np.float64) <= 1).all()
    real = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[real]), np.signbit(wanted[real]))


def test_half_precision_computes_in_f32() -> None:
    x = np.linspace(-4, 4, 1000).astype(BF16.numpy)
    expected = np.tanh(x.astype(np.float64)).astype(np.float32).astype(BF16.numpy)
    assert (run(Op.TANH, BF16, x) == expected).mean() > 0.99


@pytest.mark.parametrize(("op", "limit"), [(Op.EXP, 24), (Op.TANH, 36), (Op.LOG, 40), (Op.SIN, 30)])
def test_expansions_stay_small(op: Op, limit: int) -> None:
    expression = expand(op, (Read("x", F32),), F32, AVX2)
    assert expression is not None
    assert size_of(expression) <= limit


def test_what_has_no_expansion() -> None:
    assert expand(Op.ADD, (Read("x", F32), Read("y", F32)), F32, AVX2) is None
