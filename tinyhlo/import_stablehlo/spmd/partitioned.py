"""The arguments and results of a program for several devices.

    main(%x: f32[8,4] {sdy.sharding = <@mesh, [{"x"}, {}]>})   ->   x[0]: f32[4,4], x[1]: f32[4,4]

All devices share one memory. So a program runs once for all of them: its arguments are those of the
first device, then those of the second, and so on; whole arrays are joined from them, and results
are cut from whole arrays. Where the program does not say how a result is divided, Shardy's
propagation does. One device is the case where every part is the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.passmanager import PassManager

from tinyhlo.import_stablehlo.attributes import decode_attribute
from tinyhlo.import_stablehlo.context import bytecode_of, collect_diagnostics
from tinyhlo.import_stablehlo.decode import entry_of, functions_of
from tinyhlo.import_stablehlo.spmd.hlo_sharding import shardy_text
from tinyhlo.import_stablehlo.spmd.sharding import (
    WHOLE,
    Division,
    Mesh,
    division_at,
    parse_mesh,
    parse_shardings,
)
from tinyhlo.ir.graph import TensorType

SHARDING = "sdy.sharding"
HLO_SHARDING = "mhlo.sharding"  # what JAX wrote before there was Shardy
PROPAGATION = "builtin.module(sdy-propagation-pipeline)"


def divide(
    given: Mapping[str, Any], type_: TensorType, meshes: Mapping[str, Mesh], devices: int
) -> Division:
    """The division that the attributes of an argument or result ask for."""
    text = given.get(SHARDING, "")
    if not text and HLO_SHARDING in given:
        text = shardy_text(given[HLO_SHARDING], devices)
    shardings = parse_shardings(text)
    sharding, mesh = WHOLE
    if shardings and devices > 1:
        sharding = shardings[0]
        mesh = meshes[sharding.mesh] if sharding.mesh in meshes else parse_mesh(sharding.mesh)
    places = mesh.coordinates()
    if len(places) != devices:
        sharding, mesh = WHOLE
    at = [places.get(device, {}) for device in range(devices)]
    return division_at(sharding, mesh, type_.shape, at)


def propagated(
    module: ir.Module, attributes: Sequence[Sequence[Mapping[str, Any]]]
) -> Sequence[Sequence[Mapping[str, Any]]]:
    """The attributes of the entry's arguments and results, with the shardings that follow from
    those that are given. All are given: nothing to do."""
    if all(SHARDING in given for group in attributes for given in group):
        return attributes
    copy = propagate(module)
    entry = functions_of(copy)[entry_of(copy)]
    found: list[Sequence[Mapping[str, Any]]] = []
    for key, group in zip(("arg_attrs", "res_attrs"), attributes, strict=True):
        now = decode_attribute(entry.attributes[key]) if key in entry.attributes else group
        found.append(now or group)
    return found


def propagate(module: ir.Module) -> ir.Module:
    """A copy in which Shardy's propagation says how everything is divided; where it cannot, only
    what is given: whole values are right as well."""
    written = bytecode_of(module)
    copy = ir.Module.parse(written, module.context)
    with module.context, ir.Location.unknown(), collect_diagnostics(module.context):
        try:
            PassManager.parse(PROPAGATION).run(copy.operation)
        except ir.MLIRError:
            return ir.Module.parse(written, module.context)
    return copy
