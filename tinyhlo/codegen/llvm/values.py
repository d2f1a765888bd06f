"""Expressions as LLVM IR.

In: an Expression and the open Scopes. Out: the Value that holds it. Inside a VECTOR loop each
expression is uniform (one scalar for all lanes) or varying (a vector), by the names it depends on:

    x[i*64 + j], j the vector axis  ->  one vector load
    x[i]                            ->  a scalar load before the loop, broadcast
    x[j*64 + i], x[index[j]]        ->  a gather
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinyhlo.codegen.expressions import (
    Apply,
    Expression,
    Guard,
    IndexValue,
    Literal,
    Load,
    Memory,
    Rarely,
    Read,
    has_registers,
    index_free,
)
from tinyhlo.codegen.llvm import (
    arithmetic,
    guards,
    halves,
    indices,
    interleave,
    known_places,
    masked_rows,
    rare,
    rows_of_places,
    small_tables,
)
from tinyhlo.codegen.llvm.arithmetic import convert
from tinyhlo.codegen.llvm.builder import Builder
from tinyhlo.codegen.llvm.registers import Register
from tinyhlo.codegen.llvm.types import (
    lanes_type,
    literal_text,
    scalar_type,
    splat,
    stored_type,
    suffix,
    value_type,
)
from tinyhlo.codegen.math.division import is_never_far, pays
from tinyhlo.codegen.math.expand import expand as expand_function
from tinyhlo.codegen.scopes import Scopes, Value
from tinyhlo.ir.dtypes import BOOL, F16, F32, F64, I64, U8, DType
from tinyhlo.ir.index import Index, Var, substitute
from tinyhlo.ir.ops import FUNCTIONS, Op
from tinyhlo.schedule.planner import SCALAR_BYTES
from tinyhlo.target import SHORT, Target

DIVISIONS = (Op.DIV, Op.REM)
MOST_COLLECTED = 32  # lanes of a kernel, at indices that are data: compiling 16 takes 3 ms


class Values(Scopes):
    """Emits expressions; `pointers` are the SSA names of memories."""

    def __init__(self, builder: Builder, target: Target, pointers: Mapping[Memory, str]) -> None:
        super().__init__(builder)
        self.b: Builder = builder
        self.registers: dict[str, Register] = {}
        builder.masks = target.vector_bytes > 32
        builder.takes_second = target.triple.startswith("x86")
        builder.half = target.half
        self.target = target
        self.pointers = dict(pointers)
        self.placed: dict[Memory, int] = {}  # depth of the scope that allocates a memory
        self.expanded: dict[Expression, Expression] = {}
        self.tables: dict[Memory, list[str]] = {}  # in registers
        self.expands = True  # functions, as primitives; what is rarely needed calls libraries
        self.collections = 0  # lanes that were loaded one by one
        self.rows: rows_of_places.Rows = {}  # of the innermost loop in lanes
        self.rows_loaded = 0  # lanes that loaded rows

    def emit(self, e: Expression) -> Value:
        """The value of `e`, emitted at most once a scope."""
        if type(e) is Literal:
            return Value(literal_text(e.bits, e.dtype), 1)
        home = self.home(e.free, e.loads)
        found = self.find(e, home)
        if found is not None:
            return found
        if home == self.current:
            value = self.compute(e)
        else:
            with self.at(home):
                value = self.compute(e)
        self.stack[home].table(e)[e] = value
        return value

    def apart(self) -> Values:
        """The values of another function, which is rarely called."""
        inner = Values(Builder(self.b.declarations), self.target, {})
        inner.expands = False
        return inner

    def compute(self, e: Expression) -> Value:
        match e:
            case Apply():
                return self.apply(e)
            case Load():
                return self.load(e)
            case Read():
                return self.read(e)
            case IndexValue():
                return self.index_value(e)
            case Guard():
                return guards.guard(self, e)
            case Rarely():
                return rare.rarely(self, e)
        raise TypeError(e)

    def text(self, e: Expression, lanes: int) -> str:
        """`e` in so many lanes: broadcast when it is uniform."""
        value = self.emit(e)
        if value.lanes == lanes:
            return value.text
        if type(e) is Literal:
            return splat(value.text, scalar_type(e.dtype), lanes)
        home = self.home(e.free, e.loads)
        key = (e, lanes)
        found = self.stack[home].splats.get(key)
        if found is None:
            with self.at(home):
                found = self.b.broadcast(value.text, scalar_type(e.dtype), lanes)
                self.scope.splats[key] = found
        return found

    # --- registers ---------------------------------------------------------------------------

    def kept(self, register: Register, dtype: DType | None = None) -> str:
        """What a register holds now: as it is, or a mask as booleans."""
        text = self.b.value(f"load {register.type}, ptr {register.slot}")
        if dtype in (None, register.dtype):
            return text
        return self.b.value(f"icmp ne {register.type} {text}, zeroinitializer")

    def keep(self, register: Register, text: str, dtype: DType | None = None) -> None:
        """Keep a value of the register's own type, or booleans as a mask."""
        if dtype not in (None, register.dtype):
            text = self.as_mask(register, text)
        self.b.line(f"store {register.type} {text}, ptr {register.slot}")

    def as_mask(self, register: Register, text: str) -> str:
        """Booleans as all bits of a lane or none."""
        return self.b.value(f"sext {lanes_type('i1', register.lanes)} {text} to {register.type}")

    def read(self, read: Read) -> Value:
        register = self.registers[read.name]
        return Value(self.kept(register, read.dtype), register.lanes)

    # --- elementwise -------------------------------------------------------------------------

    def apply(self, e: Apply) -> Value:
        if self.expands and self.may_expand(e):
            expanded = self.expand(e)
            if expanded is not None:
                return self.emit(expanded)
        if e.op is Op.WHERE and (one := self.one_of_two(*e.arguments)):
            return self.emit(one)
        if e.op is Op.SUB and (fused := self.less_a_number(e)):
            return self.emit(fused)
        values = [self.emit(argument) for argument in e.arguments]
        lanes = max(value.lanes for value in values)
        texts = [
            value.text if value.lanes == lanes else self.text(argument, lanes)
            for value, argument in zip(values, e.arguments, strict=True)
        ]
        operand = e.arguments[-1].dtype
        return Value(arithmetic.emit(self.b, e.op, texts, operand, e.dtype, lanes), lanes)

    def may_expand(self, e: Apply) -> bool:
        """Integers are divided by instructions outside of lanes."""
        if e.dtype is I64:
            return e.op in DIVISIONS and self.is_varying(e.free) and pays(*e.arguments)
        if e.op is Op.DIV:
            return self.has_one_divisor(*e.arguments)
        return e.op in FUNCTIONS

    def less_a_number(self, e: Apply) -> Expression | None:
        """x * y - 1 rounded once, be the product used elsewhere or not: LLVM makes a multiply-add
        of it only where it is not. Loops of JAX (`betainc`) end by how far a product is from 1."""
        match e.arguments:
            case Apply(op=Op.MUL, arguments=factors), Literal() as number:
                negative = Literal(number.bits ^ 1 << e.dtype.bits - 1, e.dtype)
            case _:
                return None
        fuses = self.target.fma and e.dtype in (F32, F64)
        return Apply(Op.FMA, (*factors, negative), e.dtype) if fuses else None

    def has_one_divisor(self, x: Expression, y: Expression) -> bool:
        """Whether lanes divide floats by what is known before the loop, where that is slow: two
        cycles for each double, one for each float of vectors of 512 bits, half of one otherwise.
        Two operations are less than any of these. Halves are divided as floats are."""
        if not self.is_varying(x.free):
            return False
        if x.dtype is F16:
            return self.target.vector_bytes >= SHORT and is_never_far(x.cast(F32), y.cast(F32))
        if x.dtype not in (F32, F64):
            return False
        short = x.dtype is F64 or is_never_far(x, y)
        if self.target.vector_bytes < (SHORT if short else 2 * SHORT):
            return False
        return self.home(y.free, y.loads) < self.current

    def expand(self, e: Apply) -> Expression | None:
        """The op as primitives, by `codegen/math/expand.py`; None where it has no expansion."""
        if e in self.expanded:
            return self.expanded[e]
        result = expand_function(e.op, e.arguments, e.dtype, self.target)
        if result is not None:
            self.expanded[e] = result
        return result

    def one_of_two(self, choice: Expression, left: Expression, right: Expression) -> Load | None:
        """A load from one of two memories, where all lanes choose the same and it is known before
        the loop: the other one is not read."""
        if not (isinstance(left, Load) and isinstance(right, Load) and left.index == right.index):
            return None
        home = self.home(choice.free, choice.loads)
        uniform = self.is_varying(left.free) and not self.is_varying(choice.free)
        if not (uniform and home < self.current) or choice.loads > 1 or has_registers(choice.free):
            return None
        both = left.memory, right.memory
        taken, pointers = self.emit(choice).text, [f"ptr {self.pointers[m]}" for m in both]
        depth = max(home, *(self.placed.get(memory, 0) for memory in both))
        with self.at(depth):
            pointer = self.b.value(f"select i1 {taken}, {', '.join(pointers)}")
        size, constant = min(m.size for m in both), all(m.constant for m in both)
        memory = Memory(pointer, left.dtype, size, constant=constant)
        self.pointers[memory], self.placed[memory] = pointer, depth
        return Load(memory, left.index)

    def index_value(self, e: IndexValue) -> Value:
        if not self.is_varying(e.free):
            return Value(convert(self.b, self.index(e.index), I64, e.dtype, 1), 1)
        text, wide = indices.lanes(self, e.index)
        return Value(convert(self.b, text, wide, e.dtype, self.lanes), self.lanes)

    def index(self, index: Index) -> str:
        """A uniform index (or, with the vector variable in it, that of lane 0) as an i64."""
        return indices.scalar(self, index)

    # --- memory ------------------------------------------------------------------------------

    def load(self, e: Load) -> Value:
        """Lanes that a mask turns off become 0, unless all lanes load the same element."""
        lanes = self.lanes
        stride = indices.stride(self, e.index)
        if stride == 0:
            return Value(self.load_lanes(e.memory, self.safe_address(e.memory, e.index), 1), 1)
        if stride == 1 and self.scope.mask is None:
            text = self.load_lanes(e.memory, self.address(e.memory, e.index), lanes)
            return Value(halves.from_memory(self, text, e.dtype, lanes), lanes)
        if stride == 1:
            return Value(self.masked_load(e.memory, e.index), lanes)
        if stride == -1 and self.scope.mask is None:
            first = self.address(e.memory, e.index + (1 - lanes))
            text = self.load_lanes(e.memory, first, lanes)
            order = range(lanes)[::-1]
            return Value(self.b.shuffle(value_type(e.dtype, lanes), order, text), lanes)
        near = interleave.load_near(self, e) or known_places.load(self, e)
        near = near or small_tables.look_up(self, e)
        if near is None and self.scope.mask is None:
            near = rows_of_places.load_row(self, e)
        return Value(near or self.gather(e), lanes)

    def safe_address(self, memory: Memory, index: Index) -> str:
        """Where the element at a uniform index lies; element 0 where no lane is active, as the
        index may be out of bounds there."""
        if self.scope.mask is None or index.is_constant:
            return self.address(memory, index)
        some = rare.any_bit(self, self.scope.mask, self.lanes)
        safe = self.b.value(f"select i1 {some}, i64 {self.index(index)}, i64 0")
        return self.moved(self.pointers[memory], stored_type(memory.dtype), safe)

    def mapped_address(self, memory: Memory, index: Index) -> str:
        """Where a vector lies; element 0 where it is known that no lane is active: a masked load of
        unmapped memory takes hundreds of cycles, even with all lanes off."""
        address, reached = self.address(memory, index), self.scope.reached
        if reached is None:
            return address
        return self.b.value(f"select i1 {reached}, ptr {address}, ptr {self.pointers[memory]}")

    def address(self, memory: Memory, index: Index) -> str:
        """Where an element lies."""
        depth = self.placed.get(memory, 0)
        return indices.address(self, self.pointers[memory], stored_type(memory.dtype), index, depth)

    def moved(self, pointer: str, element: str, count: str) -> str:
        """`pointer`, so many elements further."""
        if count == "0":
            return pointer
        return self.b.value(f"getelementptr {element}, ptr {pointer}, i64 {count}")

    def load_lanes(self, memory: Memory, address: str, lanes: int) -> str:
        type_ = lanes_type(stored_type(memory.dtype), lanes)
        text = self.b.value(f"load {type_}, ptr {address}, align {memory.dtype.itemsize}")
        if lanes == 1 and self.loads_parts(memory):
            self.b.loaded_halves.add(text)
        return self.from_stored(text, memory.dtype, lanes)

    def loads_parts(self, memory: Memory) -> bool:
        """Whether an element is loaded into a part of a register: halves on x86. What is as small
        as `SCALAR_BYTES` may be registers of the function around, and stay there."""
        small = memory.nbytes <= SCALAR_BYTES
        return memory.dtype is F16 and not small and self.target.triple.startswith("x86")

    def from_stored(self, text: str, dtype: DType, lanes: int) -> str:
        """Booleans are bytes in memory."""
        return convert(self.b, text, U8, BOOL, lanes) if dtype is BOOL else text

    def masked_load(self, memory: Memory, index: Index) -> str:
        """A vector of memory: the lanes that are active, zero in the others."""
        stored = U8 if memory.dtype is BOOL else memory.dtype
        loaded = masked_rows.load(self, memory, index)
        if loaded is None:
            name = f"llvm.masked.load.{suffix(stored, self.lanes)}.p0"
            return self.masked(name, memory.dtype, ("ptr", self.mapped_address(memory, index)))
        type_, mask = value_type(stored, self.lanes), self.scope.mask or ""
        active = self.b.select(mask, loaded, "zeroinitializer", type_, self.lanes)
        return self.from_stored(active, memory.dtype, self.lanes)

    def masked(self, name: str, dtype: DType, place: tuple[str, str]) -> str:
        """The lanes that are active, zero in the others; `place` is (type, text)."""
        stored, lanes = U8 if dtype is BOOL else dtype, self.lanes
        type_, mask = value_type(stored, lanes), self.scope.mask or splat("true", "i1", lanes)
        size = ("i32", str(stored.itemsize))
        given = [place, size, (lanes_type("i1", lanes), mask), (type_, "zeroinitializer")]
        found = self.b.intrinsic(name, type_, given)
        if self.is_placed():
            found = self.b.select(mask, found, "zeroinitializer", type_, lanes)
        return self.from_stored(found, dtype, lanes)

    def is_placed(self) -> bool:
        """Whether a vector's place is a constant, so that LLVM folds the mask. Where that is off
        for a whole register, LLVM 22 loads the register without a mask on AVX2; a select by the
        same mask leaves that load without a use."""
        place = self.variables.get(self.vector_var, "") if self.vector_var else ""
        return place.isdigit()

    def gather(self, e: Load) -> str:
        mask = self.scope.mask
        if mask is None and (addresses := self.lane_by_lane(e)):
            return self.collected(e, addresses)
        if mask is not None and self.b.masks and e.dtype.itemsize < 4:
            return self.collected_under(mask, e)
        stored = U8 if e.dtype is BOOL else e.dtype
        lanes = self.lanes
        index, wide = indices.lanes(self, e.index)
        pointers = self.b.value(
            f"getelementptr {scalar_type(stored)}, ptr {self.pointers[e.memory]}, "
            f"{value_type(wide, lanes)} {index}"
        )
        name = f"llvm.masked.gather.{suffix(stored, lanes)}.v{lanes}p0"
        return self.masked(name, e.dtype, (lanes_type("ptr", lanes), pointers))

    def collected_under(self, mask: str, e: Load) -> str:
        """A load a lane where no instruction gathers: element 0 in lanes that are off. LLVM would
        jump around each, which is as fast only where masks are vectors."""
        index, wide = indices.lanes(self, e.index)
        places = self.b.select(
            mask, index, "zeroinitializer", value_type(wide, self.lanes), self.lanes
        )
        found = self.collected(e, self.taken_out(e.memory, places, wide))
        type_ = value_type(e.dtype, self.lanes)
        return self.b.select(mask, found, "zeroinitializer", type_, self.lanes)

    def lane_by_lane(self, e: Load) -> list[str]:
        """The addresses of all lanes, where one load a lane takes less time than an instruction
        that gathers: at places that are known, and at the first few of a kernel that are data."""
        stride = indices.stride(self, e.index)
        if stride is not None:
            return [self.address(e.memory, e.index + k * stride) for k in range(self.lanes)]
        quick = self.target.gathers and e.dtype.itemsize >= 4
        if quick or self.collections + self.lanes > MOST_COLLECTED:
            return []
        self.collections += self.lanes
        return self.addresses(e)

    def addresses(self, e: Load) -> list[str]:
        """Those of all lanes, at places that are data, in registers with lanes or in memory."""
        var = self.vector_var
        if var and indices.are_narrow(e.index) and not self.is_varying(index_free(e.index) - {var}):
            return self.one_by_one(e, var)
        return self.lane_addresses(e.memory, e.index)

    def lane_addresses(self, memory: Memory, where: Index) -> list[str]:
        """Those of all lanes at an index."""
        return self.taken_out(memory, *indices.lanes(self, where))

    def taken_out(self, memory: Memory, index: str, wide: DType) -> list[str]:
        """The addresses of all lanes, taken out of a vector of places."""
        vector, scalar = value_type(wide, self.lanes), value_type(wide, 1)
        found: list[str] = []
        for k in range(self.lanes):
            place = self.b.value(f"extractelement {vector} {index}, i64 {k}")
            if wide.bits < 64:  # no place is negative; x86 extends with zeros for nothing
                place = self.b.value(f"zext {scalar} {place} to i64")
            found.append(self.moved(self.pointers[memory], stored_type(memory.dtype), place))
        return found

    def one_by_one(self, e: Load, var: Var) -> list[str]:
        """The addresses of all lanes, each computed apart, from the place of the first lane."""
        first = Var(f"{var.name}_first", var.extent - self.lanes + 1)
        self.variables[first], self.depth[first] = self.variables[var], self.depth[var]
        starts = (Index(lane, ((first, 1),)) for lane in range(self.lanes))
        return [self.address(e.memory, substitute(e.index, {var: start})) for start in starts]

    def collected(self, e: Load, addresses: Sequence[str]) -> str:
        """A vector from one load a lane."""
        element, type_ = stored_type(e.dtype), lanes_type(stored_type(e.dtype), self.lanes)
        result = "poison"
        for lane, address in enumerate(addresses):
            one = self.b.value(f"load {element}, ptr {address}, align {e.dtype.itemsize}")
            result = self.b.value(f"insertelement {type_} {result}, {element} {one}, i64 {lane}")
        return self.from_stored(result, e.dtype, self.lanes)
