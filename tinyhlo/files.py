"""Files that are there whole or not at all.

with writing(Path("libmodel.so")) as file:
    file.write(library)
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tinyhlo.errors import CannotWrite


@contextmanager
def writing(path: Path) -> Generator[BinaryIO]:
    """A file that gets its name when all of it is written; devices and pipes are written at once.

    Raises CannotWrite, and leaves what was there.
    """
    named = not path.exists() or path.is_file()
    place = path.with_name(f".{path.name}.{os.getpid()}") if named else path
    try:
        with place.open("wb") as file:
            yield file
        if named:
            place.replace(path)
    except OSError as error:
        raise CannotWrite(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        if named:
            with suppress(OSError):
                place.unlink()
