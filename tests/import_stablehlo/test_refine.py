"""Programs whose shapes are known only when they are called, and those for several platforms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import tinyhlo
from tests.import_stablehlo.imports import outlines
from tinyhlo.errors import ExecutionError, InvalidProgram, UnsupportedOp
from tinyhlo.import_stablehlo import import_module
from tinyhlo.import_stablehlo.artifact import read_platforms
from tinyhlo.import_stablehlo.refine import ArgumentType, DynamicShapes, refine_source
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import TensorType

pytest.importorskip("flatbuffers")


def exported(
    function: Callable[..., Any],
    shapes: list[str],
    platforms: tuple[str, ...] = ("tiny",),
    constraints: tuple[str, ...] = (),
) -> bytes:
    """`function` over f32 arguments with symbolic shapes."""
    scope = export.SymbolicScope(constraints)
    arguments = [
        jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), np.float32)
        for shape in shapes
    ]
    whole = export.export(jax.jit(function), platforms=platforms)(*arguments)
    return bytes(whole.serialize())


def load(tmp_path: Path, source: bytes) -> Any:
    path = tmp_path / "program.jax_export"
    path.write_bytes(source)
    return tinyhlo.load(path)


def everything(x: jax.Array, w: jax.Array) -> Any:
    y = jax.nn.softmax(x @ w) + jnp.arange(x.shape[0], dtype=jnp.float32)[:, None]
    values, _ = jax.lax.top_k(x.reshape(-1), x.shape[0])
    return y, jnp.concatenate([x, x]), jnp.cumsum(x, axis=0), values, jnp.sort(x, axis=0)[::-1]


def test_each_set_of_shapes_is_compiled_once(tmp_path: Path) -> None:
    program = load(tmp_path, exported(everything, ["b, 4", "4, c"]))
    assert [str(type_) for type_ in program.inputs] == ["f32[?,4]", "f32[4,?]"]
    random = np.random.default_rng(0)
    for rows, columns in ((3, 2), (5, 1), (3, 2)):
        x = random.standard_normal((rows, 4), np.float32)
        w = random.standard_normal((4, columns), np.float32)
        for ours, theirs in zip(program(x, w), everything(x, w), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert len(program.executables) == 2


def test_loops_and_calls_of_one_function_with_several_shapes(tmp_path: Path) -> None:
    @jax.jit
    def inner(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, x.shape[0], lambda k, y: y.at[k].multiply(2.0), x)

    def outer(x: jax.Array) -> jax.Array:
        return inner(x).sum() + inner(jnp.concatenate([x, x])).sum()

    x = np.arange(7, dtype=np.float32)
    (y,) = load(tmp_path, exported(outer, ["n"]))(x)
    np.testing.assert_allclose(y, outer(x))


def test_assertions_speak(tmp_path: Path) -> None:
    source = exported(lambda x: x * 2, ["b"], constraints=("mod(b, 2) == 0", "b >= 4"))
    program = load(tmp_path, source)
    assert program(np.ones(6, np.float32))[0].shape == (6,)
    with pytest.raises(ExecutionError, match=r"Expected 'mod\(b, 2\)' to be equal to 0"):
        program(np.ones(5, np.float32))
    with pytest.raises(ExecutionError, match="symbolic shape constraint b >= 4"):
        program(np.ones(2, np.float32))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected 1 arguments, got 0"),
        ((np.ones(3, np.float32),), r"must be f32\[\?,4\], got f32\[3\]$"),
        ((np.ones((3, 5), np.float32),), r"got f32\[3,5\]"),
        ((np.ones((3, 4)),), r"got f64\[3,4\]: convert it to float32"),
        ((np.ones((0, 4), np.float32),), "Expected value >= 1 for dimension variable 'b'"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: tuple[Any, ...], message: str) -> None:
    program = load(tmp_path, exported(lambda x: x.T + 1, ["b, 4"]))
    with pytest.raises(ExecutionError, match=message):
        program(*arguments)


def test_importing_without_shapes_names_the_arguments() -> None:
    with pytest.raises(DynamicShapes, match=r"dynamic argument 0 on f32\[\?,4\]") as caught:
        import_module(exported(lambda x: x + 1, ["b, 4"]))
    assert caught.value.arguments == (ArgumentType((None, 4), F32),)


def test_shapes_that_follow_from_static_arguments() -> None:
    """What is dynamic only inside is refined without being asked."""
    graph = import_module(
        """func.func @main(%x: tensor<6xf32>) -> tensor<2x3xf32> {
          %s = stablehlo.constant dense<[2, 3]> : tensor<2xi32>
          %r = stablehlo.dynamic_reshape %x, %s : (tensor<6xf32>, tensor<2xi32>) -> tensor<?x?xf32>
          %c = stablehlo.convert %r : (tensor<?x?xf32>) -> tensor<2x3xf32>
          return %c : tensor<2x3xf32> }"""
    ).graph
    assert graph.results[0].shape == (2, 3)


# name -> arguments and result, with an operand for the shape, without
KNOWN_OPERANDS = {
    "pad": (
        "(%x: tensor<4xf32>, %f: tensor<f32>) -> tensor<7xf32>",
        """%l = stablehlo.constant dense<1> : tensor<1xi64>
        %h = stablehlo.constant dense<2> : tensor<1xi64>
        %i = stablehlo.constant dense<0> : tensor<1xi64>
        %r = stablehlo.dynamic_pad %x, %f, %l, %h, %i : (tensor<4xf32>, tensor<f32>,
          tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<7xf32>
        return %r : tensor<7xf32>""",
        """%r = stablehlo.pad %x, %f, low = [1], high = [2], interior = [0]
          : (tensor<4xf32>, tensor<f32>) -> tensor<7xf32> return %r : tensor<7xf32>""",
    ),
    "slice": (
        "(%x: tensor<8xf32>) -> tensor<3xf32>",
        """%a = stablehlo.constant dense<1> : tensor<1xi64>
        %l = stablehlo.constant dense<7> : tensor<1xi64>
        %s = stablehlo.constant dense<2> : tensor<1xi64>
        %r = stablehlo.real_dynamic_slice %x, %a, %l, %s : (tensor<8xf32>, tensor<1xi64>,
          tensor<1xi64>, tensor<1xi64>) -> tensor<3xf32> return %r : tensor<3xf32>""",
        """%r = stablehlo.slice %x [1:7:2] : (tensor<8xf32>) -> tensor<3xf32>
        return %r : tensor<3xf32>""",
    ),
    "size": (
        "(%x: tensor<5xf32>) -> tensor<i32>",
        """%r = stablehlo.get_dimension_size %x, dim = 0 : (tensor<5xf32>) -> tensor<i32>
        return %r : tensor<i32>""",
        "%r = stablehlo.constant dense<5> : tensor<i32> return %r : tensor<i32>",
    ),
    "broadcast": (
        "(%x: tensor<4xf32>, %s: tensor<2xi64>) -> tensor<2x4xf32>",
        """%r = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [1]
          : (tensor<4xf32>, tensor<2xi64>) -> tensor<2x4xf32> return %r : tensor<2x4xf32>""",
        """%r = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
        return %r : tensor<2x4xf32>""",
    ),
}


@pytest.mark.parametrize("name", KNOWN_OPERANDS)
def test_operands_that_say_a_known_shape(name: str) -> None:
    signature, dynamic, static = KNOWN_OPERANDS[name]
    assert outlines(dynamic, signature) == outlines(static, signature)


def test_shapes_that_depend_on_values_are_refused() -> None:
    with pytest.raises(UnsupportedOp, match="dynamic_reshape"):
        import_module(
            """func.func @main(%x: tensor<6xf32>, %s: tensor<2xi32>) -> tensor<?x?xf32> {
              %r = stablehlo.dynamic_reshape %x, %s
                   : (tensor<6xf32>, tensor<2xi32>) -> tensor<?x?xf32>
              return %r : tensor<?x?xf32> }"""
        )


def test_shapes_that_do_not_fit() -> None:
    source = """func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x3xf32>) -> tensor<?x?xf32> {
      %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
           : (tensor<?x4xf32>, tensor<?x3xf32>) -> tensor<?x?xf32>
      return %r : tensor<?x?xf32> }"""
    with pytest.raises(InvalidProgram, match="does not fit the shapes of its arguments"):
        refine_source(source, [TensorType((2, 4), F32), TensorType((5, 3), F32)])


@pytest.mark.parametrize(
    ("platforms", "shown"),
    [(("tiny",), 3.0), (("cpu", "tiny"), 3.0), (("cuda", "cpu"), 2.0), (("tpu", "cuda"), 7.0)],
)
def test_platforms(tmp_path: Path, platforms: tuple[str, ...], shown: float) -> None:
    """tiny's own branch is preferred, then the CPU's, then the first."""

    def f(x: jax.Array) -> jax.Array:
        branches = {"tpu": 7.0, "cpu": 2.0, "tiny": 3.0}
        return jax.lax.platform_dependent(
            x, default=lambda x: x, **{k: (lambda x, v=v: x * v) for k, v in branches.items()}
        )

    source = exported(f, ["b"], platforms)
    assert read_platforms(source) == platforms
    (y,) = load(tmp_path, source)(np.ones(2, np.float32))
    assert y.tolist() == [shown, shown]


@pytest.mark.parametrize("platforms", [("tiny",), ("tiny", "cpu")])
def test_deserialized_and_called_on_tiny(platforms: tuple[str, ...]) -> None:
    program = export.deserialize(bytearray(exported(everything, ["b, 4", "4, c"], platforms)))
    for rows in (2, 5):
        x = np.full((rows, 4), 0.5, np.float32)
        with jax.default_device(jax.devices("tiny")[0]):
            direct = program.call(x, np.ones((4, 3), np.float32))
            inside = jax.jit(lambda x: program.call(x * 2, x.T)[0] + 1)(x)
        assert direct[0].devices() == {jax.devices("tiny")[0]}
        for ours, theirs in zip(direct, everything(x, np.ones((4, 3))), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(inside, everything(x * 2, x.T)[0] + 1, rtol=1e-5, atol=1e-6)


def test_an_artifact_for_the_cpu_runs_on_tiny_when_the_check_is_disabled() -> None:
    check = export.DisabledSafetyCheck.platform()
    whole = export.export(jax.jit(jnp.sin), platforms=("cpu",), disabled_checks=[check])
    program = export.deserialize(whole(jax.ShapeDtypeStruct((3,), np.float32)).serialize())
    with jax.default_device(jax.devices("tiny")[0]):
        np.testing.assert_allclose(program.call(np.ones(3, np.float32)), np.sin(np.ones(3)))
