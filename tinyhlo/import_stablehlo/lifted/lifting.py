"""Ops on complex and small element types, by the rules for plain tensors.

In: the rule of an op for plain tensors, and an op that has operands or results of other element
types. Out: its results.

    add(complex, complex)         ->  the rule of add on each plane
    multiply(complex, complex)    ->  a rule of its own (complex_arithmetic.RULES)
    while(..., complex, ...)      ->  two pieces of state
    add(f8E5M2, f8E5M2)           ->  decode both to f32, add, encode
    transpose(f8E5M2)             ->  transpose of the bits
    gather(f32, i4)               ->  the rule of gather, at indices that are i8

A complex value is a `Complex`, a value of a small type a node of its bits (ui8), a token None:
it consists of no nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from tinyhlo.import_stablehlo.lifted.complex_numbers import Complex
from tinyhlo.import_stablehlo.lifted.small_types import compute_type, decode, encode
from tinyhlo.import_stablehlo.lifted.updates import of_pairs
from tinyhlo.import_stablehlo.records import Form, Operation, TokenType, TupleType, ValueType, names
from tinyhlo.import_stablehlo.spmd.pieces import Pieces
from tinyhlo.ir.build import cast, full
from tinyhlo.ir.dtypes import U8, DType
from tinyhlo.ir.elements import PLANES, SMALL
from tinyhlo.ir.graph import Node, TensorType

# ops that only move elements: on a plane or on bits they do what they do on numbers
MOVES = names(
    """
    broadcast broadcast_in_dim concatenate dynamic_broadcast_in_dim dynamic_reshape dynamic_slice
    dynamic_update_slice gather pad reshape reverse select slice torch_index_select transpose
    """
)
LINEAR = MOVES | names("add negate subtract unary_einsum")
# ops over any number of values: each plane is a value of its own
VARIADIC = names("map optimization_barrier reduce reduce_window scatter sort") | {
    "sdy.propagation_barrier",
    "sdy.reshard",
    "sdy.sharding_constraint",
}
# ops whose rules handle values of every kind themselves
STRUCTURAL = names(
    """
    after_all all_gather all_reduce all_to_all async_done async_start case cholesky
    collective_broadcast collective_permute composite custom_call get_tuple_element if
    reduce_scatter triangular_solve tuple while
    """
) | {"func.call", "sdy.manual_computation"}


def form_of(types: Iterable[ValueType]) -> Form:
    """The form of an op with these operand and result types."""
    return max(map(form_of_one, types), default=Form.PLAIN)


def form_of_one(type_: ValueType) -> Form:
    match type_:
        case TupleType(members):
            return form_of(members)
        case TensorType(dtype=dtype) if dtype in PLANES:
            return Form.COMPLEX
        case TensorType(dtype=dtype) if dtype in SMALL:
            return Form.SMALL
        case _:
            return Form.PLAIN


def flat_types(types: Iterable[ValueType]) -> list[ValueType]:
    """The types of the nodes that values of `types` consist of."""
    return [
        TensorType(type_.shape, U8) if is_small(type_) else type_  # type: ignore[union-attr]
        for type_ in plane_types(types)
    ]


def plane_types(types: Iterable[ValueType]) -> list[ValueType]:
    """The element types of those nodes: small ones are what the bits mean."""
    flat: list[ValueType] = []
    for type_ in types:
        if isinstance(type_, TensorType) and type_.dtype in PLANES:
            flat += [TensorType(type_.shape, PLANES[type_.dtype])] * 2
        elif not isinstance(type_, TokenType):
            flat.append(type_)
    return flat


def as_params(
    params: Iterable[ValueType], types: Iterable[ValueType], nodes: Iterable[Node]
) -> list[Node]:
    """The nodes of values of `types` as params of a region of tensors, whose types may be wider."""
    wanted: list[Any] = plane_types(params)
    given: list[Any] = plane_types(types)
    return [
        converted(node, own.dtype, param.dtype)
        for node, own, param in zip(nodes, given, wanted, strict=True)
    ]


def converted(node: Node, source: DType, target: DType) -> Node:
    """Elements of one type as those of another, which has all of them."""
    if source is target:
        return node
    value = decode(node, source) if source in SMALL else node
    return encode(value, target) if target in SMALL else cast(value, target)


def flatten(values: Iterable[Any]) -> list[Any]:
    """The nodes that values consist of."""
    flat: list[Any] = []
    for value in values:
        if isinstance(value, Pieces):
            flat += flatten(value.own.values())
        elif value is not None:
            flat += value.planes if isinstance(value, Complex) else (value,)
    return flat


def unflatten(nodes: Iterable[Any], types: Iterable[ValueType]) -> list[Any]:
    """Values of `types` from their nodes."""
    following = iter(nodes)
    return [value_of(type_, following) for type_ in types]


def value_of(type_: ValueType, following: Iterator[Any]) -> Any:
    """The value of a type that the next nodes make."""
    if isinstance(type_, TokenType):
        return None
    return Complex(next(following), next(following)) if is_complex(type_) else next(following)


def is_complex(type_: ValueType) -> bool:
    return isinstance(type_, TensorType) and type_.dtype in PLANES


def is_small(type_: ValueType) -> bool:
    return isinstance(type_, TensorType) and type_.dtype in SMALL


def zeros(type_: TensorType) -> Node | Complex:
    """Zeros of any element type."""
    if type_.dtype in PLANES:
        plane = full(0, type_.shape, PLANES[type_.dtype])
        return Complex(plane, plane)
    return full(0, type_.shape, U8 if type_.dtype in SMALL else type_.dtype)


def matches(value: Any, stated: ValueType) -> bool:
    """Whether a rule's result is of the type that the module states."""
    if not isinstance(value, (Node, Complex)):
        return True
    return [node.type for node in flatten([value])] == flat_types([stated])


def lifted(rule: Any, operation: Operation) -> Any:
    """The rule for an op on complex or small types, made from the one for plain tensors; None
    when complex numbers need a rule of their own."""
    if operation.name in STRUCTURAL or operation.name.startswith("chlo.broadcast_"):
        return rule
    if any(is_small(operation.operand_types[k]) for k in indices_of(operation)):
        return partial(at_wide_indices, rule)
    if operation.name in VARIADIC:
        return partial(by_values, rule)
    if operation.form is Form.COMPLEX:
        return partial(by_planes, rule) if operation.name in LINEAR else None
    return partial(on_bits if operation.name in MOVES else decoded, rule)


def indices_of(operation: Operation) -> range:
    """Which operands say where the op reads or writes."""
    count = len(operation.operand_types)
    match operation.name:
        case "stablehlo.gather" | "stablehlo.dynamic_slice" | "stablehlo.torch_index_select":
            return range(1, count)
        case "stablehlo.dynamic_update_slice":
            return range(2, count)
        case "stablehlo.scatter":
            return range(count // 2, count // 2 + 1)
        case _:
            return range(0)


def at_wide_indices(rule: Any, operation: Operation, inputs: tuple[Any, ...], scope: Any) -> Any:
    """Small indices as numbers; then the rule, lifted where the elements are not plain."""
    values, types = list(inputs), list(operation.operand_types)
    for k in indices_of(operation):
        type_ = types[k]
        if isinstance(type_, TensorType) and type_.dtype in SMALL:
            values[k] = decode(values[k], type_.dtype)
            types[k] = values[k].type
    form = form_of((*types, *operation.types))
    wide = replace(operation, operand_types=tuple(types), form=form)
    return (rule if form is Form.PLAIN else lifted(rule, wide))(wide, tuple(values), scope)


def by_values(rule: Any, operation: Operation, inputs: tuple[Any, ...], scope: Any) -> Any:
    """Each plane a value of its own."""
    flat = replace(
        operation,
        operand_types=tuple(plane_types(operation.operand_types)),
        types=tuple(flat_types(operation.types)),
    )
    results = rule(flat, tuple(flatten(inputs)), scope)
    values = unflatten([results] if isinstance(results, Node) else results, operation.types)
    return [of_pairs(value) if isinstance(value, Complex) else value for value in values]


def by_planes(rule: Any, operation: Operation, inputs: tuple[Any, ...], scope: Any) -> Any:
    """The real part of the result from the real parts, the imaginary part from the others."""
    plain = with_types(operation, plane_type)
    parts = [
        rule(plain, tuple(plane_of(value, position) for value in inputs), scope)
        for position in (0, 1)
    ]
    return of_pairs(Complex(*parts))


def on_bits(rule: Any, operation: Operation, inputs: tuple[Any, ...], scope: Any) -> Any:
    """Bits are moved like any other elements."""
    return rule(with_types(operation, stored_type), inputs, scope)


def decoded(rule: Any, operation: Operation, inputs: tuple[Any, ...], scope: Any) -> Any:
    """Decode the operands, apply the rule in wider types, encode the results."""
    wide = with_types(operation, compute_type)
    operands = [
        decode(value, type_.dtype) if is_small(type_) else value  # type: ignore[union-attr]
        for value, type_ in zip(inputs, operation.operand_types, strict=True)
    ]
    results = rule(wide, tuple(operands), scope)
    if isinstance(results, Node):
        results = (results,)
    return [
        encode(value, type_.dtype) if is_small(type_) else value  # type: ignore[union-attr]
        for value, type_ in zip(results, operation.types, strict=True)
    ]


def plane_of(value: Any, position: int) -> Any:
    return value.planes[position] if isinstance(value, Complex) else value


def plane_type(dtype: DType) -> DType:
    return PLANES.get(dtype, dtype)


def stored_type(dtype: DType) -> DType:
    return U8 if dtype in SMALL else dtype


def with_types(operation: Operation, change: Any) -> Operation:
    """The op with other element types."""

    def changed(type_: ValueType) -> ValueType:
        if isinstance(type_, TensorType):
            return TensorType(type_.shape, change(type_.dtype))
        return type_

    return replace(
        operation,
        operand_types=tuple(map(changed, operation.operand_types)),
        types=tuple(map(changed, operation.types)),
    )
