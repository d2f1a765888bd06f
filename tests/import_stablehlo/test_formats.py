"""Every way a program can be handed over, what is read beside the Graph, and threads."""

from __future__ import annotations

import io
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib.mlir.dialects import stablehlo

from tinyhlo.import_stablehlo import context, import_module
from tinyhlo.import_stablehlo.artifact import embedded_module
from tinyhlo.import_stablehlo.context import lent_context
from tinyhlo.ir.graph import Loop
from tinyhlo.ir.simplify import simplify

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def program(x: Any) -> Any:
    return jnp.tanh(x).sum(axis=1)


def bytecode(module: Any) -> bytes:
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def export_file() -> dict[str, bytes]:
    """JAX needs the package `flatbuffers` to write such a file; reading it does not."""
    if find_spec("flatbuffers") is None:
        return {}
    exported = jax.export.export(jax.jit(program), platforms=("cpu",))(X)
    return {"jax.export file": bytes(exported.serialize())}


@pytest.fixture(scope="module")
def sources() -> dict[str, bytes | str]:
    module = jax.jit(program).lower(X).compiler_ir()
    text = str(module)
    return {
        "text": text,
        "text bytes": text.encode(),
        "bytecode": bytecode(module),
        "portable artifact": stablehlo.serialize_portable_artifact_str(
            text.encode(), stablehlo.get_current_version()
        ),
        **export_file(),
    }


def test_all_formats_give_the_same_nodes(sources: dict[str, bytes | str]) -> None:
    graphs = {name: import_module(source).graph for name, source in sources.items()}
    first = graphs["text"]
    for graph in graphs.values():  # nodes are hash-consed, so equal means identical
        assert graph.params == first.params
        assert graph.results == first.results


def test_byte_order_mark(sources: dict[str, bytes | str]) -> None:
    text = "\ufeff" + str(sources["text"])
    expected = import_module(sources["text"]).graph.results
    assert import_module(text).graph.results == expected
    assert import_module(text.encode()).graph.results == expected


def test_embedded_module() -> None:
    pytest.importorskip("flatbuffers")
    exported = jax.export.export(jax.jit(program), platforms=("cpu",))(X)
    assert embedded_module(exported.serialize()) == exported.mlir_module_serialized


def test_jax_is_not_imported() -> None:
    program = (
        "import sys; from tinyhlo.import_stablehlo import import_module; "
        "import_module('func.func @main() { return }'); sys.exit('jax' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_name_and_donation() -> None:
    def step(state: Any, x: Any, unused: Any) -> Any:
        return state + x, x.sum()

    text = jax.jit(step, donate_argnums=(0,), keep_unused=True).lower(X, X, X).as_text()
    module = import_module(text)
    assert module.name == "jit_step"
    assert module.aliases == ((0, 0),)
    text = text.replace("tf.aliasing_output = 0 : i32", "jax.buffer_donor = true")
    assert import_module(text).signature.donors == (0,)


def test_source_lines() -> None:
    def wave(x: Any) -> Any:
        return jnp.sin(x)  # the line that the node must name

    graph = import_module(bytecode(jax.jit(wave).lower(X).compiler_ir())).graph
    place = graph.locations[graph.results[0]]
    file, _, rest = place.rpartition(":")
    assert file.endswith("test_formats.py")
    line = wave.__code__.co_firstlineno + 1
    assert rest.startswith(f"{line}, in ") and rest.endswith("wave")


def test_lines_of_equal_loops_in_two_programs() -> None:
    text = """func.func @main(%x: tensor<f32>) -> tensor<f32> {{
      %n = stablehlo.constant dense<9.0> : tensor<f32>
      %0 = stablehlo.while(%a = %x) : tensor<f32> cond {{
        %1 = stablehlo.compare LT, %a, %n : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      }} do {{
        %1 = stablehlo.sine %a : tensor<f32> loc("{file}":1:1)
        stablehlo.return %1 : tensor<f32>
      }}
      return %0 : tensor<f32>
    }}"""
    programs = [simplify(import_module(text.format(file=f"{name}.py")).graph) for name in "ab"]
    for name, graph in zip("ab", programs, strict=True):
        (loop,) = (node for node in graph.nodes() if isinstance(node, Loop))
        assert loop.body.locations[loop.body.results[0]] == f"{name}.py:1"


def test_dead_code_is_dropped() -> None:
    graph = import_module(
        """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
          %0 = "stablehlo.fft"(%a) <{fft_type = #stablehlo<fft_type RFFT>,
            fft_length = array<i64: 4>}> : (tensor<4xf32>) -> tensor<3xcomplex<f32>>
          return %a : tensor<4xf32> }"""
    ).graph
    assert len(graph.nodes()) == 1


def test_programs_share_a_context_until_it_has_read_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None is lent twice at a time, or used again after an error."""
    monkeypatch.setattr(context, "_idle", [])
    monkeypatch.setattr(context, "MOST_READ", 100)
    with lent_context(60) as first, lent_context(10) as other:
        assert other is not first
    with lent_context(39) as again:
        assert again is first
    with lent_context(80) as third:
        assert third not in (first, other)
    with pytest.raises(ValueError), lent_context(1) as failed:
        raise ValueError
    assert failed is third
    with lent_context(1) as last:
        assert last is other


def test_eight_threads(sources: dict[str, bytes | str]) -> None:
    expanded = jax.jit(lambda x: jax.scipy.special.gammaln(x).sum(axis=1)).lower(X).as_text()
    programs = [*sources.values(), expanded]

    def load(index: int) -> Any:
        return import_module(programs[index % len(programs)]).graph.results[0].type

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(load, range(64)))) == 1
