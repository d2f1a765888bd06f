"""Values that computed indices share: written out once, rewritten once.

x[a] + x[a + 1] is an index in which `a` is such a sum itself: as a tree it doubles at each level.
"""

from __future__ import annotations

import pytest

from tinyhlo.codegen import expressions
from tinyhlo.codegen.expressions import Expression, Load, Memory, as_index
from tinyhlo.codegen.loops import LoopProgram, Store
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.index import ZERO, Index, Var, constant, index

DEPTH = 14
TABLE = Memory("x", I32, 100)


def chain(start: Index) -> Expression:
    value = Load(TABLE, start)
    for _ in range(DEPTH):
        place = as_index(value, (0, 40))
        value = Load(TABLE, place + as_index(Load(TABLE, place + 1), (0, 40)))
    return value


def test_they_are_named_once() -> None:
    result = Memory("y", I32, 1)
    store = Store(result, ZERO, chain(ZERO))
    text = str(LoopProgram("chain", (TABLE,), (result,), (store,)))
    assert text.count(" = ") <= 2 * DEPTH + 1
    assert len(text) < 100 * DEPTH


def test_a_variable_is_replaced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Expression] = []
    original = expressions.substitute_expression

    def counted(root: Expression, *rest: object) -> Expression:
        calls.append(root)
        return original(root, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(expressions, "substitute_expression", counted)
    i = Var("i", 4)
    assert chain(index(i)).substitute({i: constant(2)}) is chain(constant(2))
    assert len(calls) <= 4 * DEPTH
