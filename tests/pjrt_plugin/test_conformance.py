"""pypjrt's conformance probe: an independent client that knows nothing of JAX or of us."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tinyhlo.runtime import core

pytest.importorskip("pypjrt.conform")

MAY_BE_UNSUPPORTED = {
    "topology.deserialize",
    "topology.create_by_name",
    "topology.client_free_compile",
}


def test_no_failure(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "pypjrt.conform", "--json", str(report), str(core.LIBRARY)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    checks = json.loads(report.read_text())["checks"]
    by_result: dict[str, set[str]] = {}
    for check in checks:
        by_result.setdefault(check["result"], set()).add(check["id"])
    assert not by_result.get("fail")
    assert by_result.get("unsupported", set()) <= MAY_BE_UNSUPPORTED
    assert len(by_result["pass"]) >= 50
