"""What more cores would take: parts are timed and dealt out as the pool deals them."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from benchmarks.cores import Simulator, main
from tests.test_passes import source
from tinyhlo.artifact import run
from tinyhlo.runtime import jit


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Simulator:
    return Simulator(tmp_path_factory.mktemp("cores"))


def test_parts_are_those_of_the_pool(simulator: Simulator) -> None:
    """No thread is done before the longest part is, and all have something to do."""
    before = dict(jit.imports())
    call = simulator.measured(source(lambda x: jnp.exp(x) + 1, (1000, 1000)), 7)
    (task,) = call.tasks
    assert task.threads == 7 and task.count >= 7
    assert 0 < task.longest <= task.span < task.work <= 7 * task.span
    assert call.seconds < call.alone + call.work
    assert jit.imports() == before


def test_one_core_runs_no_parts(simulator: Simulator) -> None:
    call = simulator.measured(source(lambda x: jnp.exp(x) + 1, (1000, 1000)), 1)
    assert not call.tasks and call.span == 0 and call.seconds == call.alone


def test_results_are_those_of_the_pool(simulator: Simulator) -> None:
    program = source(lambda x, w: jnp.tanh(x @ w).sum(0), (300, 200), (200, 400))
    results = []
    for threads in (1, 3, 16):
        with simulator.in_place(threads):
            results.append(run(simulator.compiled(program, threads), program.arguments)[0])
    assert all(found.tobytes() == results[0].tobytes() for found in results)


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "^matmul_256$", "--cores", "4", "--loops", "1"]) == 0
    shown = capsys.readouterr().out
    assert "matmul_256" in shown and "longest part" in shown
    assert "4 cores: " in shown


@pytest.mark.parametrize("cores", ["none", "0", "4,", "-2"])
def test_other_numbers_of_cores(cores: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([f"--cores={cores}"])
    assert "numbers like 8,16,64" in capsys.readouterr().err


def test_no_such_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "nothing at all"])
    assert "no program is called like 'nothing at all'" in capsys.readouterr().err
