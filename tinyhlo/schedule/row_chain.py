"""Recognise two contractions with work on whole rows between them: attention and its like.

In: a sum of products, one operand of which is computed from another sum of products row by row.
Out: a RowChain, or None:

    scores = sum_d q[b,i,d] * k[b,j,d]               first:  rows (b, i), one `key` axis j
    weights = softmax(mask(scores / 8))              any elementwise work and reduces over j
    result = sum_j weights[b,i,j] * v[b,j,e]         second: contracts j

What matters is only which axes are read where (`access.py`): the order of the axes, the number of
heads, what stands between the contractions and who wrote it do not.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tinyhlo.ir.contraction import Contraction, find_contraction
from tinyhlo.ir.dtypes import F32, F64
from tinyhlo.ir.graph import MultiReduce, Node, Reduce
from tinyhlo.ir.index import Data, Index, Var, atoms_of, index
from tinyhlo.ir.views import Indices
from tinyhlo.ir.walks import reachable
from tinyhlo.records import dataclass
from tinyhlo.schedule.access import INNER, access, is_inner, reducer_of, space_of
from tinyhlo.target import Target

MIN_KEYS = 16  # shorter rows leave nothing to gain
MIN_WORK = 1 << 14  # multiply-adds of the first contraction
MAX_DEPTH = 1024  # of the first contraction, summed in one go
SCRATCH_ROWS = 12  # rows of scores that must fit in the cache, as scores and as weights
NEAR_PART = 4  # of the last cache: scores in so much of it, beside all else, are read quickly
SHALLOW = 512  # multiply-adds a score below which its way to memory and back costs as much


@dataclass(frozen=True, eq=False, slots=True)
class RowChain:
    """`first` sums to `scores`, whose axis `key` is summed by `second`; the left operands hold
    the rows: `second.left` is computed from `scores`."""

    scores: Reduce
    first: Contraction
    result: Reduce
    second: Contraction
    key: int  # axis of `scores`
    whole_rows: bool  # the work between reduces over rows, so it is no epilogue of `first`

    @property
    def keys(self) -> int:
        return self.scores.shape[self.key]


def find_row_chain(result: Node, stop: Callable[[Node], bool]) -> RowChain | None:
    """The chain that ends in `result`; nodes for which `stop` holds are memory."""
    if not isinstance(result, Reduce) or result.dtype not in (F32, F64):
        return None
    second = find_contraction(result)
    if second is None or len(second.k) != 1 or not second.m or not second.n:
        return None
    for contraction in (second, second.turned):
        chain = chain_of(result, contraction, stop)
        if chain is not None:
            return chain
    return None


def chain_of(result: Reduce, second: Contraction, stop: Callable[[Node], bool]) -> RowChain | None:
    def is_scores(node: Node) -> bool:
        return isinstance(node, Reduce) and find_contraction(node) is not None

    def ends(node: Node) -> bool:
        return stop(node) or is_scores(node)

    reads = access(second.left, ends)
    found = [node for node in reads if is_scores(node) and not stop(node)]
    if len(found) != 1 or found[0].dtype != result.dtype:
        return None
    scores = found[0]
    if scores in access(second.right, ends):
        return None
    assert isinstance(scores, Reduce)
    kept = space_of(second.left).kept
    key = key_axis(reads[scores], kept[second.k[0]])
    if key is None or not reduces_over_keys(second.left, scores, scores.shape[key], stop):
        return None
    where = next(iter(reads[scores]))
    first = find_contraction(scores)
    assert first is not None
    axes = scores.kept
    if axes[key] in first.m:
        first = first.turned
    if first.n != (axes[key],):
        return None
    rows = {kept[axis] for axis in (*second.batch, *second.m)}
    shared = {kept[axis] for axis in second.batch}
    for place, axis in enumerate(axes):
        if place != key and not variables(where[place]) <= (rows if axis in first.m else shared):
            return None
    if count(first) != count(second):
        return None
    whole_rows = len(reads[scores]) > 1
    return RowChain(scores, first, result, second, key, whole_rows)


def count(c: Contraction) -> int:
    """Number of rows."""
    return c.extent(c.batch) * c.extent(c.m)


def key_axis(places: set[Indices], key: Var) -> int | None:
    """The axis of the scores that walks along the row: there every access reads `key`, or the
    variable of a reduce; elsewhere all accesses agree."""
    first = next(iter(places))
    found = [axis for axis, position in enumerate(first) if walks(position, key)]
    if len(found) != 1:
        return None
    (axis,) = found
    for place in places:
        same = (*place[:axis], *place[axis + 1 :]) == (*first[:axis], *first[axis + 1 :])
        if not same or not walks(place[axis], key):
            return None
    others = (*first[:axis], *first[axis + 1 :])
    inner = any(is_inner(var) or var == key for each in others for var in variables(each))
    return None if inner else axis


def walks(position: Index, key: Var) -> bool:
    """Whether an index is one variable that runs over the whole row."""
    if position == index(key):
        return True
    match position:
        case Index(offset=0, terms=((Var() as var, 1),)):
            return is_inner(var) and var.extent == key.extent
        case _:
            return False


def variables(position: Index) -> set[Var]:
    atoms = list(atoms_of(position))
    found = {atom for atom in atoms if isinstance(atom, Var)}
    if any(isinstance(atom, Data) for atom in atoms):
        found.add(Var(INNER, 1))  # of data as little is known as of a sum inside
    return found


def reduces_over_keys(root: Node, scores: Reduce, keys: int, stop: Callable[[Node], bool]) -> bool:
    """Every reduce between `root` and the scores runs over one axis of `keys` elements."""

    def ends(node: Node) -> bool:
        return node is scores or stop(node)

    for node in reachable([root], lambda n: () if ends(n) else n.inputs):
        reducer = None if ends(node) else reducer_of(node)
        if isinstance(reducer, MultiReduce):
            return False
        if reducer is not None:
            extents = [reducer.inputs[0].shape[axis] for axis in reducer.axes]
            if prod(extents) != keys or keys not in extents:
                return False
    return True


def pays(chain: RowChain, target: Target) -> bool:
    """Whether keeping the scores in the cache saves more than it costs: a few rows of them must
    fit, there must be enough rows to fill a tile, and either the operands that every block of rows
    walks through stay in L2, or the products are so shallow that writing scores would dominate.
    Scores that the last cache holds are worth it only where they are read more than once and
    followed by tiles of two vectors; those that a part of it holds, where they are larger than the
    operands."""
    keys, first, second = chain.keys, chain.first, chain.second
    rows, depth, columns = first.extent(first.m), first.extent(first.k), second.extent(second.n)
    if keys < MIN_KEYS or min(rows, depth, columns) < 4 or depth > MAX_DEPTH:
        return False
    if count(first) * keys * depth < MIN_WORK:
        return False
    itemsize = chain.result.dtype.itemsize
    nbytes = count(first) * keys * itemsize
    narrow = columns * itemsize < 2 * target.vector_bytes
    if nbytes <= target.l3_bytes and (narrow or not chain.whole_rows):
        return False
    few = nbytes <= target.l3_bytes // NEAR_PART or not chain.whole_rows
    if few and rows * keys < (rows + keys) * (depth + columns):
        return False  # the operands are larger than the scores
    l2 = target.l2_bytes
    l3 = max(target.l3_bytes // target.threads, l2)
    walked = (depth + columns) * keys * itemsize
    scratch = 2 * SCRATCH_ROWS * keys * itemsize
    if walked <= l2 // 2:
        return scratch <= l3 // 2
    return depth + columns <= SHALLOW and walked + scratch <= l3 // 2
