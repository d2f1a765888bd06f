"""What an expression consists of: its operands, its indices, and what those are computed from.

operands(x[i] + 1)            ->  (x[i], 1)
parts(x[idx[i]])              ->  (idx[i],)          # Data in an index
walk([a * a])                 ->  a * a, a           # each once
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tinyhlo.codegen.expressions import Apply, Expression, Guard, IndexValue, Load, Rarely
from tinyhlo.ir.index import Data, Index, Quotient, Remainder
from tinyhlo.ir.ops import FUNCTIONS

FUNCTION_OPS = 16  # that one is about


def operands(e: Expression) -> tuple[Expression, ...]:
    """The values that a value is computed from; what an index has in it is not among them."""
    if type(e) is Apply:  # of every expression of every walk: `match` takes three times as long
        return e.arguments
    match e:
        case Guard(value=value, otherwise=otherwise):
            return (value, otherwise)
        case Rarely(condition=condition, inputs=inputs, usual=usual):
            return (condition, usual, *inputs)
        case _:
            return ()


def arguments(e: Expression) -> tuple[Expression, ...]:
    """The values that are computed whenever a value is: not what stands under a guard."""
    return e.arguments if isinstance(e, Apply) else ()


def places(e: Expression) -> tuple[Index, ...]:
    """The indices that an expression itself has."""
    match e:
        case Load(index=index) | IndexValue(index=index):
            return (index,)
        case Guard(conditions=conditions):
            return tuple(c.index for c in conditions)
        case _:
            return ()


def computed_in(index: Index) -> Iterator[Expression]:
    """The values that an index has in it as Data."""
    for atom, _ in index.terms:
        match atom:
            case Quotient(data=data) | Remainder(data=data):
                yield from data
            case Data(value=value):
                yield value
            case _:
                pass


def parts(e: Expression) -> tuple[Expression, ...]:
    """Its operands and what its indices are computed from."""
    if type(e) is Apply:
        return e.arguments
    return (*operands(e), *(value for index in places(e) for value in computed_in(index)))


def walk(
    roots: Iterable[Expression],
    into: Callable[[Expression], bool] = lambda _: True,
    below: Callable[[Expression], Iterable[Expression]] = operands,
) -> Iterator[Expression]:
    """The expressions that `roots` consist of, each once, as far as `into` holds."""
    pending, seen = list(roots), set[Expression]()
    while pending:
        e = pending.pop()
        if e not in seen and into(e):
            seen.add(e)
            yield e
            pending += below(e)


def work_of(values: Iterable[Expression]) -> int:
    """About how many ops computing them all takes."""
    ops = [e.op for e in walk(values, below=parts) if isinstance(e, Apply)]
    return sum(FUNCTION_OPS if op in FUNCTIONS else 1 for op in ops)


def loads_of(root: Expression) -> list[Load]:
    """Loads anywhere in an expression."""
    return [e for e in walk([root], lambda e: e.loads > 0) if isinstance(e, Load)]


def all_loads(roots: Iterable[Expression]) -> list[Load]:
    """Those of indices too."""
    return [e for e in walk(roots, lambda e: e.loads > 0, parts) if isinstance(e, Load)]


def plain_loads(roots: Iterable[Expression]) -> list[Load]:
    """Those that are made whenever the values are computed: none under a guard."""
    return [e for e in walk(roots, below=arguments) if isinstance(e, Load)]
