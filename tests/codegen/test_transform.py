"""Products with small constant matrices: the network, the kernel, chains of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.codegen.harness import TARGET, call, check
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.codegen.lowering.kernel import lower_kernel
from tinyhlo.codegen.transform.lower import lower_transform
from tinyhlo.codegen.transform.network import find_network
from tinyhlo.compiler import compile_module, run_stages
from tinyhlo.config import Config
from tinyhlo.import_stablehlo.families.fft_passes import passes
from tinyhlo.import_stablehlo.families.fft_tables import planes_matrix, roots
from tinyhlo.import_stablehlo.families.movement import join
from tinyhlo.ir.build import (
    broadcast,
    constant,
    elementwise,
    full,
    param,
    permute,
    reduce,
    reshape,
    slice_,
    where,
)
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import Graph, Node, Reduce
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.ir.transform import find_transform
from tinyhlo.runtime.compile import compile_program
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import schedule
from tinyhlo.schedule.joined import MANY_PARTS
from tinyhlo.schedule.program import Kernel, Launch


def fourier(n: int) -> np.ndarray:
    return planes_matrix(roots(np.outer(np.arange(n), np.arange(n)), n), False).reshape(2 * n, -1)


@pytest.mark.parametrize(("n", "most"), [(2, 4), (3, 16), (4, 16), (5, 40), (8, 60), (16, 170)])
def test_network_of_a_fourier_matrix_is_a_fast_transform(n: int, most: int) -> None:
    matrix = fourier(n)
    network = find_network(matrix)
    x = np.random.default_rng(n).standard_normal(2 * n)
    found = network.apply(x, 0.0, False)
    np.testing.assert_allclose(found, matrix @ x, rtol=1e-12, atol=1e-12)
    assert len(network.steps) <= most


def test_threads_share_a_transform_that_is_alone() -> None:
    x = param(0, (4, 1 << 18), F32)
    colours = apply(np.eye(4, dtype=np.float32) + 1, x)
    moves = lowered(Graph((x.type,), (colours,)), "x86-64-v3").moves
    assert any(move.startswith("parallel") for move in moves)


@pytest.mark.parametrize("seed", range(6))
def test_network_of_any_matrix(seed: int) -> None:
    random = np.random.default_rng(seed)
    matrix = random.choice([-1.0, 0.0, 0.5, 1.0, -0.5], (random.integers(1, 9), 7))
    x = random.standard_normal(7)
    np.testing.assert_allclose(find_network(matrix).apply(x, 0.0, False), matrix @ x, atol=1e-12)


def test_a_pass_of_one_point_is_stored_before_the_next_reads_it() -> None:
    """Rows that one pass transforms back and another forth again."""

    def there_and_back(x: jax.Array) -> jax.Array:
        return jnp.fft.rfft(2 * jnp.fft.irfft(x, axis=-1), axis=-1)

    parts = np.random.default_rng(0).standard_normal((64, 17, 2)).astype(np.float32)
    x = np.fft.rfft(parts[..., 0][:, :16].repeat(2, axis=1)).astype(np.complex64)
    text = jax.jit(there_and_back).lower(x).as_text()
    (found,) = compile_module(text, Config(cache=0))(x)
    np.testing.assert_allclose(found, 2 * x, rtol=1e-4, atol=1e-4)


def test_network_of_a_row_of_zeros() -> None:
    matrix = np.array([[1.0, 0.5], [0.0, 0.0], [0.5, -1.0]])
    x = np.array([2.0, 3.0])
    np.testing.assert_array_equal(find_network(matrix).apply(x, 0.0, False), matrix @ x)


def apply(matrix: np.ndarray, x: Node, masked: bool = True) -> Node:
    """y[k, j] = sum over t of matrix[k, t] * x[t, j]."""
    shape = (len(matrix), x.shape[1], len(matrix[0]))
    weights = broadcast(constant(matrix), shape, (0, 2))
    terms = elementwise(Op.MUL, weights, broadcast(x, shape, (2, 1)))
    if masked:
        mask = broadcast(constant(matrix != 0), shape, (0, 2))
        terms = where(mask, terms, full(0, shape, F32))
    return reduce(Op.ADD, terms, (2,))


MATRIX = np.array([[1, 1, 0], [1, -1, 2], [0.5, 0.5, 0], [-1, 1, 2]], np.float32)


def test_zeros_count_without_a_mask() -> None:
    """0 * inf is NaN: such a matrix is no transform unless a mask hides its zeros."""
    x = param(0, (3, 40), F32)
    assert find_transform(apply(MATRIX, x, masked=False)) is None
    assert find_transform(apply(np.where(MATRIX == 0, 3, MATRIX), x, masked=False)) is not None
    found = find_transform(apply(MATRIX, x))
    assert found is not None
    np.testing.assert_array_equal(found.matrix, MATRIX)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_matrix_that_is_not_finite_is_no_transform(number: float) -> None:
    """Its columns are not exchanged for their sums: c*a + c*b is c*(a + b) for finite c alone."""
    x = param(0, (3, 8), F32)
    matrix = np.array([[1, number, number]] * 4, np.float32)
    assert find_transform(apply(matrix, x, masked=False)) is None
    values = np.outer([1, 2, -1], np.ones(8)).astype(np.float32)
    (found,) = check(apply(matrix, x, masked=False), inputs=(values,))
    assert np.isnan(found).all()


def test_a_mask_of_columns_is_no_transform() -> None:
    """It hides other elements than the zeros of the matrix."""
    x = param(0, (3, 8), F32)
    shape = (4, 8, 3)
    weights = broadcast(constant(np.where(MATRIX == 0, 3, MATRIX)), shape, (0, 2))
    terms = elementwise(Op.MUL, weights, broadcast(x, shape, (2, 1)))
    mask = broadcast(constant(np.arange(8) % 2 == 0), shape, (1,))
    y = reduce(Op.ADD, where(mask, terms, full(0, shape, F32)), (2,))
    assert find_transform(y) is None
    (found,) = check(y, inputs=(np.ones((3, 8), np.float32),))
    assert found.any(axis=0).tolist() == [True, False] * 4


@pytest.mark.parametrize(("different", "found"), [(16, True), (17, False)])
def test_many_coefficients_are_no_transform(different: int, found: bool) -> None:
    """But for their sign."""
    matrix = np.resize(np.arange(1, different + 1), (20, 20)).astype(np.float32)
    matrix[::2] *= -1
    assert (find_transform(apply(matrix, param(0, (20, 40), F32))) is not None) == found


@pytest.mark.parametrize("columns", [1, 5, 8, 40, 1000])
def test_one_product(columns: int) -> None:
    x = param(0, (3, columns), F32)
    y = apply(MATRIX, x)
    values = np.random.default_rng(columns).standard_normal((3, columns)).astype(np.float32)
    for result in (y, permute(y, (1, 0)), elementwise(Op.NEG, permute(y, (1, 0)))):
        graph = Graph((x.type,), (result,))
        program = lower_transform(Kernel("kernel", graph), TARGET, Moves())
        assert program is not None and program.moves[0] == "unroll 4x3"
        check(result, inputs=(values,))


def test_infinities_stay_in_their_rows() -> None:
    x = param(0, (3, 8), F32)
    values = np.ones((3, 8), np.float32)
    values[2] = np.inf
    (found,) = check(apply(MATRIX, x), inputs=(values,))
    assert np.isfinite(found[[0, 2]]).all() and np.isinf(found[[1, 3]]).all()


def test_products_in_a_chain_share_a_tile() -> None:
    x = param(0, (3, 4096), F32)
    square = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], np.float32)
    y = apply(square, elementwise(Op.NEG, apply(MATRIX, x)))
    graph = Graph((x.type,), (y,))
    program = schedule(graph, "chain", (), TARGET)
    assert len(program.body) == 1 and len([n for n in graph.nodes() if isinstance(n, Reduce)]) == 2
    values = np.random.default_rng(0).standard_normal((3, 4096)).astype(np.float32)
    (found,) = call(compile_program(program, TARGET, Config()), program, values)
    np.testing.assert_allclose(found, run_graph(graph, [values])[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("extents", [(8, 20), (7, 19), (8, 19), (7, 1)])
@pytest.mark.parametrize("passes_before", [0, 1])
def test_rows_become_squares(extents: tuple[int, int], passes_before: int) -> None:
    """Four rows are 2x2 neighbours of what follows, the last of which may be missing."""
    x = param(0, (3, 4 * 10), F32)
    square = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], np.float32)
    rows = apply(square, apply(MATRIX, x)) if passes_before else apply(MATRIX, x)
    squares = permute(reshape(rows, (2, 2, 4, 10)), (2, 0, 3, 1))
    result = elementwise(Op.NEG, slice_(reshape(squares, (8, 20)), (0, 0), extents))
    graph = Graph((x.type,), (result,))
    program = schedule(graph, "squares", (), TARGET)
    assert len(program.body) == 1 + passes_before
    last = program.body[-1]
    assert isinstance(last, Launch)
    loops = lower_kernel(last.kernel, TARGET)
    assert loops.moves[0].startswith("unroll 4x")
    values = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    (found,) = call(compile_program(program, TARGET, Config()), program, values)
    np.testing.assert_allclose(found, run_graph(graph, [values])[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("count", "kernels"), [(MANY_PARTS, 1), (MANY_PARTS + 1, 2)])
def test_many_joined_parts_are_stored_before(count: int, kernels: int) -> None:
    """Frames of a signal: the choice among them would be written out for each row."""
    x = param(0, (3, 40 + count), F32)
    frames = join([slice_(x, (0, k), (3, k + 40)) for k in range(count)], 1)
    graph = Graph((x.type,), (apply(MATRIX, elementwise(Op.NEG, frames)),))
    program = schedule(graph, "frames", (), TARGET)
    assert len(program.body) == kernels
    values = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    (found,) = call(compile_program(program, TARGET, Config()), program, values)
    np.testing.assert_allclose(found, run_graph(graph, [values])[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 11])
def test_stacks_are_stored_as_whole_vectors(count: int) -> None:
    """Neighbours at a stride: every lane of every piece comes to its place."""
    x = param(0, (37,), F32)
    pieces = [reshape(elementwise(Op.ADD, x, full(k, x.shape, F32)), (37, 1)) for k in range(count)]
    check(join(pieces, 1), inputs=(np.arange(37, dtype=np.float32),))


@pytest.mark.parametrize("lengths", [(1, 70, 1), (100, 3), (64, 64), (2, 3)])
def test_joined_parts(lengths: tuple[int, ...]) -> None:
    x = param(0, (2, sum(lengths)), F32)
    values = np.random.default_rng(0).standard_normal((2, sum(lengths))).astype(np.float32)
    pieces = [
        elementwise(Op.MUL, full(k + 1, (2, n), F32), param(k + 1, (2, n), F32))
        for k, n in enumerate(lengths)
    ]
    joined = elementwise(Op.ADD, x, join(pieces, 1))
    arrays = [np.full((2, n), k, np.float32) for k, n in enumerate(lengths)]
    check(joined, inputs=(values, *arrays))


def two_passes(rows: int) -> tuple[Node, Node]:
    """64 points of each row in two passes of 8, real and imaginary parts side by side."""
    x = param(0, (2, rows, 64), F32)
    return x, passes(x, 2, ((8, 8),), paired=True)


def lowered(graph: Graph, name: str) -> LoopProgram:
    """The only kernel of a graph, lowered."""
    (launch,) = schedule(graph, "fft", (), named_target(name, 2)).body
    assert isinstance(launch, Launch)
    return lower_kernel(launch.kernel, named_target(name, 2))


def test_results_of_the_last_pass_are_used_in_another_shape() -> None:
    """Rows of numbers in which both parts are one axis: the epilogue of a chain, not its end."""
    x, y = two_passes(24)
    other = param(1, (4, 6, 128), F32)
    spectrum = reshape(permute(y, (1, 2, 0)), other.shape)
    result = elementwise(Op.ADD, other, elementwise(Op.MUL, other, spectrum))
    graph = Graph((x.type, other.type), (result,))
    moves = lowered(graph, "x86-64-v3").moves
    assert [move for move in moves if move.startswith("unroll")] == ["unroll 16x16"] * 2


@pytest.mark.parametrize(("name", "lanes"), [("x86-64-v4", 8), ("x86-64-v3", 8), ("x86-64-v2", 4)])
def test_columns_that_fill_no_vector_run_in_halves_of_one(name: str, lanes: int) -> None:
    x, y = two_passes(100)
    found = lowered(Graph((x.type,), (permute(y, (1, 2, 0)),)), name).moves
    widths = [move.split()[-1] for move in found if move.startswith("vector")]
    assert widths == [str(lanes)] * 2


@pytest.mark.parametrize(("rows", "axis"), [(2000, "parallel"), (50, "serial")])
def test_threads_share_a_transform_by_its_vectors(rows: int, axis: str) -> None:
    """Real rows of 64, whose two passes fill quarters and halves of vectors."""
    text = jax.jit(jnp.fft.rfft).lower(np.zeros((rows, 64), np.float32)).as_text()
    stages = run_stages(text, Config(cpu="x86-64-v4", threads=2, cache=False))
    assert f"{axis} {rows} tiles" in str(stages.compiled.loops[0])
