"""Walk decoded functions and turn each op into nodes by its rule.

In: a `Decoder`, and `rules.rule_of`, which finds the rule of an op. Out: nodes for the results of
the entry function.

Calls are inlined here: the callee's block is walked with the caller's nodes as arguments (or
remembered, when it was walked with the same nodes before). Hash-consing of nodes is the common
subexpression elimination. After an op that cannot be compiled the walk goes on with zeros, so that
one error can name every such op of the module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar, Union

from tinyhlo.errors import UnsupportedItem, VerificationError
from tinyhlo.import_stablehlo.decode import Decoder
from tinyhlo.import_stablehlo.lifted.complex_numbers import Complex
from tinyhlo.import_stablehlo.lifted.lifting import flat_types, flatten, matches, unflatten, zeros
from tinyhlo.import_stablehlo.locations import Place
from tinyhlo.import_stablehlo.precision import Rounded
from tinyhlo.import_stablehlo.records import Block, Operation, TupleType, ValueType
from tinyhlo.import_stablehlo.spmd.divided import Divided
from tinyhlo.import_stablehlo.spmd.pieces import Pieces
from tinyhlo.import_stablehlo.spmd.sharding import Mesh, parse_mesh
from tinyhlo.ir.build import param
from tinyhlo.ir.graph import (
    Constant,
    Expand,
    Graph,
    Iota,
    Locations,
    Node,
    Reshape,
    TensorType,
    maker,
)
from tinyhlo.ir.scalars import scalarised
from tinyhlo.placement import HERE, Placement

# None: a token, or of a type that is not compiled. Pieces: of programs that several processes run
Value = Union[Node, Complex, Pieces, tuple["Value", ...], None]
Walked = TypeVar("Walked")
Rule = Callable[[Operation, tuple[Any, ...], "Scope"], Union[Node, Complex, Sequence[Value]]]

NO_RULE = (
    "tinyhlo cannot compile this op yet: run this function on XLA, by putting its arguments on "
    "jax.devices('cpu')[0]"
)
INNER_EFFECT = "its region has effects: only loops and branches may have them"
OUTER_VALUE = "its region reads values from outside: pass them as operands"


SHAPE, DTYPE = "type.shape", "type.dtype"  # of the result; no attribute is called so


def on_values(function: Callable[..., Any], *names: str) -> Rule:
    """The rule of an op that is a function of its operands, and of the attributes named, SHAPE
    and DTYPE among them."""
    getters = [
        attrgetter(name) if name in (SHAPE, DTYPE) else partial(attribute, name) for name in names
    ]

    def rule(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Any:
        return function(*inputs, *(get(operation) for get in getters))

    return rule


def attribute(name: str, operation: Operation) -> Any:
    return operation.attributes[name]


class UnsupportedError(Exception):
    """Raised by a rule for an op that it cannot express; the text is the hint for the user."""


class Walker:
    """The state of one import: what was found unsupported, where nodes come from, call results.
    `per_device`: whether a per-device body is being walked; `device`: the one whose copy of such a
    body is, where copies are walked one by one; `parted`: whether what is being walked runs for
    copies too that do not come by, whose values may then be any."""

    placement: Placement = HERE
    name: str = ""
    per_device = False
    device = 0
    parted = False

    def __init__(
        self,
        decoder: Decoder,
        rule_of: Callable[[Operation], Rule | None],
        together: Mapping[str, Any],
        rounded: Rounded,
    ) -> None:
        self.decoder = decoder
        self.rule_of = rule_of
        self.together = together  # rules of ops that see all devices, see `spmd/teams.py`
        self.rounded = rounded
        self.known_contents: dict[tuple[int, str], bool] = {}  # see `spmd/teams.py`
        self.divided = Divided()
        self._places: dict[Node, tuple[Any, Place | None]] = {}
        self.lines = Locations(self._places, lambda place: Place(*place).line, self._places)
        self._items: dict[tuple[str, str], UnsupportedItem] = {}
        self._calls: dict[tuple[Any, ...], tuple[Value, ...]] = {}
        self._surveyed: set[int] = set()
        self._caller: Place | None = None  # the call being walked
        self._effects: list[Node] = []  # of the region being walked
        self._effect_count = 0
        self.wholes: dict[Pieces, Value] = {}  # of the region being walked

    @property
    def unsupported(self) -> tuple[UnsupportedItem, ...]:
        """Each kind of op that could not be compiled, in program order, at its first place."""
        return tuple(self._items.values())

    def call(self, callee: str, inputs: tuple[Value, ...], location: Any) -> tuple[Value, ...]:
        """Results of a function for these arguments, called at `location`."""
        key = (callee, inputs, self.device, self.parted)
        found = self._calls.get(key)
        if found is None:
            body = self.decoder.function(callee).body
            outer, self._caller = self._caller, Place(location, self._caller)
            effects = self._effect_count
            found = self.run(body, inputs, {})
            self._caller = outer
            if not body.effect and self._effect_count == effects:  # one happens at every call
                self._calls[key] = found
        return found

    def collect(self, walk: Callable[[], Walked]) -> tuple[Walked, tuple[Node, ...]]:
        """What `walk` returns, and the effects that it came upon."""
        around, self._effects, self.wholes = (self._effects, self.wholes), [], {}
        try:
            return walk(), tuple(self._effects)
        finally:
            self._effects, self.wholes = around

    def within_device(self, walk: Callable[[], Walked]) -> Walked:
        """What `walk` returns, which is per device."""
        around, self.per_device = self.per_device, True
        try:
            return walk()
        finally:
            self.per_device = around

    def within_ways(self, walk: Callable[[], Walked], parted: bool) -> Walked:
        """What `walk` returns, which runs for copies too that do not come by if `parted`."""
        around, self.parted = self.parted, self.parted or parted
        try:
            return walk()
        finally:
            self.parted = around

    def add_effect(self, outputs: Sequence[Node]) -> None:
        """The node with these outputs runs for its effect, after the effects before it."""
        node = outputs[0]
        self._effects.append(maker(node))

    def effect_number(self) -> int:
        """A number that no other effectful call of this program has."""
        self._effect_count += 1
        return self._effect_count - 1

    def run(
        self, block: Block, arguments: Sequence[Value], outer: Mapping[int, Value]
    ) -> tuple[Value, ...]:
        """Results of a block, for its arguments and the captured values in `outer`."""
        values: dict[int, Value] = {slot: outer[slot] for slot in block.captures}
        values.update(zip(block.arguments, arguments, strict=True))
        scope = Scope(self, values)
        for operation in block.operations:
            self.prepare(operation, values)
            inputs = tuple([values[slot] for slot in operation.operands])
            results = self.step(operation, inputs, scope)
            for slot, value in zip(operation.results, results, strict=True):
                values[slot] = value
        return tuple([values[slot] for slot in block.returned])

    def prepare(self, operation: Operation, values: dict[int, Value]) -> None:
        """Before an op: all it reads is here (but see `spmd/spread.py`)."""

    def step(
        self, operation: Operation, inputs: tuple[Value, ...], scope: Scope
    ) -> tuple[Value, ...]:
        """Results of one op."""
        try:
            results = apply_rule(self.rule_of(operation), operation, inputs, scope)
        except UnsupportedError as reason:
            self.refuse(operation, str(reason))
            results = tuple(map(placeholder, operation.types))
        self.note(operation, results)
        return tuple(results)

    def note(self, operation: Operation, results: Sequence[Value]) -> None:
        """Remember where the nodes of these results come from."""
        for value in results:
            for node in flatten((value,)) if isinstance(value, (Node, Complex)) else ():
                if node not in self._places:  # the first place wins
                    self._places[node] = (operation.location, self._caller)

    def mesh(self, name: str) -> Mesh:
        """A mesh by its symbol, or by its text."""
        return self.decoder.meshes[name] if name.startswith("@") else parse_mesh(name)

    def line(self, operation: Operation) -> str:
        """The user's source line of an op that is being walked."""
        return Place(operation.location, self._caller).line

    def refuse(self, operation: Operation, hint: str) -> None:
        """Note an unsupported op, and every one inside its regions."""
        key = (operation.name, operation.signature)
        if key not in self._items:
            name, signature = operation.name, operation.signature
            if "call_target_name" in operation.attributes:
                name = f"{name} @{operation.attributes['call_target_name']}"
            self._items[key] = UnsupportedItem(name, signature, self.line(operation), hint)
        for region in operation.regions:
            self._survey(region)

    def _survey(self, block: Block) -> None:
        """Find unsupported ops by name and types only, where values are not known."""
        if id(block) in self._surveyed:
            return
        self._surveyed.add(id(block))
        for operation in block.operations:
            if operation.name == "func.call":
                self._survey(self.decoder.function(operation.attributes["callee"]).body)
            elif operation.refusal or self.rule_of(operation) is None:
                self.refuse(operation, operation.refusal or NO_RULE)
            for region in operation.regions:
                self._survey(region)


def apply_rule(
    rule: Rule | None, operation: Operation, inputs: tuple[Value, ...], scope: Scope
) -> Sequence[Value]:
    """Results of one op."""
    if operation.refusal and operation.name != "func.call":
        raise UnsupportedError(operation.refusal)
    if rule is None:
        raise UnsupportedError(NO_RULE)
    results = rule(operation, inputs, scope)
    if isinstance(results, (Node, Complex)):
        results = (results,)
    return checked(operation, results)


def checked(operation: Operation, results: Sequence[Value]) -> Sequence[Value]:
    """The results of an op, held against the types that the module states."""
    for value, stated in zip(results, operation.types, strict=True):
        if isinstance(value, Pieces):  # of a function's result
            continue
        if not (isinstance(value, Node) and value.type == stated) and not matches(value, stated):
            found = ", ".join(str(node.type) for node in flatten([value]))
            raise VerificationError(f"{operation.name} gave {found}, expected {stated}")
    return results


def placeholder(type_: ValueType) -> Value:
    """Something to go on with after an unsupported op."""
    match type_:
        case TensorType():
            return zeros(type_)
        case TupleType(members):
            return tuple(map(placeholder, members))
        case _:
            return None


class Scope:
    """What a rule with regions may ask: the values around the op, and regions as Graphs."""

    def __init__(self, walker: Walker, values: Mapping[int, Value]) -> None:
        self.walker = walker
        self.values = values

    def graph(self, block: Block) -> Graph:
        """A region of scalars as a Graph whose params are its arguments; a complex one is two
        params. It is elementwise where it can be so written (`in_turn.py` is for the others).

        Raises UnsupportedError when it has effects, or reads outer values that are no constants.
        """
        types: list[Any] = flat_types(block.types)
        if not all(isinstance(type_, TensorType) for type_ in types):
            raise UnsupportedError("its region has arguments that are no tensors")
        if not all(is_closed(self.values[slot]) for slot in block.captures):
            raise UnsupportedError(OUTER_VALUE)
        params = [param(k, type_.shape, type_.dtype) for k, type_ in enumerate(types)]
        arguments = unflatten(params, block.types)
        results, effects = self.walker.collect(
            lambda: self.walker.run(block, arguments, self.values)
        )
        if effects:
            raise UnsupportedError(INNER_EFFECT)
        graph = Graph(tuple(types), tuple(flatten(results)), (), self.walker.lines)
        return scalarised(graph) or graph


def is_closed(value: Value) -> bool:
    """Whether a value is a constant, iota or token, which a region can simply repeat."""
    if isinstance(value, Complex):
        return is_closed(value.re) and is_closed(value.im)
    while isinstance(value, (Expand, Reshape)):
        value = value.inputs[0]
    return value is None or isinstance(value, (Constant, Iota))
