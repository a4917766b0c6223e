"""A log file, unpacked as it is read: what is before damage is kept, and damage is told afterwards."""

from __future__ import annotations

import bz2
import gzip
import lzma
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from netdyno.errors import Error

CODE = "ND-104-20"
PACKED: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
"""How files begin that are packed, and what unpacks them."""
FOREIGN = {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4", b"PK\x03\x04": "zip", b"7z\xbc\xaf": "7z"}
"""Those of which there is nothing to unpack them with."""
Progress = Callable[[Path, int, int], None]
"""Is told the file, how many of its bytes were read, and how many it has."""


class Reader:
    """A regular file, read forward."""

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self.error: Exception | None = None
        """Why it could not be read further."""
        self._progress = progress
        try:
            about = path.stat()
            if not stat.S_ISREG(about.st_mode):
                raise Error(
                    CODE, "it is no regular file", at=str(path), fix="Name log files, or their folder"
                )
            self._raw = path.open("rb")
        except OSError as e:
            raise Error(CODE, f"it cannot be read: {e.strerror}", at=str(path), fix="Name log files") from e
        self._size = about.st_size
        head = self._raw.read(6)
        self._raw.seek(0)
        self._from: Any = self._raw
        for magic, name in FOREIGN.items():
            if head.startswith(magic):
                self._raw.close()
                what, fix = f"it is packed with {name}", "Unpack it, or pack it with gzip, bzip2 or xz"
                raise Error(CODE, what, at=str(path), fix=fix)
        for magic, unpack in PACKED.items():
            if head.startswith(magic):
                self._from = unpack(self._raw)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    @property
    def cut(self) -> bool:
        """Whether it merely ends too early: then what was read of it is right."""
        return isinstance(self.error, EOFError)

    def read(self, most: int) -> bytes:
        """As many bytes, unless the file ends, or is damaged, before."""
        parts: list[bytes] = []
        left = most
        while left > 0 and self.error is None:
            try:
                # what a call of `read` had before it failed would be lost
                part = self._from.read1(left)
            except (EOFError, OSError, lzma.LZMAError, zlib.error) as e:
                self.error = e
                break
            if not part:
                break
            parts.append(part)
            left -= len(part)
        if self._progress is not None:
            self._progress(self.path, self._raw.tell(), self._size)
        return b"".join(parts)
