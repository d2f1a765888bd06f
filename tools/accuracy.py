"""Measure the error of every transcendental function, as compiled, against mpmath.

    python -m tools.accuracy [--points 20000] [--only exp,tanh]     ->  docs/accuracy.md

Errors are in units in the last place of the exact result: half a unit is a correctly rounded
result. Points are spread over all exponents of a type (both signs), and evenly over the part of the
line where the function bends; 16-bit types are measured on every number there is.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import mpmath
import numpy as np
from jax import lax
from rich.progress import Progress

from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.runtime.processors import host_target

PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
DTYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
Array = np.ndarray[Any, Any]
EVERYWHERE = (-np.inf, np.inf)


@dataclass(frozen=True, slots=True)
class Function:
    """A function, its exact value, where it is defined, and where it bends."""

    name: str
    compiled: Callable[..., Any]
    exact: Callable[..., Any]
    domain: tuple[float, float] = EVERYWHERE
    bend: tuple[float, float] = (-20.0, 20.0)
    arity: int = 1


mp = mpmath.mp
ROOTS = (
    Function("exp", jnp.exp, mp.exp),
    Function("expm1", jnp.expm1, mp.expm1),
    Function("log", jnp.log, mp.log, (0, np.inf), (0, 20)),
    Function("log1p", jnp.log1p, mp.log1p, (-1, np.inf), (-1, 20)),
    Function("sin", jnp.sin, mp.sin),
    Function("cos", jnp.cos, mp.cos),
    Function("tanh", jnp.tanh, mp.tanh),
    Function("erf", lax.erf, mp.erf, bend=(-6, 6)),
    Function("sqrt", jnp.sqrt, mp.sqrt, (0, np.inf)),
    Function("atan2", jnp.arctan2, mp.atan2, arity=2),
    Function("pow", jnp.power, mp.power, (0, np.inf), (0, 20), arity=2),
)
COMPOSITIONS = (
    Function("tan", jnp.tan, mp.tan),
    Function("rsqrt", lax.rsqrt, lambda x: 1 / mp.sqrt(x), (0, np.inf)),
    Function("cbrt", jnp.cbrt, lambda x: mp.sign(x) * mp.cbrt(abs(x))),
    Function("logistic", lax.logistic, lambda x: 1 / (1 + mp.exp(-x))),
    Function("sinh", jnp.sinh, mp.sinh),
    Function("cosh", jnp.cosh, mp.cosh),
    Function("asin", jnp.arcsin, mp.asin, (-1, 1), (-1, 1)),
    Function("acos", jnp.arccos, mp.acos, (-1, 1), (-1, 1)),
    Function("atan", jnp.arctan, mp.atan),
    Function("asinh", jnp.arcsinh, mp.asinh),
    Function("acosh", jnp.arccosh, mp.acosh, (1, np.inf), (1, 20)),
    Function("atanh", jnp.arctanh, mp.atanh, (-1, 1), (-1, 1)),
    Function("erfc", lax.erfc, mp.erfc, (-30, 30), (-6, 28)),
    Function("erf_inv", lax.erf_inv, mp.erfinv, (-1, 1), (-1, 1)),
)
SECTIONS = (("Roots", ROOTS), ("Compositions", COMPOSITIONS))


@dataclass(frozen=True, slots=True)
class Error:
    """The largest error found, in units in the last place, and where."""

    ulps: float
    at: tuple[float, ...]
    points: int


def measure(function: Function, dtype: type, count: int) -> Error:
    """The largest error of `function` on numbers of `dtype`."""
    arguments = points(function, dtype, count)
    with jax.enable_x64(True):
        trace = jax.jit(function.compiled).trace(*arguments)
        text = trace.lower(lowering_platforms=("tiny",)).as_text()
    (found,) = compile_module(text, Config())(*arguments)
    worst = Error(0.0, (), len(found))
    for position, got in enumerate(np.asarray(found, np.float64).tolist()):
        given = tuple(float(argument[position]) for argument in arguments)
        exact = function.exact(*map(mp.mpf, given))
        ulps = distance(got, exact, dtype)
        if ulps > worst.ulps:
            worst = Error(ulps, given, len(found))
    return worst


def distance(got: float, exact: Any, dtype: type) -> float:
    """|got - exact| in units in the last place of the exact number, as `dtype` has them."""
    info = ml_dtypes.finfo(dtype)
    largest = float(info.max)
    half_beyond = largest * (1 + float(info.eps) / 4)
    if np.isnan(got):
        return np.inf
    if abs(exact) >= half_beyond or np.isinf(got):
        return 0.0 if abs(exact) >= half_beyond and np.isinf(got) else np.inf
    size = max(abs(exact), mp.mpf(float(info.tiny)))
    unit = mp.ldexp(1, int(mp.floor(mp.log(size, 2))) - info.nmant)
    return float(abs(got - exact) / unit)


def points(function: Function, dtype: type, count: int) -> list[Array]:
    """Arguments: every number of a 16-bit type, else `count` over all sizes and over the bend."""
    rng = np.random.default_rng(0)
    low, high = function.domain

    def spread() -> Array:
        info = ml_dtypes.finfo(dtype)
        if info.bits == 16 and function.arity == 1:
            numbers = np.arange(1 << 16, dtype=np.uint16).view(dtype)
        else:
            exponents = rng.uniform(info.minexp - info.nmant, info.maxexp, count // 2)
            sizes = np.exp2(exponents.astype(np.longdouble)) * rng.choice([-1, 1], count // 2)
            near = rng.uniform(*function.bend, count - count // 2)
            numbers = np.concatenate([sizes.astype(dtype), near.astype(dtype)])
            numbers = rng.permutation(numbers)
        wide = numbers.astype(np.float64)
        return numbers[np.isfinite(wide) & (wide > low) & (wide < high)]

    columns = [spread() for _ in range(function.arity)]
    if function.name == "pow":  # an exponent of any size with any base only overflows
        columns[1] = rng.uniform(-20, 20, len(columns[0])).astype(dtype)
    size = min(map(len, columns))
    return [column[:size] for column in columns]


def page(rows: Sequence[tuple[str, list[tuple[str, list[Error]]]]]) -> str:
    """The tables as Markdown."""
    target = host_target(1)
    names = " | ".join(np.dtype(dtype).name for dtype in DTYPES)
    lines = [
        "# Accuracy",
        "",
        f"Written by `make accuracy`; do not edit. {datetime.date.today()}, {target.cpu}, "
        f"jax {jax.__version__}, mpmath {mpmath.__version__}.",
        "",
        "The largest error of each function as compiled for this machine, in units in the last",
        "place (half a unit is correct rounding), and the argument where it was found. 16-bit",
        "types are measured on every number; the others on numbers of every size and, densely,",
        "where the function bends. Results that should overflow and do count as exact.",
    ]
    for title, functions in rows:
        lines += ["", f"## {title}", "", f"| function | {names} |", "|---|" + "---|" * len(DTYPES)]
        for name, errors in functions:
            cells = [
                f"{error.ulps:.2f} at {', '.join(f'{x:.6g}' for x in error.at)}" for error in errors
            ]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.accuracy", description=__doc__)
    parser.add_argument("--points", type=int, default=20_000, help="numbers per function and type")
    parser.add_argument("--only", help="comma-separated names; prints instead of writing the page")
    options = parser.parse_args(arguments)
    chosen = options.only.split(",") if options.only else None
    mp.prec = 120
    rows: list[tuple[str, list[tuple[str, list[Error]]]]] = []
    with Progress(transient=True) as progress:
        task = progress.add_task("functions", total=len(ROOTS + COMPOSITIONS) * len(DTYPES))
        for title, functions in SECTIONS:
            table: list[tuple[str, list[Error]]] = []
            for function in functions:
                if chosen is not None and function.name not in chosen:
                    continue
                errors: list[Error] = []
                for dtype in DTYPES:
                    progress.update(task, description=f"{function.name} {np.dtype(dtype).name}")
                    errors.append(measure(function, dtype, options.points))
                    progress.advance(task)
                table.append((function.name, errors))
            rows.append((title, table))
    text = page(rows)
    if chosen is None:
        PAGE.write_text(text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
