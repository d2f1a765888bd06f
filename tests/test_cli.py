"""The command line: every format runs, forms print, mistakes end in one sentence and code 2."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import PartitionSpec as P

import tinyhlo
from tests.processes import abstract_mesh, lowered
from tinyhlo.cli import main
from tinyhlo.config import OPTIONS, Config, from_environment, variable
from tinyhlo.errors import CannotWrite, InvalidProgram
from tinyhlo.files import writing

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
W = np.linspace(2, -2, 6, dtype=np.float32).reshape(3, 2)


TUPLE = """func.func @main(%x: tuple<tensor<4xf32>>) -> tensor<4xf32> {
  %0 = stablehlo.get_tuple_element %x[0] : (tuple<tensor<4xf32>>) -> tensor<4xf32>
  return %0 : tensor<4xf32> }"""
LARGE = """func.func @main(%x: tensor<1000000x1000000xf32>) -> tensor<f32> {
  %0 = stablehlo.slice %x [0:1, 0:1] : (tensor<1000000x1000000xf32>) -> tensor<1x1xf32>
  %1 = stablehlo.reshape %0 : (tensor<1x1xf32>) -> tensor<f32>
  return %1 : tensor<f32> }"""


def model(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ w)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The model in every format, and its arguments."""
    folder = tmp_path_factory.mktemp("models")
    exported = export.export(jax.jit(model), platforms=["cpu"])(X, W)
    lowered = jax.jit(model).lower(X, W)
    contents = {
        "text": lowered.as_text().encode(),
        "portable": exported.mlir_module_serialized,
        "exported": bytes(exported.serialize()),
        "hlo": lowered.as_text("hlo").encode(),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    with (folder / "huge.npy").open("wb") as file:
        shape = {"descr": "<f4", "fortran_order": False, "shape": (1 << 52,)}
        np.lib.format.write_array_header_1_0(file, shape)
    (folder / "open.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00" + b"(" * 118)
    np.save(folder / "pairs.npy", np.zeros((4, 3), [("x", "i2"), ("y", "i2")]))
    (folder / "large").write_text(LARGE)
    (folder / "tuple").write_text(TUPLE)
    (folder / "nothing").write_text("func.func @main() { return }")
    np.save(folder / "x.npy", X)
    np.save(folder / "w.npy", W)
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize("form", ["text", "portable", "exported"])
def test_run_on_arrays(form: str, files: dict[str, Path], tmp_path: Path) -> None:
    prefix = tmp_path / "out"
    arguments = ["run", files[form], files["x.npy"], files["w.npy"], "--save", prefix]
    assert main([str(a) for a in arguments]) == 0
    np.testing.assert_allclose(np.load(f"{prefix}0.npy"), np.maximum(X @ W, 0), rtol=1e-6)


def test_check_against_xla(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["run", str(files["text"]), "--random", "7", "--check", "xla", "--repeat", "3"]) == 0
    )
    printed = capsys.readouterr().out
    assert "as XLA:CPU" in printed
    assert "3 runs: median" in printed


def test_bfloat16_arrays_come_back(tmp_path: Path) -> None:
    values = np.asarray([1.5, -2.0], jnp.bfloat16)
    np.save(tmp_path / "x.npy", values)
    (tmp_path / "m.mlir").write_text(jax.jit(lambda x: x + x).lower(values).as_text())
    assert main(["run", str(tmp_path / "m.mlir"), str(tmp_path / "x.npy"), "--check", "xla"]) == 0


def test_load_is_a_callable(files: dict[str, Path]) -> None:
    program = tinyhlo.load(files["exported"])
    assert [str(type_) for type_ in program.inputs] == ["f32[4,3]", "f32[3,2]"]
    assert [str(type_) for type_ in program.outputs] == ["f32[4,2]"]
    (y,) = program(jnp.asarray(X), W)
    np.testing.assert_allclose(y, np.maximum(X @ W, 0), rtol=1e-6)


def test_load_names_a_file_that_is_not_there() -> None:
    with pytest.raises(InvalidProgram, match=r"cannot read nowhere\.mlir"):
        tinyhlo.load("nowhere.mlir")


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("graph", "graph(f32[4,3], f32[3,2])"),
        ("program", "program ("),
        ("loops", "y0[0] = "),
        ("llvm", "define"),
        ("asm", ".globl"),
    ],
)
def test_show(
    stage: str, expected: str, files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(files["text"]), "--stage", stage]) == 0
    assert expected in capsys.readouterr().out


def test_show_what_one_process_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its rows of the product; of the sum's summands it is sent that of the other."""
    x, w = np.ones((8, 3), np.float32), np.ones((3, 2), np.float32)
    mesh = abstract_mesh({"x": 4})
    text = lowered(lambda x, w: (x @ w).sum(0), mesh, [P("x"), P()], x, w)
    (tmp_path / "m.mlir").write_text(text)
    for process, other in (("0/2", "1"), ("1/2", "0")):
        arguments = ["show", str(tmp_path / "m.mlir"), "--stage", "graph", "--process", process]
        assert main(arguments) == 0
        shown = capsys.readouterr().out
        assert "graph(f32[2,3], f32[3,2], f32[2,3], f32[3,2])" in shown
        assert f"target=tiny.exchange attributes=(('#order',0),('from','{other}')" in shown
    for process, said in (("2/2", "the first of two is 0/2"), ("0/3", "cannot be shared evenly")):
        assert main(["show", str(tmp_path / "m.mlir"), "--process", process]) == 2
        assert said in capsys.readouterr().err


MISTAKES = {
    "no such file": (["run", "nowhere.mlir"], "cannot read nowhere.mlir"),
    "too few arrays": (
        ["run", "{text}", "{x.npy}"],
        "takes 2 arrays (f32[4,3], f32[3,2]), 1 given",
    ),
    "arrays and seed": (["run", "{text}", "{x.npy}", "--random", "1"], "not both"),
    "wrong shape": (["run", "{text}", "{w.npy}", "{x.npy}"], "argument 0 must be f32[4,3]"),
    "not an array": (["run", "{text}", "{text}", "{text}"], "is not a .npy file"),
    "more than fits": (["run", "{text}", "{huge.npy}", "{w.npy}"], "no memory for the array that"),
    "not a program": (["run", "{x.npy}", "--random", "0"], "x.npy: neither StableHLO text"),
    "a page of no program": (["build", "nowhere.mlir", "--web"], "tinyhlo: cannot read nowhere"),
    "no name for a library": (["build", "{text}", "--out", "."], "cannot write .: it is a folder"),
    "a header for a library": (["build", "{text}", "--out", "m.h"], "that is the header's name"),
    "the program itself": (["build", "{text}", "--out", "{text}"], "the program is there"),
    "a header that never ends": (["run", "{text}", "{open.npy}", "{w.npy}"], "is not a .npy file"),
    "pairs of numbers": (["run", "{text}", "{pairs.npy}", "{w.npy}"], "must be f32[4,3]"),
    "too many at random": (["run", "{large}", "--random", "0"], "no random array can be made"),
    "a tuple": (["show", "{tuple}"], "pass arrays, not tuples"),
    "no loops": (["show", "{nothing}", "--stage", "loops"], "has no loops: it computes nothing"),
    "a stage of other devices": (["show", "{text}", "--stage", "source"], "has no stage source"),
    "HLO": (["show", "{hlo}"], "this is HLO, of XLA; write jax.jit(f).lower(x).as_text()"),
    "no such benchmark": (["bench", "--only", "nothing"], "no benchmark is called 'nothing'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake: str, files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    arguments, expected = MISTAKES[mistake]
    paths = {f"{{{name}}}": str(path) for name, path in files.items()}
    assert main([paths.get(argument, argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert expected in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("command", [["options"], ["show", "{text}", "--stage", "llvm"]])
def test_a_full_disk(
    command: list[str],
    files: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = open("/dev/full", "w")  # noqa: SIM115
    monkeypatch.setattr("sys.stdout", full)
    assert main([argument.format(**files) for argument in command]) == 1
    assert capsys.readouterr().err == "tinyhlo: standard output: No space left on device\n"
    assert full.closed


def test_a_file_on_a_full_disk(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", str(files["text"]), "--out", "/dev/full"]) == 1
    said = capsys.readouterr().err
    assert said == "tinyhlo: cannot write /dev/full: No space left on device\n"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("before")
    with pytest.raises(CannotWrite, match=r"cannot write .*: full"), writing(path) as file:
        file.write(b"half")
        raise OSError("full")
    assert path.read_text() == "before"
    with writing(path) as file:
        file.write(b"whole")
    assert [p.name for p in tmp_path.iterdir()] == ["x"] and path.read_text() == "whole"


def test_a_program_from_a_pipe_is_checked(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    writer = threading.Thread(target=pipe.write_bytes, args=(files["text"].read_bytes(),))
    writer.start()
    assert main(["run", str(pipe), "--random", "1", "--check", "xla"]) == 0
    writer.join()
    assert "as XLA:CPU" in capsys.readouterr().out


def test_an_interrupt_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("tinyhlo.cli.options_command", interrupted)
    assert main(["options"]) == 130
    assert capsys.readouterr().err == "tinyhlo: interrupted\n"


def test_no_output_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tinyhlo options >&-`: Python has no stream then."""
    monkeypatch.setattr("sys.stdout", None)
    assert main(["options"]) == 0


def test_a_seed_is_a_whole_number(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["run", str(files["text"]), "--random", "-3"])
    assert "must be a number from 0 up, got '-3'" in capsys.readouterr().err


def test_stages_of_an_interpreted_program(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINYHLO_DEVICE", "PYTHON")
    assert main(["show", str(files["text"]), "--stage", "graph"]) == 0
    monkeypatch.setenv("TINYHLO_DEVICE", "CL:²")  # is no number, though a digit
    assert main(["show", str(files["text"])]) == 2
    assert "unknown device 'CL:²'" in capsys.readouterr().err
    monkeypatch.setenv("TINYHLO_DEVICE", "GPU")
    assert main(["show", str(files["text"]), "--stage", "graph"]) == 2
    assert "runs on CPU, CL (CL:1, ...), NV (NV:1, ...)" in capsys.readouterr().err
    monkeypatch.setenv("TINYHLO_DEVICE", "cl:1")
    assert main(["show", str(files["text"]), "--stage", "graph"]) == 2
    assert "unknown device 'cl:1', CL:1?: this version" in capsys.readouterr().err


def test_devices_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    assert main(["options"]) == 0
    printed = capsys.readouterr().out
    assert "PYTHON" in printed
    assert "TINYHLO_THREADS" in printed


def test_complex_results_may_differ_by_rounding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.mlir"
    x = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32)
    path.write_text(jax.jit(jnp.fft.rfft).lower(x).as_text())
    assert main(["run", str(path), "--random", "1", "--check", "xla"]) == 0
    assert "as XLA:CPU" in capsys.readouterr().out


def test_a_slip_in_a_variable_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINYHLO_SCHEDULE", "1")
    monkeypatch.setenv("TINYHLO_OF_ANOTHER_TOOL", "1")
    from_environment()
    assert capsys.readouterr().err == (
        "tinyhlo: TINYHLO_SCHEDULE is no option: TINYHLO_SCHEDULES?\n"
    )


def test_a_device_without_times_says_so(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINYHLO_DEVICE", "PYTHON")
    monkeypatch.setenv("TINYHLO_DEBUG", "2")
    assert main(["run", str(files["text"]), "--random", "0"]) == 0
    assert "device PYTHON does not time kernels: TINYHLO_DEBUG" in capsys.readouterr().err


def test_an_empty_variable_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """`export TINYHLO_THREADS=`, as scripts and containers pass variables on."""
    for name in OPTIONS:
        monkeypatch.setenv(variable(name), "")
    assert from_environment() == Config()
