"""What the items of a group do together, as C.

In: a Body with GROUP loops. Out: lines. Such a loop is dealt to the items of the group, which then
know all that it accumulated:

    for (i64 j = ITEM; j < 1000; j += 256) sum += x0[i * 1000 + j];
    /* warps add up in registers, then one another's sums; where there are none, halves of the group
       through memory that it shares */
"""

from __future__ import annotations

from tinyhlo.codegen.bodies import all_values, below, stores_in, ways_together
from tinyhlo.codegen.c.statements import Statements
from tinyhlo.codegen.expressions import Load, Memory, Read, apply, identity
from tinyhlo.codegen.loops import Axis, Bind, Loop, guarded
from tinyhlo.codegen.regions import inline
from tinyhlo.codegen.walks import work_of
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.index import ZERO, Var, index
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div
from tinyhlo.target import WARP, WARPS

WRITTEN_OUT = 1024  # ops of a loop, at most, that is written out


class GroupStatements(Statements):
    """Renders bodies for groups, whose items share loops and put together what each has found."""

    def dealt(self, loop: Loop) -> None:
        """A loop whose iterations the items of the group share. What they accumulate starts from
        its neutral element and is put together afterwards; what has a combiner starts from the
        value that it has, which is neutral, and keeps the order of the iterations: a combiner is
        associative, and need not commute."""
        ways = ways_together(loop.body)
        saved = {name: self.registers[name] for group in ways for name in group}
        for group, way in ways.items():
            for name in group:
                dtype, own = self.dtypes[name], f"{name}_{self.out.fresh()}"
                first = saved[name]
                if isinstance(way, Op):
                    first = self.language.literal_text(identity(way, dtype).bits, dtype)
                self.out.variable(self.language.type_name(dtype), own, first)
                self.registers[name] = own
        alone, self.alone = self.alone, True
        if any(isinstance(way, Graph) for way in ways.values()):
            self.neighbours(loop)
        else:
            self.turns(loop)
        self.alone = alone
        for group, way in ways.items():
            totals = self.together(group, way)
            for name, total in zip(group, totals, strict=True):
                self.registers[name] = saved[name]
                if isinstance(way, Op):
                    total = self.combined(way, saved[name], total, self.dtypes[name])
                self.out.line(f"{saved[name]} = {total};")
        if stores_in(loop.body):
            self.out.line(self.language.barrier)

    def neighbours(self, loop: Loop) -> None:
        """The iterations of one item, one after the other."""
        extent = loop.var.extent
        count = extent if loop.count is None else loop.count
        turn, own = Var("turn", ceil_div(count, self.items)), Var("own", self.items)
        self.variables[own] = self.language.item
        self.bind(own)
        number = index(own) * turn.extent + index(turn)
        place = loop.start + number
        body = guarded((Bind(loop.var, place), *loop.body), Condition(place, 0, extent))
        self.statement(Loop(turn, Axis.SERIAL, guarded(body, Condition(number, 0, count))))

    def turns(self, loop: Loop) -> None:
        """The iterations of one item: all items read side by side. Where these are few and cheap,
        a compiler writes them out, and keeps what they load in registers for loops that follow."""
        item, extent = self.language.item, loop.var.extent
        turns = ceil_div(extent, self.items)
        work = work_of(all_values(below(loop.body)))
        few = turns <= WARP and turns * work <= WRITTEN_OUT
        few = few and not any(isinstance(s, Loop) for s in below(loop.body))
        if not (self.target.has(WARPS) and few and loop.start == ZERO and loop.count is None):
            first = item if loop.start == ZERO else f"{self.index(loop.start)} + {item}"
            self.run(loop, first, f"{self.variable(loop)} += {self.items}")
            return
        turn, own = Var("turn", turns), Var("own", self.items)
        # The remainder tells a compiler which turns are whole ones.
        self.variables[own] = f"({item} % {self.items})" if extent % self.items else item
        self.bind(own)
        place = index(turn) * self.items + index(own)
        body = (Bind(loop.var, place), *loop.body)
        steps = Loop(turn, Axis.SERIAL, guarded(body, Condition(place, 0, extent)))
        self.run(steps, "0", f"{self.variable(steps)} += 1", self.language.unrolled)

    def together(self, group: tuple[str, ...], way: Op | Graph) -> list[str]:
        """The registers of all items of a group put together, always in the same order."""
        if not self.target.has(WARPS):
            return self.through_memory(group, way)
        self.exchanged(group, way, WARP)
        if self.items > WARP:
            self.of_warps(group, way)
        return [self.registers[name] for name in group]

    def of_warps(self, group: tuple[str, ...], way: Op | Graph) -> None:
        """What the warps of a group have found put together, by each of them."""
        warps = self.items // WARP
        memories = [self.memory_of_all(name, warps) for name in group]
        self.out.line("if (LANE == 0) {")
        for name, memory in zip(group, memories, strict=True):
            line = self.stored_line(memory, f"ITEM / {WARP}", self.registers[name])
            self.out.line(f"  {line}")
        self.out.lines += ["}", self.language.barrier]
        for name, memory in zip(group, memories, strict=True):
            found = self.element(memory, f"ITEM % {warps}")
            self.out.line(f"{self.registers[name]} = {found};")
        self.forget(group)
        self.exchanged(group, way, warps)
        if self.current:  # in a loop, maybe, who comes around writes there again
            self.out.line(self.language.barrier)

    def exchanged(self, group: tuple[str, ...], way: Op | Graph, lanes: int) -> None:
        """The registers of so many items put together, the closest ones first. What a combiner
        gives depends on the order: the first item says what it is."""
        dtypes = [self.dtypes[name] for name in group]
        others = [f"other_{name}" for name in group]
        for apart in (1 << k for k in range(lanes.bit_length() - 1)):
            for name, other, dtype in zip(group, others, dtypes, strict=True):
                self.declare(other, dtype, f"across({self.registers[name]}, {apart})")
            reads = tuple(map(Read, others, dtypes))
            if isinstance(way, Op):
                self.accumulate(group[0], way, reads[0])
            else:
                own = tuple(map(Read, group, dtypes))
                self.assign(group, inline(way, (*own, *reads)))
        if isinstance(way, Graph):
            for name in group:
                self.out.line(f"{self.registers[name]} = of_first({self.registers[name]});")

    def memory_of_all(self, name: str, size: int) -> Memory:
        """Memory of the group for a register of some of its items."""
        dtype = self.dtypes[name]
        for memory in self.summed:
            if memory.dtype is dtype:
                self.summed.remove(memory)
                return memory
        memory = Memory(f"all_{self.out.fresh()}", dtype, size, local=True)
        self.share(memory, memory.name)
        return memory

    def through_memory(self, group: tuple[str, ...], way: Op | Graph) -> list[str]:
        """The same through memory that the group shares: halves of the group, or, to keep the
        order, the closest ones first."""
        memories = [self.memory_of_all(name, self.items) for name in group]
        for name, memory in zip(group, memories, strict=True):
            self.out.line(self.stored_line(memory, "ITEM", self.registers[name]))
        apart = self.out.fresh()
        self.out.line(self.language.barrier)
        item, other = Var("item", self.items), Var("apart", self.items)
        one = tuple(Load(memory, index(item)) for memory in memories)
        two = tuple(Load(memory, index(item) + index(other)) for memory in memories)
        values = (apply(way, (*one, *two), one[0].dtype),) if isinstance(way, Op) else ()
        values = values or inline(way, (*one, *two))  # type: ignore[arg-type]
        self.open("", guard=True)
        for var, text in ((item, "ITEM"), (other, apart)):
            self.variables[var] = text
            self.bind(var)
        texts = [self.text(value) for value in values]
        for memory, text in zip(memories, texts, strict=True):
            self.out.line(self.stored_line(memory, "ITEM", text))
        inner = self.close()
        language, half = self.language, self.items // 2
        head = language.halves.format(name=apart, start=half)
        mine = f"ITEM < {apart}"
        if isinstance(way, Graph):
            head = language.doubles.format(name=apart, last=half)
            mine = f"ITEM % (2 * {apart}) == 0"
        self.out.lines += [f"{head} {{", f"  if ({mine}) {{"]
        self.out.lines += [*(f"    {line}" for line in inner.lines), "  }"]
        self.out.lines += [f"  {self.language.barrier}", "}"]
        totals = [self.named(memory.dtype, self.element(memory, "0")) for memory in memories]
        self.out.line(self.language.barrier)
        self.summed += memories
        return totals
