"""Why harnesses do not agree with XLA:CPU, where that was found out: expression -> reason."""

from __future__ import annotations

REASONS: dict[str, str] = {}
