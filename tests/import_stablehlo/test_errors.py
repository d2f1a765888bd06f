"""What cannot be read or compiled ends in one readable error."""

from __future__ import annotations

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tinyhlo.errors import InvalidProgram, UnsupportedOp
from tinyhlo.import_stablehlo import import_module

GARBAGE = [
    "",
    b"",
    "   \n",
    "not a program",
    b"\xff\xfe\x00garbage",
    b"ML\xefR",
    b"ML\xefR" + b"\x00" * 50,
    "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %b : tensor<4xf32> }",
    "func.func @main(%a: tensor<4xf32>) -> tensor<5xf32> { return %a : tensor<4xf32> }",
    "module { func.func private @f() { return } }",
    "func.func private @main(tensor<4xf32>) -> tensor<4xf32>",
    "func.func @main() { func.call @main() : () -> () return }",
]


@pytest.mark.parametrize("source", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage(source: bytes | str) -> None:
    with pytest.raises(InvalidProgram):
        import_module(source)


def test_truncated_bytes() -> None:
    module = jax.jit(lambda x: jnp.sin(x) @ x).lower(np.ones((4, 4), np.float32)).compiler_ir()
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    whole = buffer.getvalue()
    for length in range(0, len(whole), 7):
        with pytest.raises(InvalidProgram):
            import_module(whole[:length])


def test_not_an_artifact() -> None:
    with pytest.raises(InvalidProgram):
        import_module(b"\x10\x00\x00\x00" * 8)


def test_every_unsupported_op_is_named_with_its_line() -> None:
    def spectrum(x):  # type: ignore[no-untyped-def]
        kind = jax.ShapeDtypeStruct(x.shape, np.complex64)
        y = jax.ffi.ffi_call("nobody.knows_this", kind)(x)
        return jnp.abs(y) + jax.ffi.ffi_call("nor.this", x)(x)

    module = jax.jit(spectrum).lower(np.ones(8, np.float32)).compiler_ir()
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    with pytest.raises(UnsupportedOp) as caught:
        import_module(buffer.getvalue())
    items = {item.op: item for item in caught.value.items}
    first = items["stablehlo.custom_call @nobody.knows_this"]
    assert "test_errors.py" in first.location
    assert "complex<f32>" in first.types
    assert "stablehlo.custom_call @nor.this" in items


def test_regions_are_searched_too() -> None:
    text = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %r = stablehlo.while(%x = %a) : tensor<4xf32>
        cond { %t = stablehlo.constant dense<false> : tensor<i1>
               stablehlo.return %t : tensor<i1> }
        do { %y = stablehlo.custom_call @unknown(%x) : (tensor<4xf32>) -> tensor<4xf32>
             stablehlo.return %y : tensor<4xf32> }
      return %r : tensor<4xf32> }"""
    with pytest.raises(UnsupportedOp) as caught:
        import_module(text)
    names = [item.op for item in caught.value.items]
    assert names == ["stablehlo.custom_call @unknown"]


@pytest.mark.parametrize(
    ("type_", "word"),
    [("tensor<?xf32>", "dynamic")],
)  # fmt: skip
def test_argument_types(type_: str, word: str) -> None:
    with pytest.raises(UnsupportedOp, match=word):
        import_module(f"func.func @main(%a: {type_}) -> {type_} {{ return %a : {type_} }}")


def test_replicas() -> None:
    with pytest.raises(UnsupportedOp, match="divided by shardings"):
        import_module(
            "module attributes {mhlo.num_replicas = 4 : i32} { func.func @main() { return } }"
        )


@pytest.mark.parametrize("count", ["0", "-1", "1000000"])
def test_device_counts(count: str) -> None:
    with pytest.raises(InvalidProgram, match="devices"):
        import_module(
            f"module attributes {{mhlo.num_partitions = {count} : i32}} "
            "{ func.func @main() { return } }"
        )


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("tf.aliasing_output = 9 : i32", "no such result"),
        ('tf.aliasing_output = "a"', "no such result"),
        ("tf.aliasing_output = -1 : i32", "no such result"),
        ("mhlo.layout_mode = 3 : i32", "leave the tiling out"),
        ('mhlo.layout_mode = "{,,}"', "leave the tiling out"),
        ("mhlo.memory_kind = 3 : i32", "memory kinds are"),
        ('mhlo.sharding = "foo"', "no sharding can be read"),
        ("mhlo.sharding = 3 : i32", "no sharding can be read"),
    ],
)
def test_attributes_of_arguments_that_say_nothing(attribute: str, message: str) -> None:
    with pytest.raises((InvalidProgram, UnsupportedOp), match=message):
        import_module(
            f"""module attributes {{mhlo.num_partitions = 2 : i32}} {{
            func.func @main(%x: tensor<4xf32> {{{attribute}}}) -> tensor<4xf32> {{
              return %x : tensor<4xf32> }} }}"""
        )


def test_a_sharding_of_fewer_axes_leaves_the_others_whole() -> None:
    module = import_module(
        """module attributes {mhlo.num_partitions = 2 : i32} {
        func.func @main(%x: tensor<4x4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"})
            -> tensor<4x4xf32> { return %x : tensor<4x4xf32> } }"""
    )
    assert module.signature.inputs[0].shape == (2, 4)


def test_attributes_may_be_vectors() -> None:
    import_module(
        """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
          %y = stablehlo.negate %x {a = dense<1> : vector<4xi32>} : tensor<4xf32>
          return %y : tensor<4xf32> }"""
    )


@pytest.mark.parametrize("shape", ["", "4x", "2x1x"])
def test_random_bits_of_other_states(shape: str) -> None:
    state = f"tensor<{shape}ui64>"
    with pytest.raises((UnsupportedOp, InvalidProgram), match="state"):
        import_module(
            f"""func.func @main(%x: {state}) -> tensor<3xui32> {{
              %y, %z = stablehlo.rng_bit_generator %x, algorithm = DEFAULT
                  : ({state}) -> ({state}, tensor<3xui32>)
              return %z : tensor<3xui32> }}"""
        )


def test_approximate_top_k_without_its_attributes() -> None:
    with pytest.raises(UnsupportedOp, match="reduction_dim"):
        import_module(
            """func.func @main(%x: tensor<8xf32>, %z: tensor<f32>) -> tensor<3xf32> {
              %y = stablehlo.custom_call @ApproxTopK(%x, %z)
                  : (tensor<8xf32>, tensor<f32>) -> tensor<3xf32>
              return %y : tensor<3xf32> }"""
        )


def test_locations_where_values_are_expected() -> None:
    """jaxlib's bindings cannot give them to Python."""
    for text in (
        'module attributes {mhlo.num_partitions = loc("here")} { func.func @main() { return } }',
        """func.func @main(%x: tensor<f32>) -> tensor<f32> {
          %y = stablehlo.negate %x {a = loc("here")} : tensor<f32> return %y : tensor<f32> }""",
        'func.func @main(%x: tensor<f32> {jax.a = loc("here")}) { return }',
        'func.func @main(%x: tensor<f32> {jax.a = [1, loc("here")]}) { return }',
    ):
        with pytest.raises(InvalidProgram, match="is no value"):
            import_module(text)
