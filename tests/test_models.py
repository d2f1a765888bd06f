"""The models of real size trace, and their section replaces only itself."""

import jax
import numpy as np
import pytest

from benchmarks.layers import MODELS
from benchmarks.models import section
from benchmarks.record import replaced
from benchmarks.runner import Measured


@pytest.mark.parametrize("name", MODELS)
def test_model_traces(name: str) -> None:
    function, arguments = MODELS[name](np.random.default_rng(0))
    assert jax.tree.leaves(jax.eval_shape(function, *arguments))


def test_section_replaces_itself() -> None:
    rows = {"ray_march": {"tiny": Measured(1e-3, 2.0, "", 1e-6), "cpu": Measured(2e-3, 1.0)}}
    text = section(rows)
    assert text.endswith("| 1.0 | 2.0 | 2.00 | 2.00 | 1.00 | 1e-06 |\n")
    page = replaced("# Benchmarks\n\n## Memory\n\nlittle\n", text)
    assert page.index("## Memory") < page.index("## Models of real size")
    assert replaced(page, text) == page
    before = replaced(page, "## Memory\n\nmuch\n")
    assert "little" not in before and before.endswith(text)
