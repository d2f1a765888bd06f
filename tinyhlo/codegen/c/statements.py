"""Statements as C, for one work-item of a grid.

In: a Body. Out: lines. A GRID loop is the work-item, or its group, itself; what a group does
together is in `groups.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from tinyhlo.codegen.bodies import in_order, substituted
from tinyhlo.codegen.c.arithmetic import Functions
from tinyhlo.codegen.c.fragments import (
    copy_function,
    fragment_function,
    load_function,
    warpgroup_functions,
)
from tinyhlo.codegen.c.language import Language
from tinyhlo.codegen.c.prelude import STORES_2
from tinyhlo.codegen.c.values import Values
from tinyhlo.codegen.expressions import Apply, Expression, Memory, Read
from tinyhlo.codegen.grid.statements import (
    Copy,
    EndCopies,
    Fetch,
    FragmentProduct,
    Put,
    ReadTexel,
    Synchronize,
    WarpgroupProducts,
    WriteTexel,
)
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Assign,
    Axis,
    Bind,
    Body,
    Declare,
    If,
    Keep,
    Loop,
    Statement,
    Store,
)
from tinyhlo.ir.dtypes import F32, DType
from tinyhlo.ir.index import constant, is_multiple
from tinyhlo.ir.ops import Op
from tinyhlo.target import Target


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
        self.spare: list[tuple[str, Memory]] = []  # what kernels before have left of it
        self.summed: list[Memory] = []  # arrays for sums of all items that are done

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
            case Synchronize(behind=behind, shown=shown):
                self.out.lines += [] if behind is None else [f"AWAIT_COPIES({behind});"]
                self.out.lines += ["SHOW_COPIES;"] * shown
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
            case WarpgroupProducts():
                self.warpgroup_products(statement)
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
        """Memory of the group: a spare array of its type and size, or a new one of this name."""
        for each in self.spare:
            if (each[1].dtype, each[1].size) == (memory.dtype, memory.size):
                self.spare.remove(each)
                self.names[memory] = each[0]
                return
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
        self.out.line(f"{own} = {self.combined(op, own, text, dtype)};")
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
        lines = [f"  {self.stored_line(memory, count, text)}" for memory, text in kept]
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
        name = f"copy_{copy.words}"
        self.functions.update(copy_function(name))
        to = f"{self.names[copy.memory]}[{self.index(copy.index)}]"
        origin = f"{self.names[copy.source]} + {self.index(copy.origin)}"
        inside = self.hold(copy.conditions) if copy.conditions else "true"
        self.out.line(f"{name}({to}, {origin}, {inside});")

    def fragment_product(self, name: str, sums: Sequence[str], words: Sequence[Expression]) -> None:
        self.functions[name] = fragment_function(name)
        given = [*(self.registers[each] for each in sums), *(self.text(word) for word in words)]
        self.out.line(f"{name}({', '.join(given)});")
        self.forget(tuple(sums))

    def warpgroup_products(self, products: WarpgroupProducts) -> None:
        name, sums = products.name, [self.registers[each] for each in products.sums]
        self.functions.update(warpgroup_functions(name, len(sums)))
        self.out.lines += ["BEGIN_PRODUCTS;"] * bool(products.places)
        for at, to in products.places:
            one = f"{self.names[products.left]} + {self.index(at)}"
            two = f"{self.names[products.right]} + {self.index(to)}"
            self.out.line(f"{name}({one}, {two}, {', '.join(sums)});")
        self.out.lines += ["END_PRODUCTS;"] * bool(products.places)
        if products.behind:
            self.out.line(f"AWAIT_PRODUCTS({products.behind});")
        else:
            self.out.line(f"wgmma_sums({', '.join(sums)});")
        self.forget(products.sums)

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

    @abstractmethod
    def dealt(self, loop: Loop) -> None:
        """A loop whose iterations the items of the group share (`groups.py`)."""


def are_pair(stores: Sequence[Store]) -> bool:
    """Whether two stores are of neighbours in an array, the first at a multiple of two."""
    if len(stores) < 2 or stores[0].memory.local or stores[0].memory != stores[1].memory:
        return False
    one, two = stores[0].index, stores[1].index
    return two - one == constant(1) and is_multiple(one, 2)
