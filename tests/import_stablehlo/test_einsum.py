"""einsum, unary_einsum and torch_index_select, which JAX itself does not write, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.plugs import interpret
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.errors import UnsupportedOp
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Reduce
from tinyhlo.ir.simplify import simplify

NAMES = {"float32": "f32", "int32": "i32", "bool": "i1", "complex64": "complex<f32>"}
NAMES |= {"bfloat16": "bf16", "int8": "i8", "uint8": "ui8", "int64": "i64"}


def type_of(array: np.ndarray) -> str:
    return f"tensor<{'x'.join((*map(str, array.shape), NAMES[array.dtype.name]))}>"


def program(op: str, attributes: str, operands: list[np.ndarray], result: np.ndarray) -> str:
    names = [f"%x{k}" for k in range(len(operands))]
    types, made = [*map(type_of, operands)], type_of(result)
    params = ", ".join(f"{name}: {type_}" for name, type_ in zip(names, types, strict=True))
    return f"""func.func @main({params}) -> {made} {{
      %0 = "stablehlo.{op}"({", ".join(names)}) {{{attributes}}} : ({", ".join(types)}) -> {made}
      return %0 : {made} }}"""


def einsum_of(config: str, *operands: np.ndarray, shape: tuple[int, ...] | None = None) -> str:
    op = "unary_einsum" if len(operands) == 1 else "einsum"
    result = np.einsum(config, *operands) if shape is None else np.empty(shape, np.float32)
    return program(op, f'einsum_config = "{config}"', [*operands], result)


def drawn(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    values = np.random.default_rng(sum(shape)).integers(-3, 4, (2, *shape))
    return (values[0] + 1j * values[1] if dtype is np.complex64 else values[0]).astype(dtype)


def check(text: str, operands: list[np.ndarray], expected: np.ndarray) -> None:
    """Sums of small integers are exact."""
    for found in (*interpret(text, operands), *compile_module(text, Config(cache=0))(*operands)):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


PAIRS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "ij,jk->ki": ((3, 4), (4, 5)),
    "bij,kbj->ikb": ((2, 3, 4), (5, 2, 4)),
    "ij,jk->k": ((3, 4), (4, 5)),
    "ij,kl->jk": ((3, 4), (2, 5)),
    "ij,jk": ((3, 4), (4, 5)),
    "i,j->ji": ((3,), (4,)),
    ",ij->j": ((), (3, 4)),
    "ij,ij->": ((3, 4), (3, 4)),
    "ii,ij->ij": ((4, 4), (4, 5)),
    "iji,ik->jk": ((4, 3, 4), (4, 5)),
    "...ij,...jk->ik...": ((2, 3, 4), (2, 4, 5)),
    "...ij,jk->...ik": ((2, 6, 3, 4), (4, 5)),
    "...i,...i->...": ((2, 1, 3), (4, 3)),
    "ij,jk->ik": ((3, 1), (4, 5)),
    "ij,ij->ij": ((1, 4), (3, 1)),
}


@pytest.mark.parametrize("config", PAIRS)
def test_einsum(config: str) -> None:
    operands = [drawn(*shape) for shape in PAIRS[config]]
    check(einsum_of(config, *operands), operands, np.einsum(config, *operands))


@pytest.mark.parametrize("dtype", [np.complex64, np.int32, np.bool_, ml_dtypes.bfloat16])
@pytest.mark.parametrize("config", ["ij,jk->ki", "ij,jk->k"])
def test_einsum_of_other_types(config: str, dtype: type) -> None:
    operands = [drawn(3, 4, dtype=dtype), drawn(4, 5, dtype=dtype)]
    wide = np.float32 if dtype is ml_dtypes.bfloat16 else dtype
    expected = np.einsum(config, *(x.astype(wide) for x in operands)).astype(dtype)
    text = program("einsum", f'einsum_config = "{config}"', operands, expected)
    check(text, operands, expected)


ONES = {
    "ij->j": (3, 4),
    "ij->ji": (3, 4),
    "iij->ji": (3, 3, 4),
    "ii->": (4, 4),
    "...i->...": (2, 3),
}


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("config", ONES)
def test_unary_einsum(config: str, dtype: type) -> None:
    operand = drawn(*ONES[config], dtype=dtype)
    check(einsum_of(config, operand), [operand], np.einsum(config, operand))


def test_einsum_is_one_product() -> None:
    """What only one operand has is summed before it, not with it."""
    graph = simplify(import_module(einsum_of("ij,jk->k", drawn(30, 40), drawn(40, 50))).graph)
    sums = sorted(node.inputs[0].shape for node in graph.nodes() if isinstance(node, Reduce))
    assert sums == [(30, 40), (50, 40)]


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ("ij,jk,kl->il", "wants 3 operands"),
        ("ijk,kl->il", "'ijk' are no labels of 2 axes"),
        ("ij,jk->il", "each label of an einsum's result"),
        ("ij,jk->ii", "each label of an einsum's result"),
        ("ij,ik->jk", "axes 'i' have 3 and 4 elements"),
    ],
)
def test_einsums_that_do_not_fit(config: str, hint: str) -> None:
    with pytest.raises(UnsupportedOp, match=hint):
        import_module(einsum_of(config, drawn(3, 4), drawn(4, 5), shape=(3, 5)))


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
PLACES = np.array([[2, -1, 9], [1, 0, 2]], np.int32)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.int8])
@pytest.mark.parametrize(("axis", "batch"), [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1)])
def test_torch_index_select(axis: int, batch: int, dtype: type) -> None:
    """Places outside are moved to the nearest inside, as XLA does."""
    x, places = X.astype(dtype), PLACES.clip(0, X.shape[axis] - 1)
    if batch:
        expected = np.stack([x[k].take(places[k], axis - 1) for k in range(2)])
    else:
        expected = x.take(places, axis)
    attributes = f"dim = {axis} : i64, batch_dims = {batch} : i64"
    text = program("torch_index_select", attributes, [x, PLACES], expected)
    check(text, [x, PLACES], expected)


def test_torch_index_select_of_one_for_each() -> None:
    expected = np.take_along_axis(X, PLACES.clip(0, 3)[:, :, None], 2)[:, :, 0]
    text = program("torch_index_select", "dim = 2, batch_dims = 2", [X, PLACES], expected)
    check(text, [X, PLACES], expected)


def test_torch_index_select_along_an_axis_of_the_batch() -> None:
    text = program("torch_index_select", "dim = 0, batch_dims = 1", [X, PLACES], X)
    with pytest.raises(UnsupportedOp, match="0 <= batch_dims <= dim"):
        import_module(text)
