"""Index expressions: integer arithmetic over loop variables, kept in affine normal form.

An `Index` is `offset + sum(coefficient * atom)`. An atom is a loop variable, a quotient or
remainder that range analysis could not remove, or an integer read from data. Equal expressions
are equal values, so a stride is a dictionary lookup and simplification is construction:

    i, j = Var("i", 8), Var("j", 4)
    linear = index(i) * 4 + index(j)      # i*4 + j
    linear // 4                           # i
    linear % 4                            # j
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from math import gcd
from typing import Any, NamedTuple, Union

from tinyhlo.ir.interned import Interned
from tinyhlo.records import dataclass

Bounds = tuple[int, int]
LONG = 200  # characters of an atom that are written out


# Variables and Indices are tuples, because they are made, compared and hashed more than
# all others.
class Var(NamedTuple):
    """A loop variable in [0, extent)."""

    name: str
    extent: int

    @property
    def bounds(self) -> Bounds:
        return 0, max(self.extent - 1, 0)

    def __str__(self) -> str:
        return self.name


_interned: Interned[Any] = Interned()


class _Interning(type):
    """Calling a class gives the one instance with these fields."""

    def __call__(cls, *fields: Any) -> Any:
        key = (cls, *fields)
        found = _interned.get(key)
        return _interned.keep(key, super().__call__(*fields)) if found is None else found


@dataclass(frozen=True, eq=False, repr=False, slots=True, weakref_slot=True)
class _Division(metaclass=_Interning):
    """What quotients and remainders know of themselves: their `bounds`, the `free` names and the
    values of `data` anywhere inside, and their text. Equal ones are one object, as a position that
    is taken apart again and again holds its parts twice at every level: a tree of 2 to the depth.
    """

    bounds: Bounds = field(init=False)
    free: frozenset[Any] = field(init=False)
    data: tuple[Any, ...] = field(init=False)
    text: str = field(init=False)

    def _describe(self, dividend: Index, text: str, bounds: Bounds) -> None:
        free, data = frozenset[Any](), dict[Any, None]()
        for atom, _ in dividend.terms:
            match atom:
                case Var():
                    free |= {atom}
                case Data(value):
                    free, data = free | value.free, data | {value: None}
                case _:
                    free, data = free | atom.free, data | dict.fromkeys(atom.data)
        object.__setattr__(self, "bounds", bounds)
        object.__setattr__(self, "free", free)
        object.__setattr__(self, "data", tuple(data))
        brief = f"#{sha256(text.encode()).hexdigest()[:8]}" if len(text) > LONG else text
        object.__setattr__(self, "text", brief)

    @property
    def is_long(self) -> bool:
        """Whether its text is a name for it."""
        return self.text.startswith("#")

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Quotient(_Division):
    """floor(dividend / divisor), divisor > 0."""

    dividend: Index
    divisor: int

    def __post_init__(self) -> None:
        low, high = (end // self.divisor for end in self.dividend.bounds)
        self._describe(self.dividend, f"({self.dividend})//{self.divisor}", (low, high))


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Remainder(_Division):
    """dividend - floor(dividend / modulus) * modulus, modulus > 0."""

    dividend: Index
    modulus: int

    def __post_init__(self) -> None:
        text = f"({self.dividend})%{self.modulus}"
        self._describe(self.dividend, text, (0, self.modulus - 1))


@dataclass(frozen=True, slots=True)
class Data:
    """An integer value computed by the program itself (`value` is a codegen expression), known
    to lie within `bounds`. The same value within others is another atom: expressions that are
    equal are one, in all kernels of a process, and ranges decide what becomes of them."""

    value: Any
    bounds: Bounds

    def __str__(self) -> str:
        return f"[{self.value}]"


Atom = Union[Var, Quotient, Remainder, Data]


class Index(NamedTuple):
    """offset + sum of coefficient * atom; `terms` is sorted by the atom's text, no zero terms."""

    offset: int
    terms: tuple[tuple[Atom, int], ...]

    def __add__(self, other: Index | int) -> Index:  # type: ignore[override]
        if isinstance(other, int):
            return self if other == 0 else Index(self.offset + other, self.terms)
        if not other.terms:
            return Index(self.offset + other.offset, self.terms)
        if not self.terms:
            return Index(self.offset + other.offset, other.terms)
        merged = dict(self.terms)
        for atom, coefficient in other.terms:
            merged[atom] = merged.get(atom, 0) + coefficient
        return normal(self.offset + other.offset, merged)

    def __sub__(self, other: Index | int) -> Index:
        return self + other * -1

    def __mul__(self, factor: int) -> Index:  # type: ignore[override]
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        return Index(self.offset * factor, tuple([(a, c * factor) for a, c in self.terms]))

    def __floordiv__(self, divisor: int) -> Index:
        return divide(self, divisor)[0]

    def __mod__(self, modulus: int) -> Index:
        return divide(self, modulus)[1]

    @property
    def bounds(self) -> Bounds:
        """Smallest and largest value that range analysis can prove."""
        low = high = self.offset
        for atom, coefficient in self.terms:
            first, last = atom.bounds
            if coefficient >= 0:
                low, high = low + coefficient * first, high + coefficient * last
            else:
                low, high = low + coefficient * last, high + coefficient * first
        return low, high

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def coefficient(self, var: Var, lanes: int = 0) -> int | None:
        """The stride along `var`, or None when the expression is not affine in it; where `lanes`
        are given, in vectors of so many that begin at multiples of them."""
        stride = 0
        for atom, factor in self.terms:
            if atom == var:
                stride += factor
            elif not isinstance(atom, Var) and depends_on(atom, var):
                inside = stride_in_lanes(atom, var, lanes) if lanes else None
                if inside is None:
                    return None
                stride += factor * inside
        return stride

    def __str__(self) -> str:
        parts = [str(a) if c == 1 else f"{a}*{c}" for a, c in self.terms]
        if self.offset or not parts:
            parts.append(str(self.offset))
        return " + ".join(parts)


ZERO = Index(0, ())


def constant(value: int) -> Index:
    return Index(value, ())


def index(atom: Atom) -> Index:
    """The Index of one atom; a variable of extent 1 is the constant 0."""
    if isinstance(atom, Var) and atom.extent <= 1:
        return ZERO
    return Index(0, ((atom, 1),))


def axis_variables(shape: Sequence[int]) -> tuple[Var, ...]:
    """A variable for each axis of a shape, o0, o1, ...: together they are any point of it."""
    return tuple(Var(f"o{axis}", extent) for axis, extent in enumerate(shape))


def point_of(shape: Sequence[int]) -> tuple[Index, ...]:
    """Any point of a shape, by its `axis_variables`."""
    return tuple(map(index, axis_variables(shape)))


def normal(offset: int, terms: Mapping[Atom, int]) -> Index:
    """Drop zero terms, join c*n*(x//n) + c*(x%n) into c*x, sort."""
    if len(terms) < 2:
        return Index(offset, tuple([term for term in terms.items() if term[1]]))
    for atom, coefficient in terms.items():
        if type(atom) is Remainder and coefficient:
            n = atom.modulus
            whole = divide(atom.dividend, n)[0]
            if len(whole.terms) == 1 and whole.offset == 0:
                partner, unit = whole.terms[0]
                if unit == 1 and terms.get(partner, 0) == coefficient * n:
                    rest = {a: c for a, c in terms.items() if a != atom and a != partner}
                    return normal(offset, rest) + atom.dividend * coefficient
    kept = [(a, c) for a, c in terms.items() if c]
    if len(kept) > 1:
        kept.sort(key=text_of_atom)
    return Index(offset, tuple(kept))


def text_of_atom(term: tuple[Atom, int]) -> str:
    atom = term[0]
    return atom.name if type(atom) is Var else str(atom)


def divide(dividend: Index, divisor: int) -> tuple[Index, Index]:
    """(floor quotient, remainder) of an Index by a positive constant, simplified by ranges."""
    if divisor == 1:
        return dividend, ZERO
    whole = tuple([(a, c // divisor) for a, c in dividend.terms if c % divisor == 0])
    left = tuple([term for term in dividend.terms if term[1] % divisor])
    quotient = Index(dividend.offset // divisor, whole)
    rest = Index(dividend.offset % divisor, left)
    low, high = rest.bounds
    if low // divisor == high // divisor:
        shift = low // divisor
        return quotient + shift, rest + -shift * divisor
    common = divisor
    for _, coefficient in left:
        common = gcd(common, coefficient)
    if common > 1:
        inner = Index(rest.offset // common, tuple((a, c // common) for a, c in left))
        outer_quotient, outer_rest = divide(inner, divisor // common)
        return quotient + outer_quotient, outer_rest * common + rest.offset % common
    if len(left) == 1 and rest.offset == 0 and isinstance(left[0][0], Quotient) and left[0][1] == 1:
        nested = left[0][0]
        joined = divide(nested.dividend, nested.divisor * divisor)[0]
        remainder = index(Remainder(rest, divisor))
        return quotient + joined, remainder
    return quotient + index(Quotient(rest, divisor)), index(Remainder(rest, divisor))


def depends_on(atom: Atom, var: Var) -> bool:
    """Whether `var` occurs anywhere inside `atom`."""
    match atom:
        case Var():
            return atom == var
        case Quotient() | Remainder():
            return var in atom.free
        case Data(value):
            return bool(value.depends_on(var))


def atoms_of(where: Index) -> Iterator[Atom]:
    """The atoms of an index and those inside its quotients and remainders, each once."""
    pending, seen = [where], set[Atom]()
    while pending:
        for atom, _ in pending.pop().terms:
            if atom not in seen:
                seen.add(atom)
                yield atom
                if isinstance(atom, (Quotient, Remainder)):
                    pending.append(atom.dividend)


def stride_in_lanes(atom: Atom, var: Var, lanes: int) -> int | None:
    """In vectors that begin at multiples of `lanes` along `var`: j//32 is the same for 16 of them,
    and j%32 counts on."""
    match atom:
        case Quotient(dividend=dividend, divisor=size):
            stride = 0
        case Remainder(dividend=dividend, modulus=size):
            stride = 1
        case _:
            return None
    rest = dividend - index(var)
    known = not any(depends_on(other, var) for other, _ in rest.terms)
    numbers = (size, rest.offset, *(factor for _, factor in rest.terms))
    return stride if known and not any(number % lanes for number in numbers) else None


def sums_of(where: Index) -> list[Index]:
    """An index, and those divided inside it."""
    divisions = (a for a in atoms_of(where) if isinstance(a, (Quotient, Remainder)))
    return [where, *(atom.dividend for atom in divisions)]


def reach(where: Index) -> int:
    """How large a sum may be while its terms are added up, whatever their sign."""
    ends = (max(map(abs, atom.bounds)) * abs(factor) for atom, factor in where.terms)
    return abs(where.offset) + sum(ends)


def substitute(
    expression: Index, values: Mapping[Var, Index], done: dict[Any, Any] | None = None
) -> Index:
    """Replace loop variables by expressions, simplifying again; `done` shares the work between
    indices and the values of Data."""
    result, done = constant(expression.offset), {} if done is None else done
    for atom, coefficient in expression.terms:
        if isinstance(atom, Var):
            result = result + values.get(atom, index(atom)) * coefficient
            continue
        replaced = done.get(atom)
        if replaced is None:
            replaced = done[atom] = substitute_atom(atom, values, done)
        result = result + replaced * coefficient
    return result


def substitute_atom(
    atom: Quotient | Remainder | Data, values: Mapping[Var, Index], done: dict[Any, Any]
) -> Index:
    match atom:
        case Quotient(dividend, divisor):
            return substitute(dividend, values, done) // divisor
        case Remainder(dividend, modulus):
            return substitute(dividend, values, done) % modulus
        case Data(value, bounds):
            return value.substitute(values, done).as_index(bounds)


def at_each(where: Index, var: Var) -> tuple[Index, ...]:
    """An index for every value of a variable."""
    stride = where.coefficient(var)
    if stride is None:
        return tuple(substitute(where, {var: constant(k)}) for k in range(var.extent))
    first = substitute(where, {var: ZERO})
    return tuple(first + k * stride for k in range(var.extent))


def is_multiple(where: Index, of: int) -> bool:
    """Whether an index is known to be one."""
    return all(factor % of == 0 for factor in (where.offset, *(f for _, f in where.terms)))


def linear(indices: Sequence[Index], shape: Sequence[int]) -> Index:
    """Row-major element number of `indices` within `shape`."""
    offset, stride = 0, 1
    terms: dict[Atom, int] = {}
    for position, extent in zip(reversed(indices), reversed(shape), strict=True):
        own, parts = position
        offset += own * stride
        for atom, coefficient in parts:
            terms[atom] = terms.get(atom, 0) + coefficient * stride
        stride *= extent
    return normal(offset, terms)


def unravel(element: Index, shape: tuple[int, ...]) -> tuple[Index, ...]:
    """Row-major coordinates of element number `element` within `shape`."""
    coordinates: list[Index] = []
    for extent in reversed(shape[1:]):
        element, remainder = divide(element, extent) if extent > 0 else (element, ZERO)
        coordinates.append(remainder)
    return (element, *reversed(coordinates)) if shape else ()
