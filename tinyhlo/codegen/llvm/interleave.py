"""Accesses of neighbours at a stride, as whole vectors and shuffles.

In: stores (or a load) whose index runs along the vector axis in steps of a few elements. Out: LLVM
IR that moves vectors and rearranges lanes in registers. Two stores at 2*j and 2*j + 1, 8 lanes:

    a, b  ->  <a0 b0 a1 b1 ...>, stored as two vectors

A block of b vectors is transposed by log2(b) rounds of interleaving halves (a perfect shuffle).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinyhlo.codegen.expressions import Load, Memory, in_rows, index_free
from tinyhlo.codegen.llvm import indices
from tinyhlo.codegen.llvm.arithmetic import convert
from tinyhlo.codegen.llvm.transpose import GROUP_BYTES, interleaved, turn
from tinyhlo.codegen.llvm.types import lanes_type, splat, stored_type
from tinyhlo.codegen.loops import Store
from tinyhlo.codegen.scopes import Value
from tinyhlo.ir.dtypes import BOOL, U8
from tinyhlo.ir.index import Index
from tinyhlo.numbers import power_of_two
from tinyhlo.target import NEAR, SHORT

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.statements import Statements
    from tinyhlo.codegen.llvm.values import Values

# Elements of rows that are put together in vectors, at most: by their bytes on a target that picks
# any lanes of two registers in one instruction, on others, and where there are two values at most.
LONGEST, SHORT_ROW, FEW_VALUES = {1: 15, 2: 9, 4: 7, 8: 7, 16: 7}, 5, 15
WORD = 4  # bytes: narrower elements are not gathered by one instruction
SHORT_BLOCK = 8  # bytes of a row of such elements that are worth turning around
WORDS = (2, 4, 8)  # bytes of an integer that holds a row of narrow elements
MAX_STRIDE = 128  # elements; blocks as long as a vector pay at any stride


def store_blocks(v: Statements, stores: Sequence[Store]) -> list[Store]:
    """Store the neighbours among `stores` together; returns the others."""
    if v.lanes == 1 or v.scope.mask is not None:
        return list(stores)
    runs: dict[tuple[Memory, object], dict[int, Store]] = {}
    others: list[Store] = []
    for store in stores:
        if is_ascending(v, store.index):
            runs.setdefault((store.memory, store.index.terms), {})[store.index.offset] = store
        else:
            others.append(store)
    for run in runs.values():
        offsets = sorted(run)
        stride = indices.stride(v, run[offsets[0]].index) or 0
        row = [run[k] for k in offsets]
        if is_row(offsets, stride) and is_short(v, row):
            store_rows(v, row)
            continue
        while offsets:
            count = block_length(offsets, v.lanes)
            block, offsets = [run[k] for k in offsets[:count]], offsets[count:]
            if count == 1 or (stride > MAX_STRIDE and count < v.lanes):
                others.extend(block)
            else:
                store_block(v, block, stride)
    return others


def is_ascending(v: Values, index: Index) -> bool:
    """Whether lanes are the same number of elements apart, more than one, in ascending order."""
    if not v.is_varying(index_free(index)):
        return False
    stride = indices.stride(v, index)
    return stride is not None and stride > 1


def is_row(offsets: Sequence[int], stride: int) -> bool:
    """Whether the stores leave no gap."""
    return len(offsets) == stride and offsets[-1] - offsets[0] == stride - 1


def as_stored(v: Statements, store: Store) -> str:
    """The value of a store as it lies in memory."""
    text = v.text(store.value, v.lanes)
    return convert(v.b, text, BOOL, U8, v.lanes) if store.memory.dtype is BOOL else text


def is_short(v: Values, row: Sequence[Store]) -> bool:
    """Whether vectors of whole rows are put together in fewer steps than blocks are stored: each
    takes one for every other value of the row. Powers of two are blocks themselves."""
    count, values = len(row), len({store.value for store in row})
    most = FEW_VALUES if values <= 2 else LONGEST[row[0].memory.dtype.itemsize]
    if values > 2 and v.target.vector_bytes <= SHORT:  # lanes of two registers take several
        most = SHORT_ROW
    return bool(count & (count - 1)) and count <= most


def store_rows(v: Statements, row: Sequence[Store]) -> None:
    """Rows of a few elements that fill memory: element k of lane l goes to l * stride + k."""
    memory, stride, lanes = row[0].memory, len(row), v.lanes
    scalar = stored_type(memory.dtype)
    first, *others = {store.value: as_stored(v, store) for store in row}.items()
    for number in range(stride):
        places = [divmod(number * lanes + k, stride) for k in range(lanes)]
        text, order = first[1], [lane for lane, _ in places]
        for value, other in others:
            order = [
                lanes + lane if row[k].value is value else order[place]
                for place, (lane, k) in enumerate(places)
            ]
            text = shuffled(v, text, other, scalar, order)
            order = list(range(lanes))
        if not others:
            text = shuffled(v, text, text, scalar, order)
        address = v.address(memory, row[0].index + number * lanes)
        v.b.line(f"store {lanes_type(scalar, lanes)} {text}, ptr {address}, align {align(memory)}")


def block_length(offsets: Sequence[int], lanes: int) -> int:
    """How many of the first offsets are neighbours: a power of two, at most `lanes`."""
    count = 1
    while (
        2 * count <= min(lanes, len(offsets))
        and offsets[2 * count - 1] == offsets[0] + 2 * count - 1
    ):
        count *= 2
    return count


def store_block(v: Statements, block: Sequence[Store], stride: int) -> None:
    """Element k of lane l goes to l * stride + k."""
    memory, first = block[0].memory, block[0].index
    scalar, lanes, count = stored_type(memory.dtype), v.lanes, len(block)
    rows = transpose(v, [as_stored(v, s) for s in block], scalar, memory.dtype.itemsize, lanes)
    per_vector = lanes // count  # rows that one vector holds
    if stride == count:  # rows follow each other without a gap
        per_vector, count = 1, lanes
    for number in range(len(rows) * per_vector):
        vector, part = divmod(number, per_vector)
        text = rows[vector]
        if per_vector > 1:
            text = shuffled(v, text, text, scalar, range(part * count, (part + 1) * count))
        step = number * (lanes if stride == len(block) else stride)
        address = v.address(memory, first + step)
        v.b.line(f"store {lanes_type(scalar, count)} {text}, ptr {address}, align {align(memory)}")


def load_near(v: Values, e: Load) -> str | None:
    """Neighbours of `e` at its stride are loaded with it where rows of whole vectors hold them."""
    if v.scope.mask is not None:
        return None
    stride = indices.stride(v, e.index)
    if stride is None:
        return None
    narrow = e.dtype.itemsize <= 2 and stride * e.dtype.itemsize in WORDS
    if narrow and stride > 1 and in_rows(e.memory, e.index, stride):
        return load_words(v, e, stride)
    unit = min(v.lanes, power_of_two(abs(stride)))
    rows = in_rows(e.memory, e.index, stride)
    least = SHORT if e.dtype.itemsize >= WORD else SHORT_BLOCK
    if rows and unit * e.dtype.itemsize >= least:
        return load_block(v, e, stride, unit)
    if not rows and abs(stride) >= v.lanes:  # each vector would have one lane
        return None
    if 2 <= stride <= NEAR:
        return v.from_stored(load_every(v, e, stride), e.dtype, v.lanes)
    if 2 <= -stride <= NEAR:
        last = Load(e.memory, e.index + (v.lanes - 1) * stride)
        type_ = lanes_type(stored_type(e.dtype), v.lanes)
        text = v.b.shuffle(type_, range(v.lanes)[::-1], load_every(v, last, -stride))
        return v.from_stored(text, e.dtype, v.lanes)
    return None


def load_words(v: Values, e: Load, stride: int) -> str:
    """Rows of a few narrow elements, as long as an integer: all are loaded, and their columns are
    told apart in registers. Taking bytes from memory one by one takes two instructions each."""
    memory, scalar, count = e.memory, stored_type(e.dtype), v.lanes * stride
    column = e.index.offset % stride
    first = e.index + -column
    row = vector_at(v, memory, first, count)
    found = ""
    for k in range(stride):
        if v.target.vector_bytes > SHORT:  # any lanes of two registers are one instruction
            text = v.b.shuffle(lanes_type(scalar, count), range(k, count, stride), row)
        else:
            text = part_of_words(v, row, scalar, e.dtype.itemsize, stride, k)
        text = v.from_stored(text, memory.dtype, v.lanes)
        if k == column:
            found = text
        else:
            neighbour = Load(memory, first + k)
            v.scope.table(neighbour).setdefault(neighbour, Value(text, v.lanes))
    return found


def part_of_words(v: Values, row: str, scalar: str, itemsize: int, count: int, k: int) -> str:
    """Element k of each integer that `count` elements make."""
    bits, lanes = 8 * itemsize, v.lanes
    wide, narrow = lanes_type(f"i{count * bits}", lanes), lanes_type(f"i{bits}", lanes)
    words = v.b.value(f"bitcast {lanes_type(scalar, lanes * count)} {row} to {wide}")
    amount = splat(str(k * bits), f"i{count * bits}", lanes)
    part = v.b.value(f"trunc {wide} {v.b.value(f'lshr {wide} {words}, {amount}')} to {narrow}")
    return v.b.value(f"bitcast {narrow} {part} to {lanes_type(scalar, lanes)}")


def load_every(v: Values, e: Load, stride: int) -> str:
    """Every second, third ... element, a vector of the machine at a time. The columns of rows are
    taken from the same vectors."""
    unit = min(v.lanes, max(2, v.target.vector_bytes // e.dtype.itemsize))
    rows = in_rows(e.memory, e.index, stride)
    column = e.index.offset % stride if rows else 0
    count = unit * stride if rows else (unit - 1) * stride + 1
    parts = [
        spread(v, e.memory, e.index + (start * stride - column), stride, column, count, unit)
        for start in range(0, v.lanes, unit)
    ]
    return joined(v, parts, stored_type(e.dtype), unit)


def joined(v: Values, parts: Sequence[str], scalar: str, unit: int) -> str:
    """One vector of vectors of `unit` lanes."""
    while len(parts) > 1:
        unit *= 2
        parts = [
            shuffled(v, *parts[k : k + 2], scalar, range(unit), unit // 2)
            for k in range(0, len(parts), 2)
        ]
    return parts[0]


def spread(
    v: Values, memory: Memory, first: Index, stride: int, column: int, count: int, lanes: int
) -> str:
    """Lanes at a stride of `count` elements, from `column` on. All of these are loaded, the last
    vector ends with them."""
    places = [column + lane * stride for lane in range(lanes)]
    text = vector_at(v, memory, first, lanes)
    # where lanes are found in `text`, as far as they lie before `known`
    held, known, end = places, lanes, count - lanes
    for step in (*range(lanes, end, lanes), end):
        loaded = vector_at(v, memory, first + step, lanes)
        order = [
            held[lane] if place < known else lanes + min(place - step, lanes - 1)
            for lane, place in enumerate(places)
        ]
        text = shuffled(v, text, loaded, stored_type(memory.dtype), order, lanes)
        held, known = list(range(lanes)), step + lanes
    return text


def load_block(v: Values, e: Load, stride: int, unit: int) -> str:
    """A vector of `unit` neighbours from every row, transposed: their values in all lanes. The last
    vector ends with the row."""
    memory, scalar = e.memory, stored_type(e.dtype)
    width = abs(stride)  # rows may follow each other backwards
    place = e.index.offset % width
    column = place - min(place - place % unit, width - unit)
    first = e.index + -column
    squares: list[list[str]] = []
    for start in range(0, v.lanes, unit):
        rows = [vector_at(v, memory, first + (start + k) * stride, unit) for k in range(unit)]
        squares.append(transpose(v, rows, scalar, e.dtype.itemsize, unit))
    columns = [
        v.from_stored(joined(v, parts, scalar, unit), e.dtype, v.lanes)
        for parts in zip(*squares, strict=True)
    ]
    for number, text in enumerate(columns):
        neighbour = Load(memory, first + number)
        if number != column:
            v.scope.table(neighbour).setdefault(neighbour, Value(text, v.lanes))
    return columns[column]


def vector_at(v: Values, memory: Memory, index: Index, lanes: int) -> str:
    type_ = lanes_type(stored_type(memory.dtype), lanes)
    address = v.address(memory, index)
    return v.b.value(f"load {type_}, ptr {address}, align {align(memory)}")


def transpose(v: Values, vectors: list[str], scalar: str, itemsize: int, lanes: int) -> list[str]:
    """The elements of all vectors lane by lane."""

    def pick(first: str, second: str, order: Sequence[int]) -> str:
        return fenced(v, shuffled(v, first, second, scalar, order, lanes), scalar, itemsize, lanes)

    group = GROUP_BYTES // itemsize
    if len(vectors) == lanes >= group > 1:
        return turn(vectors, group, pick)
    return interleaved(vectors, lanes, lanes, pick)


def shuffled(
    v: Values, first: str, second: str, scalar: str, order: Sequence[int], lanes: int = 0
) -> str:
    """Lanes `order` of two vectors."""
    return v.b.shuffle(lanes_type(scalar, lanes or v.lanes), order, first, second)


def fenced(v: Values, text: str, scalar: str, itemsize: int, lanes: int) -> str:
    """What one of several rounds of shuffles made, behind a fence: LLVM would look for one shuffle
    that does the work of two or three, in vain, in a time that doubles with each round."""
    vector, words = lanes_type(scalar, lanes), lanes * itemsize // WORD
    if words < 2:
        return text
    floats = lanes_type("float", words)  # a fence takes no integers
    text = v.b.value(f"bitcast {vector} {text} to {floats}")
    text = v.b.intrinsic(f"llvm.arithmetic.fence.v{words}f32", floats, [(floats, text)])
    return v.b.value(f"bitcast {floats} {text} to {vector}")


def align(memory: Memory) -> int:
    return memory.dtype.itemsize
