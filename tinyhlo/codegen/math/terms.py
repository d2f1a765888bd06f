"""What formulas over expressions need besides operators (`ir/operators.py`).

polynomial(x, (1.0, 0.5))          # x.fma(0.5, 1.0): nothing is simplified or evaluated here
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinyhlo.codegen.expressions import Expression, Rarely, Read
from tinyhlo.ir.dtypes import F32, F64

Term = Expression
MAGIC = {F32: 1.5 * 2.0**23, F64: 1.5 * 2.0**52}  # added, leaves an integer in the low bits


def rarely(
    condition: Term, name: str, rule: Callable[..., Term], inputs: tuple[Term, ...], usual: Term
) -> Term:
    """`rule` of the inputs where `condition` holds, else `usual`. The rule becomes a function
    `name` of its own: it costs nothing but the question where no lane needs it."""
    reads = (Read(f"input{k}", given.dtype) for k, given in enumerate(inputs))
    return Rarely(name, condition, inputs, rule(*reads), usual)


def polynomial(x: Term, coefficients: Sequence[float]) -> Term:
    """c0 + c1 x + c2 x^2 + ... by Horner's rule."""
    *rest, last = coefficients
    total = x.constant(last)
    for coefficient in reversed(rest):
        total = total.fma(x, coefficient)
    return total


def paired(x: Term, coefficients: Sequence[float]) -> Term:
    """The same in pairs (Estrin's scheme): as many steps as the logarithm of the length, where
    other work does not fill the waiting of Horner's rule."""
    terms = [x.constant(coefficient) for coefficient in coefficients]
    while len(terms) > 1:
        pairs = [high.fma(x, low) for low, high in zip(terms[::2], terms[1::2], strict=False)]
        x = x * x
        if len(terms) % 2:
            pairs[-1] = terms[-1].fma(x, pairs[-1])
        terms = pairs
    return terms[0]
