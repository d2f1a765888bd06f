"""Tests, and what runs those of others; all programs that they compile are verified. A package, so
that no installed package that ships its own `tests` stands before it."""

import os

os.environ.setdefault("TINYHLO_VERIFY", "1")
