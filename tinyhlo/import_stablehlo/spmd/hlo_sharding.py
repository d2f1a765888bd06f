"""Shardings in XLA's own words, which JAX reads, and wrote before there was Shardy.

    {devices=[4,1,2]<=[8] last_tile_dim_replicate}

The first axis of an array is in 4 tiles, the second whole, and each tile on two devices.
"""

from __future__ import annotations

from tinyhlo.errors import InvalidProgram
from tinyhlo.import_stablehlo.spmd.sharding import Division, Part
from tinyhlo.ir.ops import Op

REPLICATED = "{replicated}"
REDUCTION = ' metadata={{op_type="sdy::reduction_op" op_name="{}"}}'


def hlo_text(division: Division) -> str:
    """A division among devices as XLA writes it. That the parts of an array that is not reduced yet
    are not to be added, but their maximum found, stands in the metadata, as in XLA."""
    parts, shares = division.parts, division.shares
    owners: dict[tuple[Part, int], list[int]] = {}
    for device, (part, share) in enumerate(zip(parts, shares, strict=True)):
        owners.setdefault((part, share or 0), []).append(device)
    if len(owners) == 1:
        return REPLICATED
    tiles = [len(set(bounds)) for bounds in zip(*parts, strict=True)]
    devices = ",".join(str(device) for owned in sorted(owners) for device in owners[owned])
    last = {"unreduced": len(set(shares)), "replicated": len(parts) // len(owners)}
    kinds = [kind for kind, count in last.items() if count > 1]
    sizes = ",".join(map(str, [*tiles, *(last[kind] for kind in kinds)]))
    end = f" last_tile_dims={{{', '.join(kinds)}}}" if kinds else ""
    if "unreduced" in kinds and division.reduction is not Op.ADD:
        end += REDUCTION.format(division.reduction.name)
    return f"{{devices=[{sizes}]{devices}{end}}}"


def shardy_text(text: str, devices: int) -> str:
    """A sharding of XLA's in Shardy's words; its mesh has an axis for each number of tiles.

    {devices=[4,1,2]<=[8] last_tile_dim_replicate}
    ->  <mesh<["0"=4, "1"=1, "2"=2]>, [{"0"}, {"1"}]>
    """
    from jaxlib.xla_client import HloSharding  # only programs for several devices need it

    try:
        given = HloSharding.from_string(text)
    except (RuntimeError, TypeError) as error:
        raise InvalidProgram(f"no sharding can be read from {text!r}") from error
    if not given.is_tiled():  # replicated, or on one device, which is the only one to read it
        return f'<mesh<["0"={devices}]>, []>'
    tiles = given.tile_assignment_dimensions()
    kinds = [kind.name for kind in given.subgroup_types()]
    rank = len(tiles) - len(kinds) - given.replicate_on_last_tile_dim()
    sizes = ", ".join(f'"{axis}"={count}' for axis, count in enumerate(tiles))
    axes = ", ".join(f'{{"{axis}"}}' for axis in range(rank))
    sums = ", ".join(f'"{rank + k}"' for k, kind in enumerate(kinds) if kind == "UNREDUCED")
    unreduced = f", unreduced={{{sums}}}" if sums else ""
    order = given.tile_assignment_devices()
    return f"<mesh<[{sizes}], device_ids={order}>, [{axes}]{unreduced}>"
