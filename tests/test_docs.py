"""The documentation tells the truth: printed forms are what the compiler prints now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.print_forms import BLOCK, fill, forms

CHECKOUT = Path(__file__).resolve().parents[1]
PAGE = CHECKOUT / "docs" / "how-it-works.md"
LINK = re.compile(r"`((?:tinyhlo|docs|benchmarks|tests|tools|demo)/[\w./-]+)`")


def test_printed_forms_are_current() -> None:
    page = PAGE.read_text()
    assert len(BLOCK.findall(page)) >= 5
    assert fill(page, forms()) == page, "the forms changed: run `make docs` and read the page"


@pytest.mark.parametrize("name", ["README.md", "docs/how-it-works.md"])
def test_files_that_pages_name_exist(name: str) -> None:
    page = (CHECKOUT / name).read_text()
    missing = [path for path in LINK.findall(page) if not (CHECKOUT / path).exists()]
    assert missing == []
