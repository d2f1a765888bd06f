"""Compile options: our wire-format reader against jaxlib's own proto class."""

from __future__ import annotations

import pytest
from jaxlib import xla_client

from tinyhlo.config import Config
from tinyhlo.errors import InvalidProgram, TinyhloError
from tinyhlo.pjrt_plugin.options import CompileOptions, configure, parse


def test_reads_what_jaxlib_writes() -> None:
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = 1, 4
    options.env_option_overrides = [
        ("tinyhlo_beam", "4"),
        ("tinyhlo_debug", 2),
        ("tinyhlo_cache", False),
        ("other", 0.5),
    ]
    parsed = parse(options.SerializeAsString())
    assert (parsed.replicas, parsed.partitions) == (1, 4)
    assert parsed.overrides == {
        "tinyhlo_beam": "4",
        "tinyhlo_debug": "2",
        "tinyhlo_cache": "0",
        "other": "0.5",
    }


def test_nothing_given() -> None:
    assert parse(b"") == CompileOptions()


@pytest.mark.parametrize("data", [b"\xff", b"\x1a\x05abc", b"\x3a\x02\x0a"])
def test_garbage_is_a_readable_error(data: bytes) -> None:
    with pytest.raises(InvalidProgram, match="CompileOptionsProto"):
        parse(data)


def test_options_become_a_config() -> None:
    given = CompileOptions(overrides={"tinyhlo_beam": "4", "tinyhlo_device": "PYTHON"})
    config = configure(Config(), given)
    assert (config.beam, config.device) == (4, "PYTHON")


def test_options_of_xla_have_no_effect() -> None:
    given = CompileOptions(overrides={"xla_embed_ir_in_executable": "1", "tinyhlo_beam": "4"})
    assert configure(Config(), given) == Config(beam=4)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("other", "1", "No such compile option: 'other'; .* start with 'tinyhlo_'"),
        ("tinyhlo_nonsense", "1", "unknown option 'nonsense'"),
        ("tinyhlo_beam", "many", "must be a number"),
    ],
)
def test_wrong_options(name: str, text: str, message: str) -> None:
    with pytest.raises(TinyhloError, match=message):
        configure(Config(), CompileOptions(overrides={name: text}))
