"""What a text for work-items is written in: templates of statements, and how values are computed.

`codegen/wgsl` has another table, and shares the renderers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tinyhlo.codegen.c import arithmetic
from tinyhlo.codegen.c.arithmetic import Functions
from tinyhlo.codegen.c.library import FAR_REMAINDER
from tinyhlo.ir.dtypes import BOOL, I32, I64, DType
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass


@dataclass(frozen=True, slots=True)
class Language:
    """Templates name what they are filled with; `index` is the type of indices; `element` is an
    element of an array as a value; `far_remainder` is a function for where there is no f64."""

    constant: str
    variable: str
    unset: str
    array: str
    shared: str
    loop: str
    halves: str
    doubles: str
    choice: str
    function: str
    parameter: str
    barrier: str
    index: DType
    type_name: Callable[[DType], str]
    stored_name: Callable[[DType], str]
    literal_text: Callable[[int, DType], str]
    element: Callable[[str, str, DType], str]
    written: Callable[[Functions, Op, Sequence[str], DType, DType], str]
    is_native: Callable[[Op, DType, DType], bool]
    far_remainder: str
    rolled: str = ""  # before a loop that no compiler shall write out
    unrolled: str = ""  # before one that it shall
    eights: str = ""  # before one of which it shall write out eight turns
    item: str = "ITEM"  # the number of an item among those who work together
    rows: int = 1  # how many work together in a group, each by a warp


def element(name: str, place: str, dtype: DType) -> str:
    return f"{name}[{place}]{' != 0' if dtype is BOOL else ''}"


C = Language(
    constant="const {type} {name} = {value};",
    variable="{type} {name} = {value};",
    unset="{type} {name};",
    array="{type} {name}[{size}];",
    shared="SHARED {type} {name}[{size}];",
    loop="for ({type} {name} = {start}; {name} < {end}; {step})",
    halves="for (i32 {name} = {start}; {name} > 0; {name} /= 2)",
    doubles="for (i32 {name} = 1; {name} <= {last}; {name} *= 2)",
    choice="{condition} ? {then} : {other}",
    function="FUNCTION {type} {name}({parameters})",
    parameter="{type} {name}",
    barrier="BARRIER;",
    index=I64,
    type_name=arithmetic.type_name,
    stored_name=arithmetic.stored_name,
    literal_text=arithmetic.literal_text,
    element=element,
    written=arithmetic.written,
    is_native=arithmetic.is_native,
    far_remainder=FAR_REMAINDER,
    rolled="ROLLED ",
    unrolled="UNROLLED ",
    eights="EIGHTS ",
)
# Where all indices fit: units of GPUs compute with 32 bits, and two of their registers hold 64.
C_OF_32_BITS = replace(C, index=I32)


def of_warps(language: Language, rows: int) -> Language:
    """Where each warp of a group has work of its own."""
    return replace(language, item="LANE", barrier="WARP_BARRIER;", rows=rows)
