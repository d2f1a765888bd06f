"""Statements as C, for one work-item of a grid.

In: a Body. Out: lines. A GRID loop is the work-item, or its group, itself; a GROUP loop is dealt
to the items of the group, which then know all that it accumulated:

    for (i64 j = ITEM; j < 1000; j += 256) sum += x0[i * 1000 + j];
    /* halves of the group add up through memory that it shares */
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinyhlo.codegen.bodies import (
    all_values,
    below,
    in_order,
    stores_in,
    substituted,
    ways_together,
)
from tinyhlo.codegen.c.arithmetic import Functions
from tinyhlo.codegen.c.fragments import COPIES, fragment_function, load_function
from tinyhlo.codegen.c.language import Language
from tinyhlo.codegen.c.prelude import STORES_2
from tinyhlo.codegen.c.values import Values
from tinyhlo.codegen.expressions import Apply, Expression, Load, Memory, Read, apply, identity
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Assign,
    Axis,
    Bind,
    Body,
    Copy,
    Declare,
    EndCopies,
    Fetch,
    FragmentProduct,
    If,
    Keep,
    Loop,
    Put,
    ReadTexel,
    Statement,
    Store,
    Synchronize,
    WriteTexel,
    guarded,
)
from tinyhlo.codegen.lowering.fused import inline
from tinyhlo.codegen.numbers import ceil_div
from tinyhlo.codegen.walks import work_of
from tinyhlo.ir.dtypes import F32, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.index import ZERO, Condition, Var, constant, index, is_multiple
from tinyhlo.ir.ops import Op
from tinyhlo.target import WARP, Target

WRITTEN_OUT = 1024  # ops of a loop, at most, that is written out


class Statements(Values):
    """Renders bodies for groups of `items`; `alone`: each item works by itself."""

    def __init__(
        self,
        target: Target,
        names: Mapping[Memory, str],
        functions: Functions,
        items: int,
        alone: bool,
        language: Language | None = None,
    ) -> None:
        super().__init__(target, names, functions, language)
        self.items = items
        self.alone = alone
        self.dtypes: dict[str, DType] = {}  # of registers
        self.shared: list[str] = []  # declarations of memory that a group shares
        self.shares: list[tuple[str, Memory]] = []  # its names

    # --- bodies ------------------------------------------------------------------------------

    def body(self, body: Body) -> None:
        for each in in_order(body):
            if isinstance(each, list):
                self.stores(each)
            else:
                self.statement(each)

    def statement(self, statement: Statement) -> None:
        match statement:
            case Loop():
                self.loop(statement)
            case Declare(name=name, value=value):
                self.declare(name, value.dtype, self.text(value))
            case Accumulate(name=name, op=op, value=value):
                self.accumulate(name, op, value)
            case Assign(names=names, values=values):
                self.assign(names, values)
            case If(conditions=conditions, body=inner):
                self.block(f"if ({self.hold(conditions)})", inner, guard=True)
            case Bind(var=var, index=index):
                self.variables[var] = self.out.value(self.index_type, self.index(index))
                self.bind(var)
            case Keep():
                self.keep_values(statement)
            case Allocate(memory=memory):
                self.allocate(memory)
            case Synchronize(behind=behind):
                self.out.lines += [] if behind is None else [f"AWAIT_COPIES({behind});"]
                self.out.line(self.language.barrier)
                self.stored()
            case Copy():
                self.copy(statement)
            case EndCopies():
                self.out.line("END_COPIES;")
            case Fetch():
                self.fetch(statement)
            case Put(memory=memory, index=index, values=values):
                given = ", ".join(map(self.text, values))
                self.out.line(f"store_4({self.names[memory]} + {self.index(index)}, {given});")
                self.stored()
            case ReadTexel():
                self.read_texel(statement)
            case WriteTexel(image=image, values=values):
                given = ", ".join(map(self.text, values))
                self.out.line(f"write_{image.dtype}({self.texel(statement)}, {given});")
            case FragmentProduct(name=name, sums=sums, words=words):
                self.fragment_product(name, sums, words)
            case _:
                raise TypeError(statement)

    def block(self, head: str, body: Body, guard: bool = False) -> None:
        """A body in braces, and what it leaves behind."""
        self.open("", guard=guard)
        self.rebound(body)
        self.body(body)
        self.close_block(head)
        self.settle(body)

    def close_block(self, head: str) -> None:
        inner = self.close()
        self.out.lines += [f"{head} {{", *(f"  {line}" for line in inner.lines), "}"]

    # --- memory ------------------------------------------------------------------------------

    def allocate(self, memory: Memory) -> None:
        """Memory of the item, or of its group; what is too large for that has a place already."""
        if memory in self.names:
            return
        name = f"{memory.name}_{self.out.fresh()}"
        if self.alone:
            self.names[memory] = name
            self.out.line(self.array(self.language.array, memory, name))
        else:
            self.share(memory, name)

    def array(self, template: str, memory: Memory, name: str) -> str:
        type_ = self.language.stored_name(memory.dtype)
        return template.format(type=type_, name=name, size=memory.size)

    def share(self, memory: Memory, name: str) -> None:
        """Memory of the group, under this name."""
        self.names[memory] = name
        self.shares.append((name, memory))
        self.shared.append(self.array(self.language.shared, memory, name))

    def stored_line(self, memory: Memory, place: str, text: str) -> str:
        """Of one element."""
        return f"{self.names[memory]}[{place}] = {text};"

    def stores(self, group: list[Store]) -> None:
        """Stores whose values are all computed before any is stored; of a group one item stores,
        and all wait for it."""
        texts = [(s.memory, self.index(s.index), self.kept_text(s.value)) for s in group]
        lines: list[str] = []
        while texts:
            place = len(group) - len(texts)
            if self.target.device in STORES_2 and are_pair(group[place : place + 2]):
                (memory, at, one), (*_, two) = texts[:2]
                lines.append(f"store_2({self.names[memory]}[{at}], {one}, {two});")
                texts = texts[2:]
            else:
                lines.append(self.stored_line(*texts.pop(0)))
        if not self.alone:
            self.out.line(self.language.barrier)
            self.out.line(f"if ({self.language.item} == 0) {{")
            self.out.lines += [f"  {line}" for line in lines]
            self.out.lines += ["}", self.language.barrier]
        else:
            self.out.lines += lines
        self.stored()

    def kept_text(self, value: Expression) -> str:
        text = self.text(value)
        if isinstance(value, Read):
            return self.named(value.dtype, text)
        return text

    # --- registers ---------------------------------------------------------------------------

    def declare(self, name: str, dtype: DType, text: str) -> None:
        own = f"{name}_{self.out.fresh()}"
        self.registers[name] = own
        self.dtypes[name] = dtype
        self.out.variable(self.language.type_name(dtype), own, text)
        self.forget((name,))
        self.bind(name)

    def accumulate(self, name: str, op: Op, value: Expression) -> None:
        dtype, own = self.dtypes[name], self.registers[name]
        text = self.text(value)
        if value.dtype is not dtype:  # a boolean: all bits or none
            ones, zero = (self.language.literal_text(b, dtype) for b in ((1 << dtype.bits) - 1, 0))
            text = self.choice(text, ones, zero)
            text = self.named(dtype, text)
        self.out.line(f"{own} = {self.combined(op, str(own), text, dtype)};")
        self.forget((name,))

    def combined(self, op: Op, left: str, right: str, dtype: DType) -> str:
        return self.operation(op, [left, right], dtype, dtype)

    def assign(self, names: tuple[str, ...], values: tuple[Expression, ...]) -> None:
        match values:
            case (Apply(op=Op.FMA, arguments=given),) if not self.target.fma:
                # Rounded as the device likes: an exact one is many of its instructions.
                texts = [f"mad({', '.join(map(self.text, given))})"]
            case _:
                texts = [self.kept_text(value) for value in values]
        for name, text in zip(names, texts, strict=True):
            self.out.line(f"{self.registers[name]} = {text};")
        self.forget(names)

    def keep_values(self, keep: Keep) -> None:
        condition, count = self.text(keep.condition), self.registers[keep.count]
        texts = [self.text(value) for value in keep.values]
        kept = zip(keep.memories, texts, strict=True)
        lines = [f"  {self.stored_line(memory, str(count), text)}" for memory, text in kept]
        test = condition if self.alone else f"{condition} && {self.language.item} == 0"
        self.out.lines += [f"if ({test}) {{", *lines, "}"]
        if not self.alone:
            self.out.line(self.language.barrier)
        self.out.line(f"if ({condition}) {{ {count} += 1; }}")
        self.forget((keep.count,))
        self.stored()

    def fetch(self, fetch: Fetch) -> None:
        given = ", ".join(self.registers[name] for name in fetch.names)
        where = f"{self.names[fetch.memory]} + {self.index(fetch.index)}"
        self.functions.update(load_function(fetch.by))
        self.out.line(f"{fetch.by}({given}, {where});")
        self.forget(fetch.names)

    def copy(self, copy: Copy) -> None:
        self.functions["copy_4"] = COPIES
        to = f"{self.names[copy.memory]}[{self.index(copy.index)}]"
        origin = f"{self.names[copy.source]} + {self.index(copy.origin)}"
        inside = self.hold(copy.conditions) if copy.conditions else "true"
        self.out.line(f"copy_4({to}, {origin}, {inside});")

    def fragment_product(self, name: str, sums: Sequence[str], words: Sequence[Expression]) -> None:
        self.functions[name] = fragment_function(name)
        given = [*(self.registers[each] for each in sums), *(self.text(word) for word in words)]
        self.out.line(f"{name}({', '.join(given)});")
        self.forget(tuple(sums))

    # --- images ------------------------------------------------------------------------------

    def texel(self, at: ReadTexel | WriteTexel) -> str:
        return f"{self.names[at.image]}, {self.index(at.x)}, {self.index(at.y)}"

    def read_texel(self, read: ReadTexel) -> None:
        """Registers that are the parts of a vector."""
        own = self.out.value("float4", f"read_{read.image.dtype}({self.texel(read)})")
        for name, part in zip(read.names, "xyzw", strict=True):
            self.registers[name] = f"{own}.{part}"
            self.dtypes[name] = F32
            self.bind(name)

    # --- loops -------------------------------------------------------------------------------

    def loop(self, loop: Loop) -> None:
        if loop.var.extent == 0:
            return
        match loop.axis:
            case Axis.GRID:
                self.grid(loop)
            case Axis.GROUP:
                self.dealt(loop)
            case Axis.ITEM:
                self.each_item(loop)
            case Axis.UNROLL:
                for k in range(loop.var.extent):
                    self.body(substituted(loop.body, {loop.var: constant(k)}))
            case _:
                start = self.index(loop.start)
                self.run(loop, start, f"{self.variable(loop)} += 1")

    def variable(self, loop: Loop) -> str:
        clean = "".join(c if c.isalnum() else "_" for c in loop.var.name)
        return f"{clean}_{loop.var.extent}"

    def end(self, loop: Loop) -> str:
        extent = loop.var.extent
        if loop.count is None:
            return str(extent)
        end = loop.start + loop.count
        if end.bounds[1] <= extent:
            return self.index(end)
        if not end.terms:
            return str(min(end.offset, extent))
        text = self.out.value(self.index_type, self.index(end))
        return self.out.value(self.index_type, self.choice(f"{text} < {extent}", text, str(extent)))

    def run(self, loop: Loop, start: str, step: str, before_it: str = "") -> None:
        name, end = self.variable(loop), self.end(loop)
        self.open("")
        before, variable = self.bind(loop.var), self.variables.get(loop.var)
        self.variables[loop.var] = name
        self.rebound(loop.body)
        self.body(loop.body)
        self.unbind(loop.var, before)
        if variable is not None:
            self.variables[loop.var] = variable
        head = self.language.loop.format(
            type=self.index_type, name=name, start=start, end=end, step=step
        )
        waits = any(isinstance(s, Synchronize) for s in loop.body)
        # A tile's steps, written out, take all registers for their indices.
        fetches = any(isinstance(s, Fetch) for s in loop.body)
        # Loads of some iterations, written out, are under way at once.
        word = before_it or (self.language.eights if fetches else "")
        self.close_block(f"{self.language.rolled if waits else word}{head}")
        self.settle(loop.body)

    def grid(self, loop: Loop) -> None:
        """The loop whose iterations are the work-items, or the groups."""
        name = self.variable(loop)
        rows = self.language.rows
        place = f"GROUP * {self.items} + ITEM" if self.alone else "GROUP"
        if rows > 1:
            place = f"GROUP * {rows} + ITEM / {self.items}"
        self.out.constant(self.index_type, name, place)
        self.variables[loop.var] = name
        self.bind(loop.var)
        if loop.var.extent % (self.items if self.alone else rows):
            self.block(f"if ({name} < {loop.var.extent})", loop.body, guard=True)
        else:
            self.body(loop.body)

    def each_item(self, loop: Loop) -> None:
        """What every item of the group does by itself; they wait where the body says so."""
        name, alone = self.variable(loop), self.alone
        self.out.constant(self.index_type, name, "ITEM")
        self.variables[loop.var] = name
        self.bind(loop.var)
        self.alone = True
        self.body(loop.body)
        self.alone = alone

    def dealt(self, loop: Loop) -> None:
        """A loop whose iterations the items of the group share. What they accumulate starts from
        its neutral element and is put together afterwards; what has a combiner starts from the
        value that it has, which is neutral."""
        ways = ways_together(loop.body)
        saved = {name: str(self.registers[name]) for group in ways for name in group}
        for group, way in ways.items():
            for name in group:
                dtype, own = self.dtypes[name], f"{name}_{self.out.fresh()}"
                first = saved[name]
                if isinstance(way, Op):
                    first = self.language.literal_text(identity(way, dtype).bits, dtype)
                self.out.variable(self.language.type_name(dtype), own, first)
                self.registers[name] = own
        alone, self.alone = self.alone, True
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

    def turns(self, loop: Loop) -> None:
        """The iterations of one item. Where they are few and cheap, a compiler writes them out, and
        keeps what they load in registers for the loops that follow."""
        item, extent = self.language.item, loop.var.extent
        turns = ceil_div(extent, self.items)
        work = work_of(all_values(below(loop.body)))
        few = turns <= WARP and turns * work <= WRITTEN_OUT
        few = few and not any(isinstance(s, Loop) for s in below(loop.body))
        if not (self.target.has_warps and few and loop.start == ZERO and loop.count is None):
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
        if not self.target.has_warps:
            return self.in_halves(group, way)
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
        """The registers of so many neighbours put together. What a combiner gives may depend on the
        order: the first item says what it is."""
        dtypes = [self.dtypes[name] for name in group]
        others = [f"other_{name}" for name in group]
        while lanes > 1:
            lanes //= 2
            for name, other, dtype in zip(group, others, dtypes, strict=True):
                self.declare(other, dtype, f"across({self.registers[name]}, {lanes})")
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
        memory = Memory(f"all_{self.out.fresh()}", self.dtypes[name], size, local=True)
        self.share(memory, memory.name)
        return memory

    def in_halves(self, group: tuple[str, ...], way: Op | Graph) -> list[str]:
        """The same through memory that the group shares."""
        memories = [self.memory_of_all(name, self.items) for name in group]
        for name, memory in zip(group, memories, strict=True):
            self.out.line(self.stored_line(memory, "ITEM", self.registers[name]))
        half = self.out.fresh()
        self.out.line(self.language.barrier)
        item, other = Var("item", self.items), Var("half", self.items)
        one = tuple(Load(memory, index(item)) for memory in memories)
        two = tuple(Load(memory, index(item) + index(other)) for memory in memories)
        values = (apply(way, (*one, *two), one[0].dtype),) if isinstance(way, Op) else ()
        values = values or inline(way, (*one, *two))  # type: ignore[arg-type]
        self.open("", guard=True)
        for var, text in ((item, "ITEM"), (other, half)):
            self.variables[var] = text
            self.bind(var)
        texts = [self.text(value) for value in values]
        for memory, text in zip(memories, texts, strict=True):
            self.out.line(self.stored_line(memory, "ITEM", text))
        inner = self.close()
        head = self.language.halves.format(name=half, start=self.items // 2)
        self.out.line(f"{head} {{")
        self.out.lines += [f"  if (ITEM < {half}) {{", *(f"    {x}" for x in inner.lines), "  }"]
        self.out.lines += [f"  {self.language.barrier}", "}"]
        totals = [self.named(memory.dtype, self.element(memory, "0")) for memory in memories]
        self.out.line(self.language.barrier)
        return totals


def are_pair(stores: Sequence[Store]) -> bool:
    """Whether two stores are of neighbours in an array, the first at a multiple of two."""
    if len(stores) < 2 or stores[0].memory.local or stores[0].memory != stores[1].memory:
        return False
    one, two = stores[0].index, stores[1].index
    return two - one == constant(1) and is_multiple(one, 2)
