"""Products of f32 by instructions that take TF32: 10 of the 23 bits behind the point.

In: a Product whose factors may be rounded so. `RoundedProduct` does that; `SplitProduct` takes two
such parts of each factor, and leaves out the product of both small ones:

    x * y = small(x) * y + x * small(y) + x * y,    small(x) = x - (x without its last 13 bits)

An instruction reads no more than TF32 of a word, so what is large of a number needs no step of its
own. Infinity has no small part, and none of it goes into the products of small ones: inf * 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tinyhlo.codegen.expressions import Expression, Load, Memory, Read, apply
from tinyhlo.codegen.grid.products.ahead import WORDS, AheadProduct
from tinyhlo.codegen.grid.products.contraction import Product
from tinyhlo.codegen.grid.products.fragments import Fragment
from tinyhlo.codegen.grid.products.warps import MatrixTile
from tinyhlo.codegen.grid.products.wide import fetched, is_known
from tinyhlo.codegen.grid.statements import Fetch, FragmentProduct
from tinyhlo.codegen.loops import Assign, Body, Statement
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import F32, U32
from tinyhlo.ir.index import ZERO
from tinyhlo.ir.ops import Op

Held = Mapping[str, Sequence[Read]]  # the words of fragments a0 .., b0 ..


class Tf32Product(AheadProduct):
    """What both have in common: a word is a number, and may be copied alone."""

    widths = (WORDS, 1)

    def __init__(self, product: Product, fragment: Fragment) -> None:
        super().__init__(product, F32, fragment)
        self.function = "mma_tf32"

    def words_of(
        self, numbers: Sequence[Expression]
    ) -> tuple[tuple[Condition, ...], tuple[Expression, ...]]:
        """What a window reads of a border is zeros: a condition of the whole run."""
        inside, load = fetched(("",) * len(numbers), numbers)
        match load:
            case (
                Fetch(memory=memory, index=first)
                | Assign(values=(Load(memory=memory, index=first),))
            ) if memory.dtype is F32 and is_known(first):
                view = Memory(f"{memory.name}_words", U32, memory.size)
                self.views[view] = memory
                return inside, tuple(Load(view, first + k) for k in range(len(numbers)))
        return (), tuple(apply(Op.BITCAST, (number,), U32) for number in numbers)


class RoundedProduct(Tf32Product):
    """Each word is rounded to the nearest number of TF32."""

    def products(self, tile: MatrixTile, held: Held) -> Body:
        words = [word for words in held.values() for word in words]
        rounded = (FragmentProduct("round_tf32", (w.name,), (w,), adds=False) for w in words)
        return (*rounded, *super().products(tile, held))


class SplitProduct(Tf32Product):
    """Three products each, those of small parts first."""

    def registers(self, tile: MatrixTile) -> tuple[str, ...]:
        down, across = tile.counts
        left, right = len(self.fragment.left(ZERO)), len(self.fragment.right(ZERO))
        words = [(f"a{n}", k) for n in range(down) for k in range(left)]
        words += [(f"b{n}", k) for n in range(across) for k in range(right)]
        return tuple(each for word in words for each in parts_of(*word))

    def products(self, tile: MatrixTile, held: Held) -> Body:
        split = [
            FragmentProduct("split_tf32", parts_of(name, k), (word,), adds=False)
            for name, words in held.items()
            for k, word in enumerate(words)
        ]
        small, finite = (
            {
                name: [Read(parts_of(name, k)[part], U32) for k in range(len(words))]
                for name, words in held.items()
            }
            for part in range(2)
        )
        body: list[Statement] = [*split]
        for left, right in ((small, finite), (finite, small), (held, held)):
            chosen = {name: (left if name[0] == "a" else right)[name] for name in held}
            body += super().products(tile, chosen)
        return tuple(body)


def parts_of(fragment: str, word: int) -> tuple[str, str]:
    """The registers of what is cut off of a word, and of itself unless it is infinite."""
    return f"small_{fragment}_{word}", f"finite_{fragment}_{word}"
