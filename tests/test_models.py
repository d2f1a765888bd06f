"""The models of real size trace, and their section replaces only itself."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.large import gpt2, graph, tables
from benchmarks.layers import MODELS, Build
from benchmarks.models import INTRODUCTION, section
from benchmarks.record import replaced
from benchmarks.runner import Measured
from benchmarks.unrolled import PROGRAMS


@pytest.mark.parametrize("build", [*MODELS.values(), *PROGRAMS.values()])
def test_model_traces(build: Build) -> None:
    function, arguments = build(np.random.default_rng(0))
    assert build.__doc__ and jax.tree.leaves(jax.eval_shape(function, *arguments))


@pytest.mark.parametrize("build", [partial(gpt2, 1, jnp.bfloat16), tables, graph])
def test_large_model_traces(build: Build) -> None:
    """What a step updates it gives back, the loss last."""
    function, (state, *batch) = build(np.random.default_rng(0))
    *updated, loss = jax.eval_shape(function, *state, *batch)
    assert jax.tree.structure((*updated,)) == jax.tree.structure((*state,)) and loss.shape == ()


def test_section_replaces_itself() -> None:
    rows = {"ray_march": {"tiny": Measured(1e-3, 2.0, "", 1e-6), "cpu": Measured(2e-3, 1.0)}}
    text = section(rows, INTRODUCTION, {"ray_march": "rays"})
    assert text.endswith("| 1.0 | 2.0 | 2.00 | 2.00 | 1.00 | 1e-06 |\n")
    page = replaced("# Benchmarks\n\n## Memory\n\nlittle\n", text)
    assert page.index("## Memory") < page.index("## Models of real size")
    assert replaced(page, text) == page
    before = replaced(page, "## Memory\n\nmuch\n")
    assert "little" not in before and before.endswith(text)
