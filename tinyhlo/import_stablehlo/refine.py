"""Give a shape-polymorphic program the shapes of one call.

In: a module whose `main` takes `tensor<?x4xf32>`, and the types of the arrays at hand. Out: a
module in which every shape is known.

    static = refine_source(artifact, [TensorType((2, 4), F32)])

jaxlib's own passes do the work: the arguments get their types, shapes flow through the program,
and the assertions that JAX wrote about dimensions (`b >= 2`) are checked; one that fails is an
ExecutionError with JAX's text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jaxlib import _jax  # type: ignore[reportAttributeAccessIssue]
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.passmanager import PassManager

from tinyhlo.errors import ExecutionError, InvalidProgram, UnsupportedItem, UnsupportedOp
from tinyhlo.import_stablehlo.context import bytecode_of, collect_diagnostics, parse_module
from tinyhlo.import_stablehlo.decode import entry_of, functions_of
from tinyhlo.import_stablehlo.records import names
from tinyhlo.import_stablehlo.types import tensor_of
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import TensorType
from tinyhlo.records import dataclass

stablehlo.register_stablehlo_passes()

# ops that jaxlib's passes turn into others once their shape operands are known
DYNAMIC = names("dynamic_conv dynamic_gather dynamic_pad get_dimension_size real_dynamic_slice")
ASSERTION = re.compile(r'error: loc\("shape_assertion"\): (.*)')
PASS_SHAPES = (
    "its shape is not known before the call: call it with arrays by tinyhlo.load, `tinyhlo run` or "
    "jax.export.deserialize, or export it for one shape"
)


@dataclass(frozen=True, slots=True)
class ArgumentType:
    """`f32[?,4]`: an argument whose sizes of None are those of the array given."""

    shape: tuple[int | None, ...]
    dtype: DType

    def __str__(self) -> str:
        sizes = ("?" if size is None else str(size) for size in self.shape)
        return f"{self.dtype}[{','.join(sizes)}]"


class DynamicShapes(UnsupportedOp):
    """The program needs the shapes of its arguments before it can be compiled.

    `arguments`: what they must look like.
    """

    def __init__(self, arguments: tuple[ArgumentType, ...]) -> None:
        self.arguments = arguments
        super().__init__(
            tuple(
                UnsupportedItem(f"dynamic argument {position}", str(argument), "", PASS_SHAPES)
                for position, argument in enumerate(arguments)
                if None in argument.shape
            )
        )


def refined_bytes(module: ir.Module, types: Sequence[TensorType]) -> bytes:
    """Bytecode of the program for arguments of these types; of none for one without `?` there.

    Raises ExecutionError when an assertion about shapes does not hold, UnsupportedOp when shapes
    remain that depend on values.
    """
    options = ",".join(f"tensor<{'x'.join((*map(str, t.shape), str(t.dtype)))}>" for t in types)
    pipeline = f"builtin.module(stablehlo-refine-arguments{{types={options}}})"
    with module.context, ir.Location.unknown(), collect_diagnostics(module.context) as complaints:
        try:
            if types:
                PassManager.parse(pipeline).run(module.operation)
            return _jax.mlir.refine_polymorphic_shapes(
                bytecode_of(module),
                enable_shape_assertions=True,
                validate_static_shapes=False,  # the importer names every op that stays dynamic
                enable_shardy=True,
            )
        except (ir.MLIRError, RuntimeError, ValueError) as error:
            raise refinement_error("\n".join([*complaints, str(error)])) from error


def refine_source(source: bytes | str, types: Sequence[TensorType]) -> bytes:
    """Bytecode of a program for arguments of these types."""
    return refined_bytes(parse_module(source), types)


def refinement_error(text: str) -> ExecutionError | InvalidProgram:
    """What failed, without the passes' own words."""
    broken = list(dict.fromkeys(ASSERTION.findall(text)))
    if broken:
        return ExecutionError("; ".join(broken))
    errors = re.findall(r"error: (?:loc\([^)]*\): )?(.*)", text) or [text]
    return InvalidProgram(f"the program does not fit the shapes of its arguments: {errors[0]}")


def needs_refining(error: UnsupportedOp) -> bool:
    """Whether an import failed for shapes that may follow from those of the arguments."""
    return any(
        item.op in DYNAMIC or "?" in item.types or "shape_assertion" in item.op
        for item in error.items
    )


def with_known_shapes(module: ir.Module) -> ir.Module:
    """A program whose inner shapes follow from those of its arguments.

    Raises DynamicShapes when these are not known either.
    """
    entry = functions_of(module)[entry_of(module)]
    arguments = argument_types([str(a.type) for a in entry.regions[0].blocks[0].arguments])
    if arguments is not None and any(None in argument.shape for argument in arguments):
        raise DynamicShapes(arguments)
    return parse_module(refined_bytes(module, ()))


def argument_types(types: Sequence[str]) -> tuple[ArgumentType, ...] | None:
    """The entry's arguments from the texts of their types; None when one is no tensor."""
    tensors = list(map(tensor_of, types))
    return None if None in tensors else tuple(ArgumentType(*t) for t in tensors if t is not None)
