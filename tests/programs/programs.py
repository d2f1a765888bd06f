"""The programs of corpus/: which there are, and what each says of itself.

A program is a file of user code with

    PACKAGES = ("numpyro",)                  # what it is a program of, as PyPI names it
    TOLERANCE = (1e-4, "40 steps of ...")    # the largest relative difference, and why
    def program() -> Callable[[], results]:  # sets up eagerly; what is called gives equal results

which are read without importing it: the packages need not be there.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).resolve().parent / "corpus"


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    about: str  # the first line of its docstring
    packages: tuple[str, ...]
    tolerance: tuple[float, str]


def all_programs() -> list[Program]:
    names = sorted(path.stem for path in CORPUS.glob("*.py"))
    return [named(name) for name in names]


def path_of(name: str) -> Path:
    return CORPUS / f"{name}.py"


def named(name: str) -> Program:
    tree = ast.parse(path_of(name).read_text())
    about = (ast.get_docstring(tree) or "").split("\n\n")[0].replace("\n", " ").rstrip(".")
    return Program(name, about, constant(tree, "PACKAGES"), constant(tree, "TOLERANCE"))


def constant(tree: ast.Module, name: str) -> Any:
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return ast.literal_eval(value)
    raise ValueError(f"a program has no {name}")
