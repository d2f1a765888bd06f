"""The documentation tells the truth: printed forms are what the compiler prints now."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tools.print_forms import BLOCK, fill, forms

CHECKOUT = Path(__file__).resolve().parents[1]
PAGES = ("docs/how-it-works.md", "docs/performance.md")
LINK = re.compile(r"`((?:tinyhlo|docs|benchmarks|tests|tools|demo)/[\w./-]+)`")
SOURCE = {".py", ".c", ".h", ".js", ".html"}


def test_printed_forms_are_current() -> None:
    printed = forms()
    pages = {name: (CHECKOUT / name).read_text() for name in PAGES}
    shown = {block[1] for page in pages.values() for block in BLOCK.findall(page)}
    assert shown == set(printed)
    for name, page in pages.items():
        assert fill(page, printed) == page, f"forms in {name} changed: `make docs`, and read it"


PACKAGES = sorted(path.parent for path in CHECKOUT.glob("tinyhlo/**/__init__.py"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_packages_say_what_each_file_is(package: Path) -> None:
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    files = [path.stem for path in package.glob("*.py") if not path.stem.startswith("__")]
    assert [name for name in files if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize("name", ["README.md", *PAGES])
def test_files_that_pages_name_exist(name: str) -> None:
    page = (CHECKOUT / name).read_text()
    missing = [path for path in LINK.findall(page) if not (CHECKOUT / path).exists()]
    assert missing == []


ROOM = re.compile(r"^\| `(\w+)/` \| ([\d,]+) \|", re.MULTILINE)


def test_packages_are_as_long_as_the_page_says() -> None:
    rooms = ROOM.findall((CHECKOUT / "docs/how-it-works.md").read_text())
    assert len(rooms) == 6
    for name, said in rooms:
        files = (CHECKOUT / "tinyhlo" / name).rglob("*.*")
        written = [each for each in files if each.suffix in SOURCE and each.name != "pjrt_abi.h"]
        lines = sum(path.read_bytes().count(b"\n") for path in written)
        assert abs(lines - int(said.replace(",", ""))) < lines / 20, f"{name}/ has {lines} lines"
