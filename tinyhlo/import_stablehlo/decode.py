"""Read MLIR into records, once per function, dropping operations whose results nobody uses.

In: an `ir.Module`. Out: `Function`s by name, read when first asked for.

    Decoder(module).function("main").body.operations

After this nothing of MLIR is touched, except locations when somebody asks for their text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import replace
from functools import cached_property
from typing import Any

from jaxlib.mlir import ir

from tinyhlo.errors import InvalidProgram
from tinyhlo.import_stablehlo.attributes import (
    decode_attribute,
    decode_complex_constant,
    decode_configuration,
)
from tinyhlo.import_stablehlo.chlo import chlo_key, legalize
from tinyhlo.import_stablehlo.lifted.lifting import form_of, is_complex
from tinyhlo.import_stablehlo.records import (
    CONSTANTS,
    Block,
    Form,
    Function,
    Operation,
    OtherType,
    ValueType,
    names,
)
from tinyhlo.import_stablehlo.spmd.sharding import Mesh, parse_mesh
from tinyhlo.import_stablehlo.types import decode_type

TERMINATORS = frozenset({"stablehlo.return", "func.return", "sdy.return"})
EFFECTS = names("infeed outfeed send recv rng")  # ops that run even if no result is used
PRECISE = frozenset({"HIGH", "HIGHEST"})
Slots = dict[ir.Value, tuple[int, ValueType]]


def functions_of(module: ir.Module) -> dict[str, ir.Operation]:
    """The functions of a module by name."""
    return {
        decode_attribute(operation.attributes["sym_name"]): operation.operation
        for operation in module.body.operations
        if operation.operation.name == "func.func"
    }


def meshes_of(module: ir.Module) -> dict[str, Mesh]:
    """Meshes of devices by symbol, as "@mesh"."""
    return {
        f"@{decode_attribute(op.operation.attributes['sym_name'])}": parse_mesh(
            str(op.operation.attributes["mesh"])
        )
        for op in module.body.operations
        if op.operation.name == "sdy.mesh"
    }


def calls_of(operation: ir.Operation, targets: Set[str]) -> Iterator[ir.Operation]:
    """The custom calls of some targets inside of an op."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                if target_of(inner.operation) in targets:
                    yield inner.operation
                yield from calls_of(inner.operation, targets)


def target_of(operation: ir.Operation) -> str:
    """What a custom call calls; nothing for other ops."""
    if operation.name != "stablehlo.custom_call":
        return ""
    return decode_attribute(operation.attributes["call_target_name"])


def entry_of(module: ir.Module) -> str:
    """Name of the function to compile: `main`, else the only public one."""
    functions = functions_of(module)
    if "main" in functions:
        return "main"
    public = [
        name
        for name, operation in functions.items()
        if "sym_visibility" not in operation.attributes
        or decode_attribute(operation.attributes["sym_visibility"]) != "private"
    ]
    if len(public) != 1:
        raise InvalidProgram("the module has no function @main")
    return public[0]


class Decoder:
    """Functions of one module, decoded on demand. Types and attributes are decoded once each.
    Ops without a rule of ours are expanded, where jaxlib has a pass for them."""

    def __init__(self, module: ir.Module, rule_of: Callable[[Operation], object | None]) -> None:
        self._module = module  # operations die with their module
        self._rule_of = rule_of
        self._operations = functions_of(module)
        self._functions: dict[str, Function] = {}
        self._expanding: set[str] = set()
        self._types: dict[ir.Type, ValueType] = {}
        self._has_other_types = False
        self._has_lifted_types = False
        self._attributes: dict[ir.Attribute, Any] = {}
        self.precise = False  # an op asks for more than the default precision

    @cached_property
    def meshes(self) -> dict[str, Mesh]:
        """Meshes of devices by symbol, as "@mesh"."""
        return meshes_of(self._module)

    def function(self, name: str) -> Function:
        """The function `name`. Raises InvalidProgram when the module has none."""
        found = self._functions.get(name)
        if found is None:
            if name not in self._operations:
                raise InvalidProgram(f"the module has no function @{name}")
            found = self._functions[name] = self._function(name, self._operations[name])
        return found

    def _function(self, name: str, operation: ir.Operation) -> Function:
        blocks = operation.regions[0].blocks
        if len(blocks) != 1:
            raise InvalidProgram(f"function @{name} must have a body of one block")
        body = self._block(blocks[0], {})
        try:
            given = {
                key: self._attribute(operation.attributes[key])
                for key in ("arg_attrs", "res_attrs")
                if key in operation.attributes
            }
        except TypeError as error:
            raise InvalidProgram(f"an attribute of @{name}'s signature is no value") from error
        arguments = given.get("arg_attrs") or ({},) * len(body.arguments)
        return Function(name, body, arguments, given.get("res_attrs") or ({},) * len(body.returned))

    def _block(self, block: ir.Block, slots: Slots) -> Block:
        arguments = tuple(block.arguments)
        outer = len(slots)
        types = tuple([self._type(argument.type) for argument in arguments])
        for argument, type_ in zip(arguments, types, strict=True):
            slots[argument] = (len(slots), type_)
        operations: list[Operation] = []
        returned: tuple[int, ...] = ()
        returned_types: tuple[ValueType, ...] = ()
        for view in block.operations:
            operation = view.operation
            if operation.name in TERMINATORS:
                returned = tuple([slots[value][0] for value in operation.operands])
                returned_types = tuple([slots[value][1] for value in operation.operands])
            else:
                operations.append(self._operation(operation, slots))
        live, needed = live_operations(operations, returned)
        return Block(
            arguments=tuple(range(outer, outer + len(arguments))),
            types=types,
            operations=live,
            returned=returned,
            returned_types=returned_types,
            captures=tuple(sorted(slot for slot in needed if slot < outer)),
            effect=any(operation.effect for operation in live),
        )

    def _operation(self, operation: ir.Operation, slots: Slots) -> Operation:
        name = operation.name
        attributes = self._attributes_of(operation)
        self.precise = self.precise or not PRECISE.isdisjoint(
            attributes.get("precision_config", ())
        )
        operands = [slots[value] for value in operation.operands]
        operand_types = tuple([type_ for _, type_ in operands])
        types = tuple([self._type(value.type) for value in operation.results])
        regions: tuple[Block, ...] = ()
        effect = name in EFFECTS
        if len(operation.regions):
            blocks = [block for region in operation.regions for block in region.blocks]
            regions = tuple([self._block(block, slots) for block in blocks])
            effect = effect or any(region.effect for region in regions)
        if name == "stablehlo.custom_call":
            effect = bool(attributes.get("has_side_effect"))
            attributes |= configuration_of(operation)
        elif name == "func.call":
            effect = self.function(attributes["callee"]).body.effect
        first = len(slots)
        for value, type_ in zip(operation.results, types, strict=True):
            slots[value] = (len(slots), type_)
        every = (*operand_types, *types)
        found = Operation(
            name=name,
            operands=tuple([slot for slot, _ in operands]),
            results=tuple(range(first, len(slots))),
            operand_types=operand_types,
            types=types,
            refusal=refusal_of(every) if self._has_other_types else "",
            attributes=attributes,
            regions=regions,
            location=operation.location,
            effect=effect,
            form=form_of(every) if self._has_lifted_types else Form.PLAIN,
        )
        if is_expandable(found) and self._rule_of(found) is None:
            callee = self._legalized(operation)
            if callee is not None:
                return replace(found, name="func.call", attributes={"callee": callee})
        return found

    def _legalized(self, operation: ir.Operation) -> str | None:
        """The private function that holds a CHLO op's expansion; None when jaxlib has none."""
        key = chlo_key(operation)
        if key in self._functions:
            return key
        if key in self._expanding:  # its expansion contains the op itself, or failed before
            return None
        self._expanding.add(key)
        try:
            module = legalize(operation)
        except ir.MLIRError:
            return None
        self._functions[key] = self._function(key, module.body.operations[0].operation)
        return key

    def _type(self, type_: ir.Type) -> ValueType:
        found = self._types.get(type_)
        if found is None:
            found = self._types[type_] = decode_type(type_)
            self._has_other_types = self._has_other_types or isinstance(found, OtherType)
            self._has_lifted_types = self._has_lifted_types or form_of([found]) is not Form.PLAIN
        return found

    def _attributes_of(self, operation: ir.Operation) -> dict[str, Any]:
        """All attributes of an op. Complex elements, which the bindings refuse to give (printing
        all of them into the error), are read from the op's text."""
        if operation.name in CONSTANTS and is_complex(self._type(operation.results[0].type)):
            return {"value": decode_complex_constant(operation)}
        values = operation.attributes
        try:
            return {key: self._attribute(value) for key, value in values.items()}
        except TypeError as error:  # such as a location in place of a number
            raise InvalidProgram(f"an attribute of {operation.name} is no value") from error

    def _attribute(self, attribute: ir.Attribute) -> Any:
        try:
            return self._attributes[attribute]
        except KeyError:
            value = self._attributes[attribute] = decode_attribute(attribute)
            return value


def configuration_of(operation: ir.Operation) -> dict[str, Any]:
    """The attributes of a custom call that are meant for its target."""
    given = operation.attributes
    return {
        key: decode_configuration(ir.DictAttr(given[key]))
        for key in ("mhlo.backend_config", "backend_config")
        if key in given and isinstance(given[key], ir.DictAttr)
    }


def refusal_of(types: Iterable[ValueType]) -> str:
    """What to tell the user of types that cannot be compiled."""
    return next((type_.hint for type_ in types if isinstance(type_, OtherType)), "")


def is_expandable(operation: Operation) -> bool:
    """Whether jaxlib's passes may know how to write an op as several others."""
    return operation.name.startswith("chlo.") or operation.form is Form.COMPLEX


def live_operations(
    operations: list[Operation], returned: tuple[int, ...]
) -> tuple[tuple[Operation, ...], set[int]]:
    """(operations that a result or an effect needs, every slot they and `returned` read)."""
    needed = set(returned)
    live: list[Operation] = []
    for operation in reversed(operations):
        if operation.effect or not needed.isdisjoint(operation.results):
            live.append(operation)
            needed.update(operation.operands)
            for region in operation.regions:
                needed.update(region.captures)
    live.reverse()
    return tuple(live), needed
