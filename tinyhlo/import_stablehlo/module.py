"""Import a StableHLO module as a Graph.

    module = import_module("module { func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> ... }")
    print(module.graph)

The stages: `context.parse_module` reads the bytes, `decode.Decoder` turns MLIR into plain records,
`walker.Walker` applies the rule of each op (`rules.rule_of`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from tinyhlo.dataclass import dataclass
from tinyhlo.errors import InvalidProgram, UnsupportedItem, UnsupportedOp
from tinyhlo.import_stablehlo.attributes import decode_attribute
from tinyhlo.import_stablehlo.context import parse_module
from tinyhlo.import_stablehlo.decode import Decoder, entry_of
from tinyhlo.import_stablehlo.library_calls import Order, in_order, in_order_type, out_of_order
from tinyhlo.import_stablehlo.memory import buffer_of, loaded, visible
from tinyhlo.import_stablehlo.records import Function, OtherType, TokenType, ValueType
from tinyhlo.import_stablehlo.refine import needs_refining, with_known_shapes
from tinyhlo.import_stablehlo.rules import rule_of
from tinyhlo.import_stablehlo.walker import Value, Walker
from tinyhlo.ir.build import constant, param
from tinyhlo.ir.elements import stored
from tinyhlo.ir.graph import Graph, TensorType

DEVICE_COUNTS = ("mhlo.num_partitions", "mhlo.num_replicas")
SEVERAL_DEVICES = "tinyhlo compiles programs for one device: jit this function for one device"
MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")  # as in plugin.h, the default first
NO_TILES = "arrays are dense here: leave the tiling out of the Layout"
PASS_ARRAYS = "pass arrays, not tuples"


@dataclass(frozen=True, slots=True)
class Module:
    """An imported program. `inputs` and `outputs`: the types that its users see, which the Graph
    may store as others (`ir/elements.py`). `aliases`: (result, argument) pairs that share memory.
    `donors`: arguments whose memory may be used for any result. `orders`: of the inputs, then of
    the outputs, which axes of the user's arrays those of the types are; () when they are the same.
    `memories`: likewise the number of the memory kind that each is said to be in; () when all in 0.
    """

    graph: Graph
    name: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    aliases: tuple[tuple[int, int], ...] = ()
    donors: tuple[int, ...] = ()
    orders: tuple[Order, ...] = ()
    memories: tuple[int, ...] = ()

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
    walker = Walker(Decoder(parsed, rule_of), rule_of)
    function = walker.decoder.function(entry_of(parsed))
    given = layouts(function.body.types, function.argument_attributes)
    made = layouts(function.body.returned_types, function.result_attributes)
    arguments: list[Value] = [
        argument(k, type_, order) if isinstance(type_, (TensorType, TokenType)) else None
        for k, (type_, order) in enumerate(zip(function.body.types, given, strict=True))
    ]
    for position, value in static_arguments.items():
        arguments[position] = constant(np.asarray(value))
    results, effects = walker.region(function.body, arguments, {})
    refused = (*refused_signature(parsed, function), *walker.unsupported)
    if refused:
        raise UnsupportedOp(refused)
    if any(isinstance(result, tuple) for result in results):
        raise InvalidProgram(f"@{function.name} returns values that are no tensors")
    inputs = tuple(map(in_order_type, map(visible, function.body.types), given))
    outputs = tuple(map(in_order_type, map(visible, function.body.returned_types), made))
    nodes = tuple(map(in_order, map(buffer_of, results), made))
    orders = (*given, *made)
    plain = all(order == tuple(range(len(order))) for order in orders)
    return Module(
        Graph(tuple(map(stored, inputs)), nodes, effects, walker.lines),
        module_name(parsed),
        inputs,
        outputs,
        tuple((k, n) for k, n in aliases_of(function) if made[k] == given[n]),
        donors_of(function),
        () if plain else orders,
        memories((*function.argument_attributes, *function.result_attributes)),
    )


def argument(position: int, type_: ValueType, order: Order) -> Value:
    """The value of an argument."""
    kept = stored(in_order_type(visible(type_), order))
    return loaded(out_of_order(param(position, kept.shape, kept.dtype), order), type_)


def layouts(
    types: Sequence[ValueType], attributes: Sequence[Mapping[str, Any]]
) -> tuple[Order, ...]:
    """How arguments or results lie in memory, where JAX's users say it: "{0,1}", innermost first.

    Raises UnsupportedOp for tiles.
    """
    found: list[Order] = []
    for type_, given in zip(types, attributes, strict=True):
        rank = len(visible(type_).shape) if isinstance(type_, (TensorType, TokenType)) else 0
        mode = given.get("mhlo.layout_mode", "default")
        axes = re.fullmatch(r"\{([\d,]*)\}", mode)
        if axes is None and mode not in ("default", "auto"):
            raise UnsupportedOp((UnsupportedItem("mhlo.layout_mode", mode, "", NO_TILES),))
        order = tuple(map(int, reversed(axes[1].split(",")))) if axes and axes[1] else ()
        if order and sorted(order) != list(range(rank)):
            raise InvalidProgram(f"the layout {mode} is none of {type_}")
        found.append(order or tuple(range(rank)))
    return tuple(found)


def memories(attributes: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """The numbers of the memory kinds of arguments and results, () when all are the default.

    Raises UnsupportedOp for a kind that does not exist here.
    """
    found = tuple(given.get("mhlo.memory_kind", MEMORY_KINDS[0]) for given in attributes)
    if unknown := [kind for kind in found if kind not in MEMORY_KINDS]:
        hint = f"memory kinds are {', '.join(MEMORY_KINDS)}"
        raise UnsupportedOp((UnsupportedItem("mhlo.memory_kind", unknown[0], "", hint),))
    numbers = tuple(map(MEMORY_KINDS.index, found))
    return numbers if any(numbers) else ()


def module_name(module: ir.Module) -> str:
    """The module's symbol name, as `jit_f`."""
    return module_attribute(module, "sym_name") or "module"


def module_attribute(module: ir.Module, name: str) -> Any:
    """An attribute of the module, None when it has none of that name."""
    attributes = module.operation.attributes
    try:
        return decode_attribute(attributes[name]) if name in attributes else None
    except TypeError as error:
        raise InvalidProgram(f"the module's attribute {name} is no value") from error


def refused_signature(module: ir.Module, function: Function) -> list[UnsupportedItem]:
    """What the module's device counts and the entry's argument types do not allow."""
    counts = {name: module_attribute(module, name) for name in DEVICE_COUNTS}
    items = [
        UnsupportedItem(name, str(count), "", SEVERAL_DEVICES)
        for name, count in counts.items()
        if count not in (1, None)
    ]
    for position, type_ in enumerate(function.body.types):
        if not isinstance(type_, (TensorType, TokenType)):
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
