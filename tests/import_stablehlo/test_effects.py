"""Effects: what import makes of calls that must happen, and that the interpreter makes them so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tinyhlo.errors import UnsupportedOp, VerificationError
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.build import ALIASES
from tinyhlo.ir.graph import Branch, Graph, LibraryCall, Loop
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.simplify import simplify
from tinyhlo.ir.verifier import verify_graph
from tinyhlo.runtime.library import REGISTRY, Call, Library, python_call


@pytest.fixture
def noted() -> Iterator[list[tuple[str, list[Any]]]]:
    """What calls of @note were given, in order; one with a result returns its operand plus one."""
    calls: list[tuple[str, list[Any]]] = []

    def make(call: Call) -> Library:
        def run(arrays: list[np.ndarray]) -> list[np.ndarray]:
            calls.append((str(call.attributes["name"]), [array.tolist() for array in arrays]))
            return [arrays[0] + np.float32(1)] * len(call.results)

        return python_call(run, call.operands, call.results)

    REGISTRY["note"] = make
    yield calls
    del REGISTRY["note"]


def note(name: str, operand: str = "", returns: bool = False) -> str:
    """`@note(operand)` as MLIR text."""
    what = f'{{has_side_effect = true, mhlo.backend_config = {{name = "{name}"}}}}'
    given, types = (f"%{operand}", "tensor<f32>") if operand else ("", "")
    result = "tensor<f32>" if returns else "()"
    return f"stablehlo.custom_call @note({given}) {what} : ({types}) -> {result}\n"


def graph_of(body: str, signature: str = "(%x: tensor<f32>) -> tensor<f32>") -> Graph:
    graph = import_module(f"func.func @main{signature} {{ {body} }}").graph
    verify_graph(graph)
    verify_graph(simplify(graph))
    return graph


def run_both(graph: Graph, x: float) -> float:
    """The result, as imported and simplified."""
    results = [run_graph(g, [np.float32(x)])[0].item() for g in (graph, simplify(graph))]
    assert results[0] == results[1]
    return results[0]


def test_unused_calls_stay_in_program_order(noted: list[Any]) -> None:
    graph = graph_of(
        note("first", "x")
        + "%y = " + note("second", "x", returns=True)
        + note("third", "x")
        + "return %y : tensor<f32>"
    )  # fmt: skip
    assert [type(effect) for effect in graph.effects] == [LibraryCall] * 3
    assert run_graph(graph, [np.float32(1)])[0].item() == 2
    assert [name for name, _ in noted] == ["first", "second", "third"]


def test_equal_calls_are_two_calls(noted: list[Any]) -> None:
    run_graph(graph_of(note("same", "x") * 2 + "return %x : tensor<f32>"), [np.float32(1)])
    assert noted == [("same", [1.0])] * 2


def test_a_function_with_effects_runs_at_every_call(noted: list[Any]) -> None:
    module = f"""module {{
      func.func @main(%x: tensor<f32>) -> tensor<f32> {{
        func.call @f(%x) : (tensor<f32>) -> ()
        func.call @f(%x) : (tensor<f32>) -> ()
        return %x : tensor<f32> }}
      func.func private @f(%x: tensor<f32>) {{ {note("inside", "x")} return }} }}"""
    run_graph(import_module(module).graph, [np.float32(1)])
    assert noted == [("inside", [1.0])] * 2


def test_loops_with_effects_are_effects(noted: list[Any]) -> None:
    graph = graph_of(
        f"""%zero = stablehlo.constant dense<0> : tensor<i32>
        %three = stablehlo.constant dense<3> : tensor<i32>
        %one = stablehlo.constant dense<1> : tensor<i32>
        %i, %y = stablehlo.while(%n = %zero, %z = %x) : tensor<i32>, tensor<f32>
        cond {{ %t = stablehlo.compare LT, %n, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
                stablehlo.return %t : tensor<i1> }}
        do {{ %m = stablehlo.add %n, %one : tensor<i32>
              %w = {note("turn", "z", returns=True)}
              stablehlo.return %m, %w : tensor<i32>, tensor<f32> }}
        {note("after", "x")} return %x : tensor<f32>"""
    )
    loop, _ = graph.effects
    assert isinstance(loop, Loop) and loop.trip_count == 3 and len(loop.body.effects) == 1
    run_graph(graph, [np.float32(1)])
    assert noted == [("turn", [1.0]), ("turn", [2.0]), ("turn", [3.0]), ("after", [1.0])]
    noted.clear()
    run_graph(simplify(graph), [np.float32(1)])
    assert len(noted) == 4


def test_branches_with_effects_are_effects(noted: list[Any]) -> None:
    graph = graph_of(
        f"""%two = stablehlo.constant dense<2.0> : tensor<f32>
        %t = stablehlo.compare GT, %x, %two : (tensor<f32>, tensor<f32>) -> tensor<i1>
        "stablehlo.if"(%t) ({{ {note("big", "x")} "stablehlo.return"() : () -> () }},
                            {{ "stablehlo.return"() : () -> () }}) : (tensor<i1>) -> ()
        return %x : tensor<f32>"""
    )
    (branch,) = graph.effects
    assert isinstance(branch, Branch) and not branch.results
    for x in (1.0, 3.0):
        assert run_both(graph, x) == x
    assert noted == [("big", [3.0])] * 2


def test_tokens_are_no_values(noted: list[Any]) -> None:
    """As arguments, results, loop state and of calls; JAX passes an empty array for one."""
    config = '{has_side_effect = true, mhlo.backend_config = {name = "turn"}}'
    module = import_module(
        f"""func.func @main(%token: !stablehlo.token, %x: tensor<f32>)
            -> (!stablehlo.token, tensor<f32>) {{
        %four = stablehlo.constant dense<4.0> : tensor<f32>
        %after, %y = stablehlo.while(%k = %token, %z = %x) : !stablehlo.token, tensor<f32>
        cond {{ %t = stablehlo.compare LT, %z, %four : (tensor<f32>, tensor<f32>) -> tensor<i1>
                stablehlo.return %t : tensor<i1> }}
        do {{ %w:2 = stablehlo.custom_call @note(%k, %z) {config} :
                (!stablehlo.token, tensor<f32>) -> (!stablehlo.token, tensor<f32>)
              stablehlo.return %w#0, %w#1 : !stablehlo.token, tensor<f32> }}
        return %after, %y : !stablehlo.token, tensor<f32> }}"""
    )
    assert str(module.signature.inputs[0]) == str(module.signature.outputs[0]) == "token[0]"
    verify_graph(module.graph)
    token, y = run_graph(module.graph, [np.zeros(0, np.bool_), np.float32(2)])
    assert token.shape == (0,) and y.item() == 4
    assert noted == [("turn", [2.0]), ("turn", [3.0])]


def test_aliases_do_not_count_tokens(noted: list[Any]) -> None:
    graph = graph_of(
        """%t = stablehlo.create_token : !stablehlo.token
        %y = stablehlo.custom_call @note(%t, %x) {
          has_side_effect = true, mhlo.backend_config = {name = "a"}, output_operand_aliases = [
            #stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 1,
              operand_tuple_indices = []>]} : (!stablehlo.token, tensor<f32>) -> tensor<f32>
        return %y : tensor<f32>"""
    )
    (call,) = (node for node in graph.nodes() if isinstance(node, LibraryCall))
    assert dict(call.attributes)[ALIASES] == ((0, 0),)


def test_complex_operands_and_results(noted: list[Any]) -> None:
    config = '{has_side_effect = true, mhlo.backend_config = {name = "c"}}'
    graph = import_module(
        f"""func.func @main(%x: tensor<complex<f32>>) -> tensor<complex<f32>> {{
        %y = stablehlo.custom_call @note(%x) {config} :
            (tensor<complex<f32>>) -> tensor<complex<f32>>
        return %y : tensor<complex<f32>> }}"""
    ).graph
    (result,) = run_graph(graph, [np.array([1, 2], np.float32)])
    assert noted == [("c", [1 + 2j])] and result.tolist() == [2, 2]


def test_a_reduction_must_not_have_effects(noted: list[Any]) -> None:
    body = f"""%r = "stablehlo.reduce"(%x, %zero) ({{
            ^bb0(%a: tensor<f32>, %b: tensor<f32>):
              {note("inside", "a")} %s = stablehlo.add %a, %b : tensor<f32>
              "stablehlo.return"(%s) : (tensor<f32>) -> () }})
        {{dimensions = array<i64: 0>}} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
        return %r : tensor<f32>"""
    zero = "%zero = stablehlo.constant dense<0.0> : tensor<f32>\n"
    with pytest.raises(UnsupportedOp, match="effects"):
        import_module(f"func.func @main(%x: tensor<4xf32>) -> tensor<f32> {{ {zero} {body} }}")


def test_the_verifier_counts_effects(noted: list[Any]) -> None:
    graph = graph_of("%y = " + note("one", "x", returns=True) + "return %y : tensor<f32>")
    for effects in ((), graph.effects * 2):
        with pytest.raises(VerificationError, match=f"names {len(effects)} effects and holds 1"):
            verify_graph(Graph(graph.params, graph.results, effects))


def test_what_is_started_is_done_at_once() -> None:
    graph = graph_of("""
      %f = "stablehlo.async_start"(%x) ({
        ^bb0(%y: tensor<f32>):
          %0 = "stablehlo.collective_permute"(%y) {source_target_pairs = dense<0> : tensor<1x2xi64>}
            : (tensor<f32>) -> tensor<f32>
          stablehlo.return %0 : tensor<f32>
      }) : (tensor<f32>) -> !stablehlo.future<tensor<f32>>
      %z = stablehlo.multiply %x, %x : tensor<f32>
      stablehlo.custom_call @control_dep(%f, %z) {has_side_effect = true}
        : (!stablehlo.future<tensor<f32>>, tensor<f32>) -> ()
      %d = "stablehlo.async_done"(%f) : (!stablehlo.future<tensor<f32>>) -> tensor<f32>
      %r = stablehlo.add %d, %z : tensor<f32>
      return %r : tensor<f32>
    """)
    assert not graph.effects
    assert run_both(graph, 3) == 12


RNG = """
func.func @main() -> tensor<4x5000x{type}> {{
  %a = stablehlo.constant dense<{low}> : tensor<{type}>
  %b = stablehlo.constant dense<{high}> : tensor<{type}>
  %shape = stablehlo.constant dense<[4, 5000]> : tensor<2xi64>
  %x = stablehlo.rng %a, %b, %shape, distribution = {kind} :
    (tensor<{type}>, tensor<{type}>, tensor<2xi64>) -> tensor<4x5000x{type}>
  return %x : tensor<4x5000x{type}>
}}
"""


@pytest.mark.parametrize("type_", ["f32", "f64", "bf16", "i32", "i8"])
def test_random_numbers_are_others_in_every_call(type_: str) -> None:
    low, high = ("-3", "5") if type_[0] == "i" else ("-3.0", "5.0")
    text = RNG.format(type=type_, low=low, high=high, kind="UNIFORM")
    graph = simplify(import_module(text.encode()).graph)
    (first,), (second,) = (run_graph(graph, []) for _ in range(2))
    assert np.mean(first == second) < 0.2
    for drawn in (first.astype(np.float64), second.astype(np.float64)):
        assert drawn.min() >= -3 and drawn.max() <= 5
        assert abs(drawn.mean() - (0.5 if type_[0] == "i" else 1.0)) < 0.1


def test_normal_random_numbers() -> None:
    text = RNG.format(type="f32", low="2.0", high="3.0", kind="NORMAL")
    (drawn,) = run_graph(import_module(text.encode()).graph, [])
    assert abs(drawn.mean() - 2) < 0.1 and abs(drawn.std() - 3) < 0.1
    assert np.isfinite(drawn).all()
