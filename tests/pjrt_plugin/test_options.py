"""Compile options: what of CompileOptionsProto is read, and what becomes of it."""

from __future__ import annotations

import pytest
from jaxlib import xla_client

from tinyhlo.config import Config
from tinyhlo.errors import TinyhloError
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
        ("tinyhlo_nonsense", "1", "unknown option 'tinyhlo_nonsense'; known: tinyhlo_device"),
        ("tinyhlo_beam", "many", "tinyhlo_beam must be a number from 0 up, got 'many'"),
        ("tinyhlo_threads", "-3", "tinyhlo_threads must be a number from 0 up"),
        ("tinyhlo_cache_dir", "a\0b", "tinyhlo_cache_dir must be a text without a zero byte"),
    ],
)
def test_wrong_options(name: str, text: str, message: str) -> None:
    with pytest.raises(TinyhloError, match=message):
        configure(Config(), CompileOptions(overrides={name: text}))
