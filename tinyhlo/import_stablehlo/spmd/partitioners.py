"""Calls that ask JAX while the program is compiled, when it is known how arrays are divided.

    %y = custom_call @CustomSPMDPartitioning(%x) {backend_config = "key"}   # custom_partitioning
    ->  %y = sdy.manual_computation(%x) in_shardings=[...] (%part) { call @partition(%part) }

    custom_call @InspectSharding(%x) {backend_config = "key"}       # inspect_array_sharding
    ->  nothing: its function has been told the sharding of %x

The plugin says whom to ask (`ASKED`). Shardings are in XLA's words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from tinyhlo.import_stablehlo.attributes import decode_attribute
from tinyhlo.import_stablehlo.decode import calls_of, entry_of, functions_of, meshes_of, target_of
from tinyhlo.import_stablehlo.spmd.hlo_sharding import hlo_text, shardy_text
from tinyhlo.import_stablehlo.spmd.manual import BODY
from tinyhlo.import_stablehlo.spmd.partitioned import SHARDING, divide, propagate
from tinyhlo.import_stablehlo.spmd.sharding import ONE_SHARDING, Mesh
from tinyhlo.import_stablehlo.types import decode_type
from tinyhlo.ir.graph import TensorType
from tinyhlo.records import dataclass

AXES = re.compile(r'"\d+"')  # in what `shardy_text` writes
PARTITION, INSPECT = "CustomSPMDPartitioning", "InspectSharding"
TARGETS = frozenset({PARTITION, INSPECT})
MANUAL = "{manual}"
STATED = {  # the attribute that says how the results of an op are divided
    BODY: "out_shardings",
    "sdy.reshard": "sharding",
    "sdy.sharding_constraint": "sharding",
}


@dataclass(frozen=True, slots=True)
class Whole:
    """An operand or result of a call: the whole array, and how it is divided."""

    shape: tuple[int, ...]
    dtype: np.dtype
    sharding: str


@dataclass(frozen=True, slots=True)
class Partition:
    """What a partitioner makes of a call: a module for one device, and how operands and results
    are to be divided for it."""

    program: bytes
    operands: Sequence[str]
    results: Sequence[str]


@dataclass(frozen=True, slots=True)
class Asked:
    """Whom to ask, with the key of the call."""

    partition: Callable[[str, Sequence[Whole], Sequence[Whole]], Partition]
    inspect: Callable[[str, str], None]


ASKED: list[Asked] = []


def answered(module: ir.Module, devices: int) -> ir.Module:
    """The module without such calls; another one when there are any."""
    if not ASKED or not any(calls_of(module.operation, TARGETS)):
        return module
    copy = propagate(module)
    with module.context, ir.Location.unknown():
        meshes = meshes_of(copy)
        for number, call in enumerate(list(calls_of(copy.operation, TARGETS))):
            key = decode_attribute(call.attributes["backend_config"])
            given = [whole(value, meshes, devices) for value in call.operands]
            per_device = is_per_device(call)
            if target_of(call) == INSPECT:
                ASKED[-1].inspect(key, MANUAL if per_device else given[0].sharding)
            elif per_device:  # an error will name it
                continue
            else:
                made = [whole(value, meshes, devices) for value in call.results]
                put_in_place(call, ASKED[-1].partition(key, given, made), copy, number, devices)
            call.erase()
    return copy


# ---- how a value is divided ----------------------------------------------------------------------


def whole(value: ir.Value, meshes: Mapping[str, Mesh], devices: int) -> Whole:
    type_ = decode_type(value.type)
    assert isinstance(type_, TensorType)
    division = divide({SHARDING: sharding_of(value)}, type_, meshes, devices)
    return Whole(type_.shape, type_.dtype.numpy, hlo_text(division))


def sharding_of(value: ir.Value) -> str:
    """The attribute that says how a value is divided; empty when nothing does."""
    if isinstance(value, ir.OpResult):
        operation = value.owner
        stated = STATED.get(operation.name, SHARDING)
        return nth(operation.attributes, stated, value.result_number)
    argument = ir.BlockArgument(value)
    operation = argument.owner.owner.operation
    if operation.name != "func.func":  # a loop: of its results
        return nth(operation.attributes, SHARDING, argument.arg_number)
    if "arg_attrs" not in operation.attributes:
        return ""
    given = decode_attribute(operation.attributes["arg_attrs"])
    return given[argument.arg_number].get(SHARDING, "")


def nth(attributes: ir.OpAttributeMap, name: str, number: int) -> str:
    """The text of one sharding of an attribute that has one per value."""
    shardings = ONE_SHARDING.finditer(str(attributes[name])) if name in attributes else ()
    return next((found[0] for k, found in enumerate(shardings) if k == number), "")


def is_per_device(operation: ir.Operation) -> bool:
    """Whether an op is inside of a per-device body."""
    while (around := operation.parent) is not None:
        operation = around.operation
        if operation.name == BODY:
            return True
    return False


# ---- what a partitioner made ---------------------------------------------------------------------


def put_in_place(
    call: ir.Operation, made: Partition, module: ir.Module, number: int, devices: int
) -> None:
    """Make the call a per-device body that calls the partition."""
    entry = add_functions(ir.Module.parse(made.program, module.context), module, number)
    (block,) = entry.regions[0].blocks
    *_, end = block.operations
    given_types = [argument.type for argument in block.arguments]
    made_types = [value.type for value in end.operands]
    sides = [
        [shardy_text(text, devices) for text in side] for side in (made.operands, made.results)
    ]
    axes = sorted(set(chain.from_iterable(map(AXES.findall, chain(*sides)))))
    given, results = (f"#sdy.sharding_per_value<[{', '.join(side)}]>" for side in sides)
    attributes = {
        "in_shardings": ir.Attribute.parse(given),
        "out_shardings": ir.Attribute.parse(results),
        "manual_axes": ir.Attribute.parse(f"#sdy<manual_axes{{{', '.join(axes)}}}>"),
    }
    with call.location, ir.InsertionPoint(call):
        body = ir.Operation.create(
            BODY,
            results=[result.type for result in call.results],
            operands=list(call.operands),
            attributes=attributes,
            regions=1,
        )
        inner = body.regions[0].blocks.append(
            *given_types, arg_locs=[call.location] * len(given_types)
        )
        with ir.InsertionPoint(inner):
            name = decode_attribute(entry.attributes["sym_name"])
            part = func.CallOp(made_types, name, list(inner.arguments))
            ir.Operation.create("sdy.return", operands=list(part.results))
    for old, new in zip(call.results, body.results, strict=True):
        old.replace_all_uses_with(new)


def add_functions(source: ir.Module, module: ir.Module, number: int) -> ir.Operation:
    """Move the functions of `source` into `module`; returns its entry."""
    entry = functions_of(source)[entry_of(source)]
    for name, function in functions_of(source).items():
        renamed = f"partition_{number}_{name}"
        ir.SymbolTable.replace_all_symbol_uses(name, renamed, source.operation)
        ir.SymbolTable.set_symbol_name(function, renamed)
    for function in functions_of(source).values():
        function.detach_from_parent()
        module.body.append(function)
    return entry
