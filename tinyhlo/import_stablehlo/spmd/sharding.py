"""How arrays are divided over a mesh of devices: Shardy's shardings, and the parts they make.

    sharding = parse_shardings('#sdy.sharding<@mesh, [{"x"}, {}]>')[0]
    part_at(sharding, mesh, (8, 4), {"x": 1})   # of a mesh with x = 2: ((4, 8), (0, 4))

All devices share one memory, so that the whole array is only its parts joined, and a part only a
slice of it. A `Part` says where in the whole array it lies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod

from tinyhlo.ir.graph import Shape, TensorType
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass

Part = tuple[tuple[int, int], ...]  # (first, end) along each axis
Coordinates = Mapping[str, int]  # of a device along the axes of a mesh


@dataclass(frozen=True, slots=True)
class MeshAxis:
    """An axis of a mesh, or a piece of one: after `before` have been split off, `size` of it; None
    for all."""

    name: str
    before: int = 1
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Sharding:
    """`axes`: those that each axis of the array is divided over, major first. `unreduced`: the
    array is the sum, or the maximum or minimum, over these. `mesh`: a symbol, or the text of a
    mesh."""

    mesh: str
    axes: tuple[tuple[MeshAxis, ...], ...]
    unreduced: tuple[MeshAxis, ...] = ()
    reduction: Op = Op.ADD


@dataclass(frozen=True, slots=True)
class Mesh:
    """Named axes with their sizes, and the device at each place; no axes for a single device."""

    sizes: Mapping[str, int]
    devices: tuple[int, ...]

    def coordinates(self) -> dict[int, dict[str, int]]:
        """Where each device is."""
        places = product(*(range(size) for size in self.sizes.values()))
        names = tuple(self.sizes)
        return {
            device: dict(zip(names, place, strict=True))
            for device, place in zip(self.devices, places, strict=True)
        }

    def device(self, coordinates: Coordinates) -> int:
        """The device there; the first one along axes that are not given."""
        place = 0
        for name, size in self.sizes.items():
            place = place * size + coordinates.get(name, 0)
        return self.devices[place]

    def devices_at(self, coordinates: Coordinates) -> list[int]:
        """All devices there: several along axes that are not given."""
        return [
            device
            for device, at in self.coordinates().items()
            if all(at[name] == place for name, place in coordinates.items() if name in at)
        ]


WHOLE = Sharding("", ()), Mesh({}, (0,))  # of what is on one device, or the same on all

ONE_SHARDING = re.compile(r"<(@[^,]+|mesh<[^>]*>), \[([^\]]*)\]([^>]*)>")
AXIS_GROUP = re.compile(r"\{([^}]*)\}")
MESH_AXIS = re.compile(r'"([^"]*)"(?::\((\d+)\)(\d+))?')
UNREDUCED = re.compile(r"unreduced=(\w*)\{([^}]*)\}")
REDUCTIONS = {"": Op.ADD, "sum": Op.ADD, "max": Op.MAX, "min": Op.MIN}
MESH_SIZE = re.compile(r'"([^"]*)"=(\d+)')
DEVICE_IDS = re.compile(r"device_ids=\[([\d, ]*)\]")


def parse_shardings(text: str) -> tuple[Sharding, ...]:
    """The shardings in an attribute's text: one, or one per value."""
    found: list[Sharding] = []
    for mesh, axes, rest in ONE_SHARDING.findall(text):
        unreduced = UNREDUCED.search(rest)
        found.append(
            Sharding(
                mesh,
                tuple(map(parse_axes, AXIS_GROUP.findall(axes))),
                parse_axes(unreduced[2]) if unreduced else (),
                REDUCTIONS[unreduced[1]] if unreduced else Op.ADD,
            )
        )
    return tuple(found)


def parse_axes(text: str) -> tuple[MeshAxis, ...]:
    """`"x", "y":(1)2, ?`"""
    return tuple(
        MeshAxis(name, int(before), int(size)) if size else MeshAxis(name)
        for name, before, size in MESH_AXIS.findall(text)
    )


def parse_mesh(text: str) -> Mesh:
    """`<["x"=2, "y"=4], device_ids=[...]>`"""
    sizes = {name: int(size) for name, size in MESH_SIZE.findall(text)}
    given = DEVICE_IDS.search(text)
    devices = tuple(map(int, given[1].split(","))) if given else tuple(range(prod(sizes.values())))
    return Mesh(sizes, devices)


def place_along(axes: Sequence[MeshAxis], mesh: Mesh, at: Coordinates) -> tuple[int, int]:
    """(place along `axes`, the last of them varying fastest, how many places there are)."""
    place, count = 0, 1
    for axis in axes:
        whole = mesh.sizes[axis.name]
        size = axis.size or whole
        after = whole // (axis.before * size)
        place, count = place * size + at.get(axis.name, 0) // after % size, count * size
    return place, count


def part_at(sharding: Sharding, mesh: Mesh, shape: Shape, at: Coordinates) -> Part:
    """The part of an array of this shape on one device; the whole where nothing is said. An axis
    that cannot be divided evenly is whole."""
    bounds: list[tuple[int, int]] = []
    for axis, extent in enumerate(shape):
        along = sharding.axes[axis] if axis < len(sharding.axes) else ()
        place, count = place_along(along, mesh, at)
        step = extent // count
        even = step * count == extent
        bounds.append((place * step, (place + 1) * step) if even else (0, extent))
    return tuple(bounds)


@dataclass(frozen=True, slots=True)
class Division:
    """How an array is divided among places: the part at each, and where it is not reduced yet
    which summand of it (or what it is the greatest or the least of), else None."""

    parts: tuple[Part, ...]
    shares: tuple[int | None, ...]
    reduction: Op

    def local(self, type_: TensorType) -> TensorType:
        """What one place has; all have parts of the same shape."""
        return TensorType(tuple(end - first for first, end in self.parts[0]), type_.dtype)


def division_at(
    sharding: Sharding, mesh: Mesh, shape: Shape, places: Sequence[Coordinates]
) -> Division:
    """The division of an array of this shape among these places of the mesh."""
    sums = sharding.unreduced
    return Division(
        tuple(part_at(sharding, mesh, shape, at) for at in places),
        tuple(place_along(sums, mesh, at)[0] if sums else None for at in places),
        sharding.reduction,
    )
