"""Expressions as C.

In: an Expression and the open Scopes. Out: the text of its value: a name, or a literal. Each is
computed once, in the outermost scope that binds what it depends on:

    const f32 v3 = x0[i * 64 + j];
    const f32 v4 = v3 * v3;
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from tinyhlo.codegen.c.arithmetic import Functions
from tinyhlo.codegen.c.language import C, Language
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
    index_loads,
)
from tinyhlo.codegen.legal import has_rule, legalised
from tinyhlo.codegen.math.expand import expand
from tinyhlo.codegen.scopes import Scopes, Value
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.index import Data, Index, Quotient, Remainder, Var, index
from tinyhlo.ir.ops import TRANSCENDENTAL, Op
from tinyhlo.target import Target

INT_LIMIT = 1 << 31


class Lines:
    """The lines of the present scope; numbers for names."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self.lines: list[str] = []
        self.count = 0

    def line(self, text: str) -> None:
        self.lines.append(text)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def value(self, type_: str, text: str) -> str:
        name = self.fresh()
        self.constant(type_, name, text)
        return name

    def constant(self, type_: str, name: str, text: str) -> None:
        self.lines.append(self.language.constant.format(type=type_, name=name, value=text))

    def variable(self, type_: str, name: str, text: str) -> None:
        self.lines.append(self.language.variable.format(type=type_, name=name, value=text))


class Values(Scopes):
    """Emits expressions; `names` are what memories are called, `functions` what they call."""

    language: Language = C

    def __init__(
        self,
        target: Target,
        names: Mapping[Memory, str],
        functions: Functions,
        language: Language | None = None,
    ) -> None:
        self.language = language or self.language
        self.out = Lines(self.language)
        super().__init__(self.out)
        self.registers: dict[str, str] = {}
        self.target = target
        self.names = dict(names)
        self.functions = functions
        self.expanded: dict[Expression, Expression | None] = {}
        self.expands = True  # what is rarely needed calls libraries
        self.plain = False  # ops are printed as they are

    def text(self, e: Expression) -> str:
        """The value of `e`, emitted at most once a scope."""
        if isinstance(e, Literal):
            return self.language.literal_text(e.bits, e.dtype)
        if isinstance(e, Read):
            return self.registers[e.name]
        home = self.home(e.free, e.loads)
        found = self.find(e, home)
        if found is not None:
            return found.text
        with self.at(home):
            text = self.computed(e)
        self.stack[home].table(e)[e] = Value(text, 1)
        return text

    def computed(self, e: Expression) -> str:
        match e:
            case Apply():
                return self.apply(e)
            case Load(memory=memory, index=index):
                return self.named(e.dtype, self.element(memory, self.index(index)))
            case IndexValue(index=index, dtype=dtype):
                return self.named(
                    dtype, self.converted(self.index(index), self.language.index, dtype)
                )
            case Guard():
                return self.guard(e)
            case Rarely():
                return self.rarely(e)
        raise TypeError(e)

    def named(self, dtype: DType, text: str) -> str:
        return self.out.value(self.language.type_name(dtype), text)

    @property
    def index_type(self) -> str:
        return self.language.type_name(self.language.index)

    def element(self, memory: Memory, place: str) -> str:
        """The value of an element."""
        return self.language.element(self.names[memory], place, memory.dtype)

    def choice(self, condition: str, then: str, other: str) -> str:
        return self.language.choice.format(condition=condition, then=then, other=other)

    def apply(self, e: Apply) -> str:
        if self.expands and (e.op in TRANSCENDENTAL or (e.op is Op.REM and e.dtype.is_float)):
            if e not in self.expanded:
                self.expanded[e] = expand(e.op, e.arguments, e.dtype, self.target)
            expanded = self.expanded[e]
            if expanded is not None:
                return self.text(expanded)
        texts = [self.text(argument) for argument in e.arguments]
        operand = e.arguments[-1].dtype
        return self.named(e.dtype, self.operation(e.op, texts, operand, e.dtype, e.arguments))

    def converted(self, text: str, source: DType, target: DType) -> str:
        return text if source is target else self.operation(Op.CAST, [text], source, target)

    def operation(
        self,
        op: Op,
        texts: Sequence[str],
        operand: DType,
        result: DType,
        arguments: Sequence[Expression] = (),
    ) -> str:
        """The op where it stands if one plain op does it, which may depend on literals among its
        `arguments`; else a call of a function."""
        if self.plain or not has_rule(op, operand, result):
            return self.language.written(self.functions, op, texts, operand, result)
        reads = [Read(f"input{k}", operand) for k in range(len(texts))]
        parts = [a if isinstance(a, Literal) else r for a, r in zip_longest(arguments, reads)]
        value = legalised(op, parts, result, self.language.is_native)
        if value in parts:
            return texts[parts.index(value)]
        if isinstance(value, Apply) and not any(isinstance(a, Apply) for a in value.arguments):
            given = dict(zip(parts, texts, strict=True))
            texts = [given.get(a) or self.text(a) for a in value.arguments]
            operand = value.arguments[-1].dtype
            return self.language.written(self.functions, value.op, texts, operand, value.dtype)
        name = f"{result}_of_{operand}" if op is Op.CAST else f"{op.label}_{operand}"
        if name not in self.functions:
            inner = self.elsewhere()
            inner.plain = True
            value = legalised(op, reads, result, self.language.is_native)
            self.functions[name] = inner.function_text(name, reads, value)
        return f"{name}({', '.join(texts)})"

    def function_text(self, name: str, inputs: Sequence[Read], value: Expression) -> str:
        """A function of `inputs`."""
        language = self.language
        for read in inputs:
            self.bind(read.name)
            self.registers[read.name] = read.name
        result = self.text(value)
        parameters = ", ".join(
            language.parameter.format(type=language.type_name(read.dtype), name=read.name)
            for read in inputs
        )
        type_ = language.type_name(value.dtype)
        head = language.function.format(type=type_, name=name, parameters=parameters)
        lines = [*self.out.lines, f"return {result};"]
        return "\n".join([f"{head} {{", *(f"  {line}" for line in lines), "}"])

    # --- indices -----------------------------------------------------------------------------

    def index(self, index: Index) -> str:
        """An integer, in parentheses where it is a sum."""
        if not index.terms:
            return str(index.offset)
        parts = [self.term(atom, factor) for atom, factor in index.terms]
        if index.offset:
            parts.append(str(index.offset))
        return parts[0] if len(parts) == 1 else f"({' + '.join(parts)})".replace("+ -", "- ")

    def term(self, atom: object, factor: int) -> str:
        match atom:
            case Var():
                text = self.variables[atom]
            case Quotient() | Remainder():
                text = self.division_once(atom) if atom.is_long else self.division(atom)
            case Data(value=value):
                text = self.converted(self.text(value), value.dtype, self.language.index)
            case _:
                raise TypeError(atom)
        return text if factor == 1 else f"{text} * {factor}"

    def division(self, atom: Quotient | Remainder) -> str:
        match atom:
            case Quotient(dividend, divisor):
                return self.divided(dividend, divisor, "/")
            case Remainder(dividend, modulus):
                return self.divided(dividend, modulus, "%")

    def division_once(self, atom: Quotient | Remainder) -> str:
        """Its name: what is taken apart again and again would be written twice at each level."""
        key = index(atom)
        loads = index_loads(key)
        home = self.home(atom.free, loads)
        found = self.stack[home].indices.get(key)
        if found is None:
            with self.at(home):
                found = self.out.value(self.index_type, self.division(atom))
            if loads < 2:
                self.stack[home].indices[key] = found
        return found

    def divided(self, dividend: Index, divisor: int, infix: str) -> str:
        """Rounded down, in 32 bits where they suffice: a division of 64 takes several times as
        long."""
        low, high = dividend.bounds
        text = self.index(dividend)
        if low < 0:  # shifted to where C rounds down too
            lift = -(low // divisor)
            shifted = f"({text} + {lift * divisor}) {infix} {divisor}"
            return f"({shifted} - {lift})" if infix == "/" else f"({shifted})"
        if high < INT_LIMIT:
            return f"({self.index_type})((u32){text} {infix} {divisor}u)"
        return f"({text} {infix} {divisor})"

    def hold(self, conditions: tuple[Condition, ...]) -> str:
        """Whether all conditions hold."""
        tests: list[str] = []
        for condition in conditions:
            low, high = condition.index.bounds
            text = self.index(condition.index)
            if low < condition.low:
                tests.append(f"{text} >= {condition.low}")
            if high >= condition.high:
                tests.append(f"{text} < {condition.high}")
        return " && ".join(tests) or "true"

    # --- what is not always computed ---------------------------------------------------------

    def guard(self, e: Guard) -> str:
        """The value, or the other one where a condition does not hold: nothing is loaded there."""
        condition = self.hold(e.conditions)
        if not e.value.loads:
            then, other = self.text(e.value), self.text(e.otherwise)
            return self.named(e.dtype, self.choice(condition, then, other))
        name = self.out.fresh()
        type_ = self.language.type_name(e.dtype)
        self.out.line(self.language.unset.format(type=type_, name=name))
        with self.innermost():
            self.branch(f"if ({condition})", e.value, name)
            self.branch("else", e.otherwise, name)
        return name

    def branch(self, head: str, value: Expression, name: str) -> None:
        self.open("", guard=True)
        text = self.text(value)
        inner = self.close()
        self.out.line(f"{head} {{")
        self.out.lines += [f"  {line}" for line in (*inner.lines, f"{name} = {text};")]
        self.out.line("}")

    def rarely(self, e: Rarely) -> str:
        """Call the function where it is needed."""
        condition, usual = self.text(e.condition), self.text(e.usual)
        given = ", ".join(self.text(part) for part in e.inputs)
        call = f"{self.function(e)}({given})"
        return self.named(e.dtype, f"{condition} ? {call} : {usual}")

    def elsewhere(self) -> Values:
        """What renders a function of its own."""
        return Values(self.target, {}, self.functions)

    def function(self, e: Rarely) -> str:
        """The name of the function that computes `e.value`."""
        name = f"{e.name}_{self.language.type_name(e.dtype)}".replace(".", "_")
        if name in self.functions:
            return name
        if e.name == "far_remainder" and not self.target.has_f64:
            self.functions[name] = self.language.far_remainder
        else:
            inner = self.elsewhere()
            inner.expands = False
            inputs = [Read(f"input{k}", part.dtype) for k, part in enumerate(e.inputs)]
            self.functions[name] = inner.function_text(name, inputs, e.value)
        return name
