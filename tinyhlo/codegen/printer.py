"""LoopPrograms as text, like code: what golden tests, TINYHLO_DEBUG and people read.

    softmax(x0: f32[6400]) -> y0: f32[6400]
      for i in 64:
        max0 = -inf
        for j in 100 reduce vector 8:
          max0 = max(max0, x0[i*100 + j])

A subexpression used twice in one body gets a name (`t0 = ...`) at its first use.
"""

from __future__ import annotations

from collections import Counter

from tinyhlo.codegen.bodies import all_values
from tinyhlo.codegen.expressions import (
    Apply,
    Expression,
    Guard,
    IndexValue,
    Literal,
    Load,
    Memory,
    Read,
    float_of,
    number_of,
)
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
    HoldMatrices,
    If,
    Keep,
    Loop,
    LoopProgram,
    Statement,
    Store,
    TileProduct,
)
from tinyhlo.codegen.walks import parts, walk
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.index import ZERO, Data, Index, Quotient, Remainder
from tinyhlo.ir.ops import Op

INFIX = {
    Op.ADD: "+",
    Op.SUB: "-",
    Op.MUL: "*",
    Op.DIV: "/",
    Op.EQ: "==",
    Op.NE: "!=",
    Op.LT: "<",
    Op.LE: "<=",
    Op.AND: "&",
    Op.OR: "|",
    Op.XOR: "^",
}


def format_program(program: LoopProgram) -> str:
    """The whole kernel."""
    reads = ", ".join(map(format_memory, program.reads))
    writes = ", ".join(map(format_memory, program.writes))
    head = f"{program.name}({reads}) -> {writes}"
    if program.in_place:
        pairs = [
            f"{program.writes[k].name} is {program.reads[p].name}" for k, p in program.in_place
        ]
        head += f"  in place: {', '.join(pairs)}"
    if program.moves:
        head += f"\n  [{', '.join(program.moves)}]"
    printer = _Printer()
    printer.body(program.body)
    if program.turns:
        turns = program.turns
        printer.lines.append(f"  for {turns.turn} in {turns.turn.extent} dispatched:")
        printer.level += 1
        printer.body(turns.body)
    return "\n".join([head, *printer.lines])


def format_memory(memory: Memory) -> str:
    if memory.width:
        return f"{memory.name}: {memory.dtype} image of {memory.width}x{memory.height} texels"
    return f"{memory.name}: {memory.dtype}[{memory.size}]"


class _Printer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.named: dict[Expression, str] = {}
        self.shared: set[Expression] = set()
        self.count = 0
        self.level = 0

    def body(self, body: Body) -> None:
        outer = self.named, self.shared
        self.named = dict(self.named)
        self.shared = self.shared | shared_in(body)
        self.level += 1
        for statement in body:
            self.statement(statement)
        self.level -= 1
        self.named, self.shared = outer

    def line(self, text: str) -> None:
        self.lines.append("  " * self.level + text)

    def statement(self, statement: Statement) -> None:
        match statement:
            case Loop(body=body):
                self.line(f"for {self.header(statement)}:")
                self.body(body)
            case If(conditions=conditions, body=body):
                self.line(f"if {self.conditions(conditions)}:")
                self.body(body)
            case Bind(var=var, index=index):
                self.line(f"{var} = {self.index(index)}")
            case Declare(name=name, value=value):
                self.line(f"{name} = {self.value(value)}")
            case Accumulate(name=name, op=op, value=value):
                text = self.value(value)
                if op in INFIX:
                    self.line(f"{name} {INFIX[op]}= {text}")
                else:
                    self.line(f"{name} = {op.label}({name}, {text})")
            case Assign(names=names, values=values):
                texts = [self.value(value) for value in values]
                self.line(f"{', '.join(names)} = {', '.join(texts)}")
            case Store(memory=memory, index=index, value=value):
                text = self.value(value)
                self.line(f"{memory.name}[{self.index(index)}] = {text}")
            case Keep(memories=memories, values=values, condition=condition, count=count):
                texts = [self.value(value) for value in (condition, *values)]
                lists = ", ".join(f"{memory.name}[{count}++]" for memory in memories)
                self.line(f"if {texts[0]}: {lists} = {', '.join(texts[1:])}")
            case TileProduct():
                self.line(self.tile_product(statement))
            case HoldMatrices(rows=rows, vectors=vectors):
                self.line(
                    f"hold matrices of {rows} rows, {vectors} vectors" if rows else "hold none"
                )
            case Allocate(memory=memory):
                self.line(f"local {format_memory(memory)}")
            case Synchronize(behind=behind, shown=shown):
                known = "" if behind is None else f", {behind} behind"
                self.line(f"synchronize{known}{', shown' * shown}")
            case Copy(memory=memory, index=index, source=source, origin=origin):
                places = f"{memory.name}[{self.index(index)} ..]", self.index(origin)
                self.line(f"copy {places[0]} = {source.name}[{places[1]} ..]")
            case EndCopies():
                self.line("end copies")
            case Fetch(names=names, memory=memory, index=index, by=by):
                self.line(f"{', '.join(names)} = {by}({memory.name}[{self.index(index)} ..])")
            case Put(memory=memory, index=index, values=values):
                texts = [self.value(value) for value in values]
                self.line(f"{memory.name}[{self.index(index)} ..] = {', '.join(texts)}")
            case ReadTexel(names=names, image=image, x=x, y=y):
                at = f"{image.name}({self.index(x)}, {self.index(y)})"
                self.line(f"{', '.join(names)} = {at}")
            case WriteTexel(image=image, x=x, y=y, values=values):
                at = f"{image.name}({self.index(x)}, {self.index(y)})"
                self.line(f"{at} = {', '.join(map(self.value, values))}")
            case FragmentProduct(name=name, sums=sums, words=words):
                texts = [self.value(word) for word in words]
                sign = "+=" if statement.adds else "="
                self.line(f"{', '.join(sums)} {sign} {name}({', '.join(texts)})")
            case WarpgroupProducts(name=name, left=left, right=right, behind=behind):
                for at, to in statement.places:
                    one, two = f"{left.name}[{self.index(at)}]", f"{right.name}[{self.index(to)}]"
                    self.line(f"{', '.join(statement.sums)} += {name}({one}, {two})")
                self.line(f"await products, {behind} behind")

    def tile_product(self, m: TileProduct) -> str:
        tile = f"{m.tile.name}[{self.index(m.tile_vectors[0])}]"
        left = f"{m.left.name}[{self.index(m.left_rows[0])} + {self.index(m.left_step)}]"
        left = f"({left} - {m.bias})" if m.bias else left
        if m.right is None:
            right = f"({self.value(m.values[0])})"
        else:
            right = f"{m.right.name}[{self.index(m.right_vectors[0])} + {self.index(m.right_step)}]"
        shape = f"{len(m.left_rows)}x{m.vectors * m.lanes}"
        depth = ", ".join(f"{var} in {var.extent}" for var in m.depth)
        ahead = " ".join(dict.fromkeys(memory.name for memory, _ in m.ahead))
        ahead = f", {ahead} ahead" if ahead else ""
        return f"{tile} {'+' * m.accumulate}= {shape} of {left} * {right}, {depth}{ahead}"

    def header(self, loop: Loop) -> str:
        text = f"{loop.var} in {loop.var.extent}"
        if loop.count is None and loop.start != ZERO:
            text = f"{loop.var} in {self.index(loop.start)} .. {loop.var.extent}"
        if loop.count is not None:
            text = f"{loop.var} in {self.index(loop.start)} .. +{loop.count} of {loop.var.extent}"
        if loop.axis is not Axis.SERIAL:
            text += f" {loop.axis.value}"
        return text + (f" {loop.width}" if loop.width > 1 else "")

    def conditions(self, conditions: tuple[Condition, ...]) -> str:
        return " and ".join(f"{c.low} <= {self.index(c.index)} < {c.high}" for c in conditions)

    def index(self, index: Index) -> str:
        parts = [self.atom(a) if c == 1 else f"{self.atom(a)}*{c}" for a, c in index.terms]
        if index.offset or not parts:
            parts.append(str(index.offset))
        return " + ".join(parts)

    def atom(self, atom: object) -> str:
        match atom:
            case Quotient(data=()) | Remainder(data=()):
                return atom.text
            case Quotient(dividend=dividend, divisor=divisor):
                return f"({self.index(dividend)})//{divisor}"
            case Remainder(dividend=dividend, modulus=modulus):
                return f"({self.index(dividend)})%{modulus}"
            case Data(value=value):
                return f"[{self.value(value)}]"
        return str(atom)

    def value(self, e: Expression) -> str:
        """An expression; shared ones are named on a line of their own."""
        name = self.named.get(e)
        if name is not None:
            return name
        text = self.written_out(e)
        if e in self.shared and not isinstance(e, (Literal, Read)):
            name = self.named[e] = f"t{self.count}"
            self.count += 1
            self.line(f"{name} = {text}")
            return name
        return text

    def written_out(self, e: Expression) -> str:
        match e:
            case Literal():
                return format_literal(e)
            case IndexValue(index=index, dtype=dtype):
                return f"{dtype}({self.index(index)})"
            case Load(memory=memory, index=index):
                return f"{memory.name}[{self.index(index)}]"
            case Read(name=name):
                return name
            case Guard(conditions=conditions, value=value, otherwise=otherwise):
                texts = self.value(value), self.value(otherwise)
                return f"({self.conditions(conditions)} ? {texts[0]} : {texts[1]})"
            case Apply(op=op, arguments=arguments, dtype=dtype):
                given = [self.value(argument) for argument in arguments]
                if op in INFIX:
                    return f"({given[0]} {INFIX[op]} {given[1]})"
                if op in (Op.CAST, Op.BITCAST):
                    return f"{dtype}({given[0]})" if op is Op.CAST else f"bits_{dtype}({given[0]})"
                return f"{op.label}({', '.join(given)})"
        raise TypeError(e)


def format_literal(e: Literal) -> str:
    if e.dtype.is_float:
        return str(float_of(e))
    return str(number_of(e) if e.dtype.is_integer else bool(e.bits))


def shared_in(body: Body) -> set[Expression]:
    """Subexpressions that several places of the statements directly in `body` use, indices that
    the program computes among them."""
    own = [s for s in body if not isinstance(s, (Loop, If, TileProduct))]
    values = all_values(own)
    uses = Counter(values)
    for e in walk(values, below=parts):
        uses.update(parts(e))
    return {e for e, count in uses.items() if count > 1}
