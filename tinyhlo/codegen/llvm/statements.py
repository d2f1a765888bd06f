"""Statements as LLVM IR: loops, registers, choices.

In: a Body. Out: lines in the current scope. Loops run at least once (extents are positive), so
they are rotated: the test stands at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import gcd

from tinyhlo.codegen.bodies import (
    changed,
    in_order,
    is_cheap_row,
    must_run_once,
    only_stores,
    substituted,
)
from tinyhlo.codegen.expressions import Memory, identity, index_free
from tinyhlo.codegen.llvm import (
    arithmetic,
    guards,
    halves,
    keep,
    matrices,
    multiply,
    pair_sums,
    prefix,
    reduce_lanes,
    row_sums,
    stores,
)
from tinyhlo.codegen.llvm.builder import Builder, Carried
from tinyhlo.codegen.llvm.registers import MASKED, LaneRegisters, Register, mask_type
from tinyhlo.codegen.llvm.rows_of_places import rows_in
from tinyhlo.codegen.llvm.scratch import is_large
from tinyhlo.codegen.llvm.types import lanes_type, stored_type, value_type
from tinyhlo.codegen.llvm.values import Values
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Assign,
    Axis,
    Bind,
    Body,
    Declare,
    HoldMatrices,
    If,
    Keep,
    Loop,
    Statement,
    TileProduct,
)
from tinyhlo.codegen.scopes import Scope
from tinyhlo.errors import VerificationError
from tinyhlo.ir.dtypes import BOOL, DType
from tinyhlo.ir.index import constant
from tinyhlo.ir.ops import Op
from tinyhlo.target import SHORT, Target

FEW_VECTORS = 8  # in a row: what does not fill one takes a good part of the time
# Indices that are data are expected in bounds: else LLVM moves what is done there out of the way.
LIKELY = '!0 = !{!"branch_weights", i32 2000, i32 1}'


class Statements(Values):
    """Renders bodies; `slots` are stack slots at the start of the function. `may_repeat`: a lane
    may be stored twice, as nothing that is read is overwritten; `streamed` memory is written around
    the cache where the place is a multiple of a vector."""

    def __init__(
        self,
        builder: Builder,
        target: Target,
        pointers: Mapping[Memory, str],
        may_repeat: bool,
        streamed: Sequence[Memory] = (),
    ) -> None:
        super().__init__(builder, target, pointers)
        self.may_repeat = may_repeat
        self.streamed = tuple(streamed)
        self.grain = 1  # vectors of the loop in lanes begin at multiples of so many elements
        self.vector_lanes = 1  # of one vector, of which `lanes` may be several
        self.slots: list[str] = []
        self.lane_registers: dict[str, LaneRegisters] = {}  # of vectorised reduces
        self.fresh_lanes = ""  # lanes that the vector before has not seen, where two overlap
        # running values of ordered loops with lanes: all that came before, in every lane
        self.carried: dict[str, Register] = {}

    def scratch(self, memory: Memory) -> str:
        """Private memory: a stack slot, or a part of the program's scratch when it is large."""
        if not is_large(memory):
            return self.slot(f"[{memory.size} x {stored_type(memory.dtype)}]")
        return self.b.intrinsic("tiny_scratch", "ptr", [("i64", str(memory.nbytes))])

    def release(self, body: Body) -> None:
        """Forget private memory of `body`, and give it back, last first, where it is large."""
        for statement in reversed(body):
            if not isinstance(statement, Allocate):
                continue
            pointer = self.pointers.pop(statement.memory)
            if is_large(statement.memory):
                self.b.declarations["tiny_scratch_free"] = "declare void @tiny_scratch_free(ptr)"
                self.b.line(f"call void @tiny_scratch_free(ptr {pointer})")

    def body(self, body: Body) -> None:
        made = [s.memory.name for s in body if isinstance(s, Allocate)]
        made += [s.name for s in body if isinstance(s, Declare)]
        if twice := sorted(name for name, count in Counter(made).items() if count > 1):
            raise VerificationError(f"one name stands for two values: {', '.join(twice)}")
        self.run_body(body)
        self.release(body)

    def run_body(self, body: Body) -> None:
        for each in in_order(body):
            if isinstance(each, list):
                stores.render(self, each)
            else:
                self.statement(each)

    def statement(self, statement: Statement) -> None:
        match statement:
            case Loop():
                self.loop(statement)
            case Declare():
                self.declare(statement)
            case Accumulate():
                self.accumulate(statement)
            case Assign():
                self.assign(statement)
            case If():
                self.conditional(statement)
            case Bind(var=var, index=index):
                self.variables[var] = self.index(index)
                self.bind(var)
            case Keep():
                keep.render(self, statement)
            case TileProduct(deep=deep):
                (multiply if deep == 1 else matrices).render(self, statement)
            case HoldMatrices():
                matrices.hold(self, statement)
            case Allocate(memory=memory):
                self.pointers[memory] = self.scratch(memory)
                self.placed[memory] = self.current
            case _:
                raise TypeError(statement)

    def slot(self, type_: str) -> str:
        name = f"%s{len(self.slots)}"
        self.slots.append(f"  {name} = alloca {type_}, align 64")
        return name

    # --- registers ---------------------------------------------------------------------------

    def declare(self, statement: Declare) -> None:
        value, lanes = statement.value, self.lanes
        is_mask = value.dtype is BOOL and lanes > 1 and not self.b.masks
        dtype = mask_type(self.target, self.vector_lanes) if is_mask else value.dtype
        register = Register(self.slot(value_type(dtype, lanes)), dtype, lanes)
        self.registers[statement.name] = register
        self.keep(register, self.text(value, lanes), value.dtype)
        self.forget((statement.name,))
        self.bind(statement.name)
        if lanes > 1:
            self.varying = self.varying | {statement.name}

    def accumulate(self, statement: Accumulate) -> None:
        register = self.registers[statement.name]
        carried = self.carried.get(statement.name)
        if carried is not None and register.lanes > 1:
            prefix.accumulate(self, statement, carried)
            return
        if pair_sums.accumulate(self, statement, register):
            return
        dtype = register.dtype if statement.op in MASKED else statement.value.dtype
        type_ = value_type(dtype, register.lanes)
        value = self.text(statement.value, register.lanes)
        if statement.value.dtype is not dtype:
            value = self.as_mask(register, value)
        if self.fresh_lanes and register.lanes > 1:
            neutral = self.text(identity(statement.op, dtype), register.lanes)
            value = self.b.select(self.fresh_lanes, value, neutral, type_, register.lanes)
        before = self.kept(register, dtype)
        after = self.combine(statement.op, before, value, dtype, register.lanes)
        self.keep(register, after, dtype)
        self.forget((statement.name,))

    def combine(self, op: Op, left: str, right: str, dtype: DType, lanes: int) -> str:
        return arithmetic.emit(self.b, op, [left, right], dtype, dtype, lanes)

    def assign(self, statement: Assign) -> None:
        registers = [self.registers[name] for name in statement.names]
        texts = [
            self.text(value, register.lanes)
            for value, register in zip(statement.values, registers, strict=True)
        ]
        for register, text, value in zip(registers, texts, statement.values, strict=True):
            self.keep(register, text, value.dtype)
        self.forget(statement.names)

    # --- control -----------------------------------------------------------------------------

    def conditional(self, statement: If) -> None:
        for condition in statement.conditions:
            if self.is_varying(index_free(condition.index)):
                raise VerificationError(f"lanes part at a jump: if {condition}")
        condition = guards.all_hold(self, statement.conditions)
        inside, after = self.b.fresh(), self.b.fresh()
        self.open(inside, guard=True)
        self.rebound(statement.body)
        self.body(statement.body)
        scope = self.close()
        lines = self.scope.lines
        self.b.declarations["!0"] = LIKELY
        lines.append(f"  br i1 {condition}, label %{inside}, label %{after}, !prof !0")
        lines.append(f"{inside}:")
        lines.extend(scope.lines)
        lines.append(f"  br label %{after}")
        lines.append(f"{after}:")
        self.scope.label = after
        self.settle(statement.body)

    def loop(self, loop: Loop) -> None:
        if loop.var.extent == 0:
            return
        if loop.axis is Axis.PARALLEL:
            self.parallel(loop)
            return
        if loop.axis is Axis.UNROLL:
            for k in range(loop.var.extent):
                self.run_body(substituted(loop.body, {loop.var: constant(k)}))
            return
        end = self.end(loop)
        if loop.axis is Axis.REDUCE and loop.width > 1 and self.lanes > 1:
            row_sums.run(self, loop, end)
        elif loop.width == 1 or self.lanes > 1:
            reduce_lanes.around(self, loop, lambda: self.run(loop, self.index(loop.start), end, 1))
        elif loop.axis is Axis.REDUCE:
            reduce_lanes.around(self, loop, lambda: reduce_lanes.run(self, loop, end))
        elif loop.axis is Axis.ORDERED:
            prefix.run(self, loop, end)
        elif self.may_repeat and loop.var.extent >= loop.width and not must_run_once(loop):
            rest = loop.var.extent - loop.width
            if loop.count is None and rest < loop.width and is_cheap_row(loop):
                for first in sorted({0, rest}):  # without a loop
                    self.run(loop, str(first), str(first + loop.width), loop.width)
                return
            last = str(rest) if loop.var.extent % loop.width else ""
            self.run(loop, self.index(loop.start), end, loop.width, last=last)
        else:
            self.split(loop, end)

    def parallel(self, loop: Loop) -> None:
        """Parallel loops inside others run in order; `kernel.py` outlines the outermost."""
        self.loop(replace(loop, axis=Axis.SERIAL))

    def end(self, loop: Loop) -> str:
        extent = loop.var.extent
        if loop.count is None:
            return str(extent)
        if not loop.start.terms:
            return str(min(loop.start.offset + loop.count, extent))
        end = self.index(loop.start + loop.count)
        if (loop.start + loop.count).bounds[1] <= extent:
            return end
        return self.least(end, str(extent))

    def least(self, place: str, last: str) -> str:
        if place.isdigit() and last.isdigit():
            return str(min(int(place), int(last)))
        return self.b.intrinsic("llvm.umin.i64", "i64", [("i64", place), ("i64", last)])

    def split(self, loop: Loop, end: str, between: Callable[[], None] = lambda: None) -> None:
        """Several vectors at a time, then single ones, then halves of one and so on where the loop
        is short and only stores, then single iterations."""
        start = self.index(loop.start)
        unit = loop.width // loop.chains
        widths = dict.fromkeys((loop.width, unit))
        if loop.var.extent < FEW_VECTORS * unit and only_stores(loop.body):
            widths |= dict.fromkeys(unit >> k for k in range(1, unit.bit_length() - 1))
        for width in widths:
            start = self.whole(loop, start, end, width)
        between()
        if start != end and reduce_lanes.has_rest(loop, unit):
            self.run(loop, start, end, 1, may_be_empty=not start.isdigit())

    def whole(self, loop: Loop, start: str, end: str, width: int) -> str:
        """As many steps of `width` lanes as fit; returns where they end."""
        if start.isdigit() and end.isdigit():
            middle = int(start) + (int(end) - int(start)) // width * width
            if middle > int(start):
                self.run(loop, start, str(middle), width)
            return str(middle)
        if width < loop.width and not reduce_lanes.has_rest(loop, loop.width):
            return start
        length = self.b.value(f"sub i64 {end}, {start}")
        whole = self.b.value(f"and i64 {length}, {-width}")
        middle = self.b.value(f"add i64 {start}, {whole}")
        self.run(loop, start, middle, width, may_be_empty=True)
        return middle

    def run(
        self,
        loop: Loop,
        start: str,
        end: str,
        width: int,
        may_be_empty: bool = False,
        last: str = "",
        once_each: bool = False,
    ) -> None:
        """One loop from `start` to `end` in steps of `width` lanes. No vector begins behind the
        `last` place, so some lanes may run again; with `once_each` those do not accumulate."""
        once = start.isdigit() and end.isdigit() and int(end) - int(start) <= width
        header, after = self.b.fresh(), self.b.fresh()
        counter = start if once else f"%{self.b.fresh()}"
        self.open(header)
        before = self.bind(loop.var)
        self.variables[loop.var] = counter
        with self.lanes_kept():
            inside = self.lane_registers.keys() & changed(loop.body) if width > 1 else ()
            if width > 1:
                self.enter_lanes(loop, start, width, last, once_each)
            for name in inside:
                self.registers[name] = self.lane_registers[name].of(width)
            self.rebound(loop.body)
            self.body(loop.body)
            scope = self.close()
            for name in inside:
                self.registers[name] = self.lane_registers[name].scalar
        self.unbind(loop.var, before)
        lines = self.scope.lines
        if once:  # a block of its own: what is hoisted out of it may end in another block
            lines += [f"  br label %{header}", f"{header}:", *scope.lines]
            self.scope.label = scope.label
            self.settle(loop.body)
            return
        if may_be_empty:
            some = self.b.value(f"icmp ult i64 {start}, {end}")
            lines.append(f"  br i1 {some}, label %{header}, label %{after}")
        else:
            lines.append(f"  br label %{header}")
        self.repeat(scope, (header, after), counter, (start, end, width))
        self.settle(loop.body)

    def repeat(
        self,
        scope: Scope,
        labels: tuple[str, str],
        counter: str,
        span: tuple[str, str, int],
        carried: Sequence[Carried] = (),
    ) -> None:
        """A closed scope as the body of a loop, between the labels of its header and of what
        follows; the `counter` runs over a span (start, end, step), jumped to from before."""
        (header, after), (start, end, step) = labels, span
        following, more = (f"%{self.b.fresh()}" for _ in range(2))
        first = Carried("i64", counter, start, following)
        self.scope.lines += [
            f"{header}:",
            *(each.phi(self.scope.label, scope.label) for each in (first, *carried)),
            *scope.lines,
            f"  {following} = add nuw nsw i64 {counter}, {step}",
            f"  {more} = icmp ult i64 {following}, {end}",
            f"  br i1 {more}, label %{header}, label %{after}",
            f"{after}:",
        ]
        self.scope.label = after

    @contextmanager
    def lanes_kept(self) -> Generator[None]:
        """What is known of the lanes is afterwards as it was before."""
        lanes, var, varying = self.lanes, self.vector_var, self.varying
        vector_lanes = self.vector_lanes
        grain, in_step, rows, fresh = self.grain, self.in_step, self.rows, self.fresh_lanes
        in_halves = self.b.in_halves
        yield
        self.lanes, self.vector_var, self.varying = lanes, var, varying
        self.vector_lanes = vector_lanes
        self.grain, self.in_step, self.rows, self.fresh_lanes = grain, in_step, rows, fresh
        self.b.in_halves = in_halves

    def enter_lanes(self, loop: Loop, start: str, width: int, last: str, once_each: bool) -> None:
        """What follows is the body of a loop from `start` on in `width` lanes (see `run`)."""
        self.lanes, self.vector_var = width, loop.var
        self.vector_lanes = loop.width // loop.chains
        self.varying = self.varying | {loop.var}
        self.rows = rows_in(loop.body) if self.target.vector_bytes >= SHORT else {}
        first = int(start) if start.isdigit() else loop.start.offset
        overlap = 1 if last.startswith("%") else int(last or 0)
        self.grain = gcd(width, first, overlap, *(factor for _, factor in loop.start.terms))
        self.in_step = loop.var if self.grain == width else None
        if last:
            counter = self.variables[loop.var]
            place = self.variables[loop.var] = self.least(counter, last)
            self.fresh_lanes = self.lanes_from(counter, place) if once_each else ""
        any_order = loop.axis is not Axis.ORDERED and not self.fresh_lanes
        self.b.in_halves = any_order and halves.pay(self, loop.body, width)

    def lanes_from(self, counter: str, place: str) -> str:
        """A mask of the lanes of a vector at `place` that lie at `counter` or behind."""
        seen = self.b.value(f"trunc i64 {self.b.value(f'sub i64 {counter}, {place}')} to i32")
        type_ = lanes_type("i32", self.lanes)
        numbers = ", ".join(f"i32 {lane}" for lane in range(self.lanes))
        return self.b.value(
            f"icmp uge {type_} <{numbers}>, {self.b.broadcast(seen, 'i32', self.lanes)}"
        )
