"""A program as a page for browsers: a module of JavaScript, a file of weights, and a page that runs
it.

    write_page(program, "model", Path("web"))       # web/index.html, model.js, model.bin
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from urllib.parse import quote

from tinyhlo.codegen.wgsl.plan import Plan, plan_of
from tinyhlo.errors import CannotWrite, UnsupportedItem, UnsupportedOp
from tinyhlo.files import writing
from tinyhlo.runtime.library import REGISTRY
from tinyhlo.runtime.webgpu.device import BROWSER
from tinyhlo.schedule.program import Kernel, Program

HERE = Path(__file__).parent
ALIGNMENT = 8  # of an array in the file of weights
HINT = "a browser has no function of that name: LAPACK and Python are on the host alone"


def write_page(program: Program, name: str, folder: Path) -> list[Path]:
    """The files written. Raises UnsupportedOp for what browsers cannot compute, CannotWrite for a
    folder that cannot be written."""
    plan = plan_of(program, BROWSER, REGISTRY)
    if plan.calls:
        raise UnsupportedOp(tuple(map(refused, plan.calls)))
    script, weights, page = (folder / f for f in (f"{name}.js", f"{name}.bin", "index.html"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"cannot write {folder}: {error.strerror}") from error
    places = write_weights(plan, weights)
    texts = {script: module_text(plan, places, weights.name), page: page_text(name, script.name)}
    for path, text in texts.items():
        with writing(path) as file:
            file.write(text.encode())
    return [page, script, weights]


def refused(kernel: Kernel) -> UnsupportedItem:
    types = ", ".join(map(str, kernel.graph.params))
    return UnsupportedItem(kernel.name, f"({types})", next(iter(kernel.locations), ""), HINT)


def write_weights(plan: Plan, path: Path) -> list[int]:
    """The constants of a plan one after another, and the byte at which each begins."""
    places: list[int] = []
    with writing(path) as file:
        for value in plan.constants:
            file.write(bytes(-file.tell() % ALIGNMENT))
            places.append(file.tell())
            file.write(value.tobytes())
    return places


def module_text(plan: Plan, places: list[int], weights: str) -> str:
    constants = [
        entry | {"byte": place} for entry, place in zip(plan.json["constants"], places, strict=True)
    ]
    whole = {**plan.json, "constants": constants, "symbols": sorted(plan.symbols)}
    head = (
        "// Made by tinyhlo.",
        f"const WEIGHTS = {json.dumps(quote(weights))};",
        f"const PLAN = {json.dumps(whole)};",
        f"const SOURCE = `{escaped(plan.source)}`;",
    )
    return "\n".join([*head, (HERE / "program.js").read_text()])


def escaped(text: str) -> str:
    """In a template of JavaScript."""
    return text.replace("\\", "\\\\").replace("`", "\\`").replace("${", "\\${")


def page_text(name: str, script: str) -> str:
    parts = {"TITLE": html.escape(name), "SCRIPT": quote(script)}
    text = (HERE / "page.html").read_text()
    return re.sub("|".join(parts), lambda found: parts[found[0]], text)
