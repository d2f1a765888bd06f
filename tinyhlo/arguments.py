"""Arrays of the command line: what a program is given, and what is said and kept of its results.

x = read_array("x.npy", type_)          # or random_array(random, type_)
print(summary(y))                       # float32[4,2] from 0 to 1.25: 0 0.5 1.25 ...
save("out0.npy", y)
"""

from __future__ import annotations

from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING

import numpy as np

from tinyhlo.errors import TinyhloError
from tinyhlo.files import writing
from tinyhlo.ir.graph import TensorType

if TYPE_CHECKING:
    from tinyhlo.import_stablehlo.refine import ArgumentType


def known_shape(type_: TensorType | ArgumentType) -> TensorType:
    """The type of a random argument. Raises TinyhloError when it has sizes that the user sets."""
    if isinstance(type_, TensorType):
        return type_
    sizes = tuple(size for size in type_.shape if size is not None)
    if len(sizes) < len(type_.shape):
        raise TinyhloError(f"an argument is {type_}: choose its sizes by passing .npy files")
    return TensorType(sizes, type_.dtype)


def read_array(path: str, type_: TensorType | ArgumentType) -> np.ndarray:
    """One .npy file. Types that NumPy does not know (bf16) come back from it as raw bytes.

    Raises TinyhloError when it cannot be read.
    """
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise TinyhloError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, EOFError, SyntaxError, TokenError) as error:
        raise TinyhloError(f"{path} is not a .npy file of numbers") from error
    except MemoryError as error:
        raise TinyhloError(f"no memory for the array that {path} says it holds: {error}") from error
    if not isinstance(array, np.ndarray):
        raise TinyhloError(f"{path} holds several arrays; save each with numpy.save")
    wanted = type_.dtype.numpy
    raw = wanted.kind == "V" and array.dtype == np.dtype(f"V{wanted.itemsize}")
    return array.view(wanted) if raw else array


def random_array(random: np.random.Generator, type_: TensorType) -> np.ndarray:
    """Normal floats, small non-negative integers (they may be indices), coin flips.

    Raises TinyhloError where there is no memory for it, or it has more axes than NumPy's arrays.
    """
    dtype = type_.dtype.numpy
    try:
        if dtype.kind == "b":
            return random.random(type_.shape) < 0.5
        if dtype.kind in "iu":
            return random.integers(0, 4, type_.shape).astype(dtype)
        return np.asarray(random.standard_normal(type_.shape)).astype(dtype)
    except (MemoryError, ValueError) as error:
        raise TinyhloError(f"no random array can be made for {type_}: {error}") from error


def summary(array: np.ndarray) -> str:
    """Type, range (of complex numbers that of their magnitudes) and the first few values."""
    kind = f"{array.dtype}[{','.join(map(str, array.shape))}]"
    if array.size == 0:
        return f"{kind} (empty)"
    wide = array if array.dtype.kind in "biuc" else array.astype(np.float64)
    size = np.abs(wide) if array.dtype.kind == "c" else wide
    first = " ".join(f"{value:.6g}" for value in wide.reshape(-1)[:4])
    more = " ..." if array.size > 4 else ""
    return f"{kind} from {size.min():.6g} to {size.max():.6g}: {first}{more}"


def save(path: str, array: np.ndarray) -> None:
    with writing(Path(path)) as file:
        np.save(file, array)
    print(f"wrote {path}")
