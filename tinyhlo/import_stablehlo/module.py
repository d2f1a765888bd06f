"""Import a StableHLO module as a Graph.

    module = import_module("module { func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> ... }")
    print(module.graph)

The stages: `context.parse_module` reads the bytes, `decode.Decoder` turns MLIR into plain records,
`walker.Walker` applies the rule of each op (`rules.rule_of`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from jaxlib.mlir import ir

from tinyhlo.errors import InvalidProgram, UnsupportedItem, UnsupportedOp
from tinyhlo.import_stablehlo import quantized
from tinyhlo.import_stablehlo.attributes import decode_attribute
from tinyhlo.import_stablehlo.context import bytecode_of, lent_context, parse_module
from tinyhlo.import_stablehlo.decode import Decoder, entry_of
from tinyhlo.import_stablehlo.memory import (
    Order,
    buffer_of,
    in_order,
    in_order_type,
    loaded,
    out_of_order,
    visible,
)
from tinyhlo.import_stablehlo.precision import Rounded
from tinyhlo.import_stablehlo.records import Function, OtherType, TokenType, TupleType, ValueType
from tinyhlo.import_stablehlo.refine import needs_refining, with_known_shapes
from tinyhlo.import_stablehlo.rules import TOGETHER, rule_of
from tinyhlo.import_stablehlo.spmd.bundles import bundled
from tinyhlo.import_stablehlo.spmd.hlo_sharding import hlo_text
from tinyhlo.import_stablehlo.spmd.manual import INTO, copies_of
from tinyhlo.import_stablehlo.spmd.partitioned import divide, propagated
from tinyhlo.import_stablehlo.spmd.partitioners import answered
from tinyhlo.import_stablehlo.spmd.pieces import Holders, Pieces
from tinyhlo.import_stablehlo.spmd.sharding import Division, Mesh
from tinyhlo.import_stablehlo.spmd.shared import SharedWalker
from tinyhlo.import_stablehlo.spmd.spread import held, part_at, settled
from tinyhlo.import_stablehlo.spmd.teams import ALONE, Team
from tinyhlo.import_stablehlo.walker import Value, Walker
from tinyhlo.ir.build import param
from tinyhlo.ir.elements import stored
from tinyhlo.ir.graph import Graph, Node, TensorType
from tinyhlo.placement import HERE, Placement
from tinyhlo.records import dataclass
from tinyhlo.signature import Signature

MOST_DEVICES = 4096  # as in client.c
PARTITIONS, REPLICAS = "mhlo.num_partitions", "mhlo.num_replicas"
NO_REPLICAS = "programs for several devices are divided by shardings here, not replicated"
MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")  # as in plugin.h, the default first
NO_TILES = "arrays are dense here: leave the tiling out of the Layout"
BEFORE_SHARDY = "programs from before Shardy run in one process: export it again with this JAX"
PASS_ARRAYS = "pass arrays, not tuples"


@dataclass(frozen=True, slots=True)
class Module:
    """An imported program. `aliases`: (result, argument) pairs that share memory. `asked`: whether
    JAX was asked about calls in it, so that its text alone does not say what it does. `precise`:
    whether an op asks for more than the default precision."""

    graph: Graph
    name: str
    signature: Signature
    aliases: tuple[tuple[int, int], ...] = ()
    asked: bool = False
    precise: bool = False

    def __str__(self) -> str:
        return f"module {self.name}\n{self.graph}"


def import_module(
    source: bytes | str, rounded: Rounded = Rounded.NONE, placement: Placement = HERE
) -> Module:
    """Read StableHLO text, MLIR bytecode, a portable artifact or a `jax.export` file, for a device
    that rounds factors of some products or none; what one process does where several run it.

    Raises InvalidProgram for what cannot be read, UnsupportedOp naming every op that cannot be
    compiled.
    """
    try:
        with lent_context(len(source)) as context:
            parsed = parse_module(source, context)
            try:
                return read_module(parsed, rounded, placement)
            except UnsupportedOp as error:
                if quantized.was_overlooked(error):
                    again = parse_module(bytecode_of(parsed))
                elif needs_refining(error):
                    again = with_known_shapes(parsed)
                else:
                    raise
            return read_module(again, rounded, placement)
    except RecursionError as error:
        raise InvalidProgram("functions call themselves, or are nested too deeply") from error


def read_module(parsed: ir.Module, rounded: Rounded, placement: Placement) -> Module:
    """The Module of a parsed program; see `import_module`."""
    name = module_attribute(parsed, "sym_name") or "module"
    devices = device_count(parsed)
    if placement.is_shared and len(placement.processes) != devices:
        raise InvalidProgram(
            f"{name} is for {devices} devices, and to be run on {len(placement.processes)}"
        )
    written, copies = parsed, ALONE
    if devices > 1:
        parsed = answered(written, devices)
        copies = copies_of(parsed, devices)
    if placement.is_shared and copies is not ALONE:
        raise UnsupportedOp((UnsupportedItem(INTO, f"of {devices} devices", "", BEFORE_SHARDY),))
    parts = Decoder(parsed, rule_of), rule_of, TOGETHER, rounded
    walker = SharedWalker(placement, name, *parts) if placement.is_shared else Walker(*parts)
    function = walker.decoder.function(entry_of(parsed))
    refused = refused_signature(parsed, function)
    if any(isinstance(type_, TupleType) for type_ in function.body.types):
        raise UnsupportedOp(tuple(refused))  # ops would take it apart
    given, made = sides_of(function, written, walker.decoder.meshes, devices)
    team = Team(walker, copies, [{}] * len(copies))

    def walk() -> Sequence[Value]:
        arguments = arguments_of(given, devices, walker)
        return team.run(function.body, [arguments] * len(copies))[0]

    results, effects = walker.collect(walk)
    if refused or walker.unsupported:
        raise UnsupportedOp((*refused, *walker.unsupported))
    if any(isinstance(result, tuple) for result in results):
        raise InvalidProgram(f"@{function.name} returns values that are no tensors")
    own = len(placement.own(devices))
    signature = signature_of(function, given, made, own, devices)
    nodes, last = walker.collect(lambda: buffers_of(results, made, devices, walker))
    inputs = tuple(map(stored, signature.inputs))
    graph = Graph(inputs, nodes, (*effects, *last), walker.lines)
    return Module(
        bundled(graph) if placement.is_shared else graph,
        name,
        signature,
        aliases_of(function, given, made, own),
        asked=parsed is not written,
        precise=walker.decoder.precise,
    )


def devices_of(source: bytes | str) -> int:
    """For how many devices a program is.

    Raises InvalidProgram for what cannot be read.
    """
    with lent_context(len(source)) as context:
        return device_count(parse_module(source, context))


def device_count(parsed: ir.Module) -> int:
    """For how many devices a module is."""
    given = module_attribute(parsed, PARTITIONS)
    count = 1 if given is None else given
    if not isinstance(count, int) or not 1 <= count <= MOST_DEVICES:
        raise InvalidProgram(f"{PARTITIONS} = {count}: there are 1 to {MOST_DEVICES} devices")
    return count


def module_attribute(module: ir.Module, name: str) -> Any:
    """An attribute of the module, None when it has none of that name."""
    attributes = module.operation.attributes
    try:
        return decode_attribute(attributes[name]) if name in attributes else None
    except TypeError as error:
        raise InvalidProgram(f"the module's attribute {name} is no value") from error


def refused_signature(module: ir.Module, function: Function) -> list[UnsupportedItem]:
    """What the module's replicas and the entry's argument types do not allow."""
    replicas = module_attribute(module, REPLICAS)
    items: list[UnsupportedItem] = []
    if replicas not in (1, None):
        items.append(UnsupportedItem(REPLICAS, str(replicas), "", NO_REPLICAS))
    for position, type_ in enumerate(function.body.types):
        if not is_array(type_):
            hint = type_.hint if isinstance(type_, OtherType) else PASS_ARRAYS
            items.append(UnsupportedItem(f"argument {position}", str(type_), "", hint))
    return items


# ---- arguments and results -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Side:
    """The arguments of the entry, or its results: of each the type, how it lies in memory, and how
    it is divided among devices, None for what is no tensor."""

    types: tuple[ValueType, ...]
    orders: tuple[Order, ...]
    divisions: tuple[Division | None, ...]

    def local_types(self) -> tuple[TensorType, ...]:
        """The types of what one device has."""
        return tuple(
            in_order_type(division.local(visible(type_)), order)
            for type_, order, division in zip(self.types, self.orders, self.divisions, strict=True)
            if division is not None
        )


def sides_of(
    function: Function, module: ir.Module, meshes: Mapping[str, Mesh], devices: int
) -> tuple[Side, Side]:
    """(arguments, results); what is said of neither in `module` is left to Shardy's propagation."""
    types = (function.body.types, function.body.returned_types)
    attributes = (function.argument_attributes, function.result_attributes)
    orders = list(map(layouts, types, attributes))
    found = propagated(module, attributes) if devices > 1 else attributes
    given, made = (
        Side(
            side,
            order,
            tuple(
                divide(each, visible(type_), meshes, devices) if is_array(type_) else None
                for each, type_ in zip(group, side, strict=True)
            ),
        )
        for side, order, group in zip(types, orders, found, strict=True)
    )
    return given, made


def is_array(type_: ValueType) -> bool:
    """Whether users pass an array for it: for a token an empty one."""
    return isinstance(type_, (TensorType, TokenType))


def arguments_of(given: Side, devices: int, walker: Walker) -> tuple[Value, ...]:
    """The values of the arguments, each from its parts on all devices."""
    found: list[Value] = []
    count, own = len(given.types), walker.placement.own(devices)
    for k, (type_, order, division) in enumerate(
        zip(given.types, given.orders, given.divisions, strict=True)
    ):
        if division is None:
            found.append(None)
            continue
        kept = stored(in_order_type(division.local(visible(type_)), order))
        params = [param(n * count + k, kept.shape, kept.dtype) for n in range(len(own))]
        parts = [out_of_order(node, order) for node in params]
        if not walker.placement.is_shared:
            found.append(loaded(walker.divided.whole(parts, division), type_))
        elif isinstance(type_, TensorType):
            local = division.local(type_)
            pieces = {place: loaded(part, local) for place, part in zip(own, parts, strict=True)}
            found.append(settled(Pieces(type_, division, pieces, holders_of(walker)), walker))
        else:
            found.append(None)
    return tuple(found)


def holders_of(walker: Walker) -> list[Holders]:
    """Of each device of a program that several processes run, the one that has it."""
    return [frozenset([process]) for process in walker.placement.processes]


def buffers_of(
    results: Sequence[Value], made: Side, devices: int, walker: Walker
) -> tuple[Node, ...]:
    """What is stored for the results: all of the first device, then those of the second, ..."""
    buffers = [
        held(result, division, holders_of(walker), walker)
        for result, division in zip(results, made.divisions, strict=True)
    ]
    buffers = [each if isinstance(each, Pieces) else buffer_of(each) for each in buffers]
    return tuple(
        in_order(buffer_of(part_at(buffer, division, device, walker)), order)
        for device in walker.placement.own(devices)
        for buffer, order, division in zip(buffers, made.orders, made.divisions, strict=True)
    )


def signature_of(
    function: Function, given: Side, made: Side, devices: int, partitions: int
) -> Signature:
    """What users see of a function all of whose arguments and results are arrays; `devices` are
    those of this process."""
    inputs, outputs = given.local_types(), made.local_types()
    donors = [position for position, wanted in marked(function, "jax.buffer_donor") if wanted]
    if partitions > 1:
        donors = of_use(donors, inputs, outputs)
    orders = (*given.orders * devices, *made.orders * devices)
    plain = all(order == tuple(range(len(order))) for order in orders)
    attributes = (*function.argument_attributes * devices, *function.result_attributes * devices)
    divisions = (*given.divisions, *made.divisions) if partitions > 1 else ()
    return Signature(
        inputs * devices,
        outputs * devices,
        tuple(device * len(inputs) + n for device in range(devices) for n in donors),
        () if plain else orders,
        memories(attributes),
        tuple(hlo_text(division) for division in divisions if division is not None),
        devices,
        partitions,
    )


def aliases_of(
    function: Function, given: Side, made: Side, devices: int
) -> tuple[tuple[int, int], ...]:
    """(result, argument) pairs that share memory: those asked for that are alike."""
    inputs, outputs = given.local_types(), made.local_types()
    pairs: list[tuple[int, int]] = []
    for n, k in marked(function, "tf.aliasing_output"):
        if not isinstance(k, int) or not 0 <= k < len(outputs):
            raise InvalidProgram(f"tf.aliasing_output = {k}: @{function.name} has no such result")
        if made.orders[k] == given.orders[n] and outputs[k] == inputs[n]:
            pairs.append((k, n))
    return tuple(
        (device * len(outputs) + k, device * len(inputs) + n)
        for device in range(devices)
        for k, n in pairs
    )


def layouts(
    types: Sequence[ValueType], attributes: Sequence[Mapping[str, Any]]
) -> tuple[Order, ...]:
    """How arguments or results lie in memory, where JAX's users say it: "{0,1}", innermost first.

    Raises UnsupportedOp for tiles.
    """
    found: list[Order] = []
    for type_, given in zip(types, attributes, strict=True):
        rank = len(visible(type_).shape) if is_array(type_) else 0
        mode = str(given.get("mhlo.layout_mode", "default"))
        axes = re.fullmatch(r"\{((?:\d+(?:,\d+)*)?)\}", mode)
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
    found = tuple(str(given.get("mhlo.memory_kind", MEMORY_KINDS[0])) for given in attributes)
    if unknown := [kind for kind in found if kind not in MEMORY_KINDS]:
        hint = f"memory kinds are {', '.join(MEMORY_KINDS)}"
        raise UnsupportedOp((UnsupportedItem("mhlo.memory_kind", unknown[0], "", hint),))
    numbers = tuple(map(MEMORY_KINDS.index, found))
    return numbers if any(numbers) else ()


def marked(function: Function, name: str) -> list[tuple[int, Any]]:
    """(position, value) of the arguments with this attribute."""
    every = enumerate(function.argument_attributes)
    return [(position, given[name]) for position, given in every if name in given]


def of_use(
    donors: Sequence[int], inputs: Sequence[TensorType], outputs: Sequence[TensorType]
) -> list[int]:
    """The donors with memory for a result. With several devices JAX leaves it to the compiler which
    arguments these are, and users keep the others."""
    wanted = Counter(output.nbytes for output in outputs)
    found: list[int] = []
    for donor in donors:
        if wanted[inputs[donor].nbytes]:
            wanted[inputs[donor].nbytes] -= 1
            found.append(donor)
    return found
