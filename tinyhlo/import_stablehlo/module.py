"""Import a StableHLO module as a Graph.

    module = import_module("module { func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> ... }")
    print(module.graph)

The stages: `context.parse_module` reads the bytes, `decode.Decoder` turns MLIR into plain records,
`walker.Walker` applies the rule of each op (`rules.RULES`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxlib.mlir import ir

from tinyhlo.errors import InvalidProgram, UnsupportedItem, UnsupportedOp
from tinyhlo.import_stablehlo.attributes import decode_attribute
from tinyhlo.import_stablehlo.context import parse_module
from tinyhlo.import_stablehlo.decode import Decoder
from tinyhlo.import_stablehlo.lifting import Complex
from tinyhlo.import_stablehlo.movement import join
from tinyhlo.import_stablehlo.records import Function, OtherType
from tinyhlo.import_stablehlo.refine import needs_refining, with_known_shapes
from tinyhlo.import_stablehlo.rules import LIFTED_RULES, RULES
from tinyhlo.import_stablehlo.walker import Value, Walker
from tinyhlo.ir.build import constant, param, reshape, slice_
from tinyhlo.ir.elements import PLANES, stored
from tinyhlo.ir.graph import Graph, Node, TensorType

SEVERAL_DEVICES = "tinyhlo compiles programs for one device: jit this function for one device"
PASS_ARRAYS = "pass arrays, not tokens or tuples"


@dataclass(frozen=True, slots=True)
class Module:
    """An imported program. `inputs` and `outputs`: the types that its users see, which the Graph
    may store as others (`ir/elements.py`). `aliases`: (result, argument) pairs that share memory.
    `donors`: arguments whose memory may be used for any result."""

    graph: Graph
    name: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    aliases: tuple[tuple[int, int], ...] = ()
    donors: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"module {self.name}\n{self.graph}"


def import_module(
    source: bytes | str, static_arguments: Mapping[int, np.ndarray] | None = None
) -> Module:
    """Read StableHLO text, MLIR bytecode, a portable artifact or a `jax.export` file.

    `static_arguments` gives values to some argument positions. They stay params of the Graph, but
    the program is built for exactly these values.

    Raises InvalidProgram for what cannot be read, UnsupportedOp naming every op that cannot be
    compiled.
    """
    try:
        parsed = parse_module(source)
        try:
            return read_module(parsed, static_arguments or {})
        except UnsupportedOp as error:
            if not needs_refining(error):
                raise
        return read_module(with_known_shapes(parsed), static_arguments or {})
    except RecursionError as error:
        raise InvalidProgram("functions call themselves, or are nested too deeply") from error


def read_module(parsed: ir.Module, static_arguments: Mapping[int, np.ndarray]) -> Module:
    """The Module of a parsed program; see `import_module`."""
    walker = Walker(Decoder(parsed), RULES, LIFTED_RULES)
    function = walker.decoder.function(walker.decoder.entry)
    arguments: list[Value] = [
        argument(k, type_) if isinstance(type_, TensorType) else None
        for k, type_ in enumerate(function.body.types)
    ]
    for position, value in static_arguments.items():
        arguments[position] = constant(np.asarray(value))
    results = walker.run(function.body, arguments, {})
    refused = (*refused_signature(parsed, function), *walker.unsupported)
    if refused:
        raise UnsupportedOp(refused)
    if not all(isinstance(result, (Node, Complex)) for result in results):
        raise InvalidProgram(f"@{function.name} returns values that are no tensors")
    inputs: tuple[TensorType, ...] = function.body.types  # type: ignore[assignment]
    graph = Graph(tuple(map(stored, inputs)), tuple(map(result_node, results)), (), walker.lines)
    return Module(
        graph,
        module_name(parsed),
        inputs,
        function.body.returned_types,  # type: ignore[arg-type]
        aliases_of(function),
        donors_of(function),
    )


def argument(position: int, type_: TensorType) -> Value:
    """The value of an argument; a complex one is two views of a buffer of pairs."""
    kept = stored(type_)
    node = param(position, kept.shape, kept.dtype)
    if type_.dtype not in PLANES:
        return node
    rank = len(type_.shape)
    first = [
        slice_(node, [0] * rank + [k], [*type_.shape, k + 1], [1] * (rank + 1)) for k in (0, 1)
    ]
    re, im = (reshape(plane, type_.shape) for plane in first)
    return Complex(re, im)


def result_node(value: Value) -> Node:
    """What is stored for a result; a complex one as pairs."""
    if isinstance(value, Complex):
        pieces = [reshape(plane, (*plane.shape, 1)) for plane in value.planes]
        return join(pieces, len(value.shape))
    assert isinstance(value, Node)
    return value


def module_name(module: ir.Module) -> str:
    """The module's symbol name, as `jit_f`."""
    attributes = module.operation.attributes
    return decode_attribute(attributes["sym_name"]) if "sym_name" in attributes else "module"


def refused_signature(module: ir.Module, function: Function) -> list[UnsupportedItem]:
    """What the module's device counts and the entry's argument types do not allow."""
    counts = module.operation.attributes
    items = [
        UnsupportedItem(name, str(counts[name]), "", SEVERAL_DEVICES)
        for name in ("mhlo.num_partitions", "mhlo.num_replicas")
        if name in counts and decode_attribute(counts[name]) != 1
    ]
    for position, type_ in enumerate(function.body.types):
        if not isinstance(type_, TensorType):
            hint = type_.hint if isinstance(type_, OtherType) else PASS_ARRAYS
            items.append(UnsupportedItem(f"argument {position}", str(type_), "", hint))
    return items


def aliases_of(function: Function) -> tuple[tuple[int, int], ...]:
    """(result, argument) of `tf.aliasing_output`."""
    return tuple(
        (attributes["tf.aliasing_output"], position)
        for position, attributes in enumerate(function.argument_attributes)
        if "tf.aliasing_output" in attributes
    )


def donors_of(function: Function) -> tuple[int, ...]:
    """Arguments marked `jax.buffer_donor`."""
    return tuple(
        position
        for position, attributes in enumerate(function.argument_attributes)
        if attributes.get("jax.buffer_donor")
    )
