"""The threads of SciPy's BLAS, which LAPACK's functions call: `native/blas.c` sets their number.

SciPy's wheels bring an OpenBLAS. Another one (conda's, MKL, Accelerate) is left as it is.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from pathlib import Path

from tinyhlo.runtime import core

# As wheels of SciPy have called them; {} is "get" or "set".
NAMES = (
    "scipy_openblas_{}_num_threads",
    "scipy_openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
    "openblas_{}_num_threads64_",
)


@functools.cache
def hand_over() -> bool:
    """Find the library and give `native/blas.c` its functions; False where we know none."""
    for path in libraries():
        library = ctypes.CDLL(str(path))  # the one that SciPy has loaded
        for name in NAMES:
            get, set_ = (getattr(library, name.format(what), None) for what in ("get", "set"))
            if get is not None and set_ is not None:
                addresses = core.address_of(get), core.address_of(set_)
                core.library().tiny_blas_threads(*addresses)
                return True
    return False


def libraries() -> Iterator[Path]:
    import scipy.linalg.cython_lapack  # loads it

    package = Path(scipy.__file__).parent
    for folder in (package.parent / "scipy.libs", package / ".dylibs"):  # Linux, macOS
        yield from sorted(folder.glob("*openblas*"))
