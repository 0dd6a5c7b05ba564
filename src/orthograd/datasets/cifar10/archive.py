"""Files out of a .tar.gz, read one by one into memory: nothing in it chooses where something is written."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

_OVERHEAD = 1 << 26
_MOST_MEMBERS = 1000


def members(path: Path, folder: str, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """The bytes of the files with these names in a folder of the archive, none longer than its size."""
    found: dict[str, bytes] = {}
    try:
        with (
            _Bounded(path, sum(sizes.values()) + _OVERHEAD) as content,
            tarfile.open(fileobj=content, mode="r|") as tar,
        ):
            for count, member in enumerate(tar):
                _check(path, member, count)
                parent, name = PurePosixPath(member.name).parent, PurePosixPath(member.name).name
                if str(parent) == folder and name in sizes and member.isreg():
                    found[name] = _bytes(path, tar, member, sizes[name], is_new=name not in found)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: cannot be read as .tar.gz, is it whole? {error}") from error
    if missing := sorted(set(sizes) - set(found)):
        raise ValueError(f"{path}: expected {', '.join(missing)} in {folder}, got an archive without")
    return found


def _check(path: Path, member: tarfile.TarInfo, count: int) -> None:
    """Refuse what an archive of plain files has no need of, even if it would not be read."""
    kind = ""
    if member.name.startswith(("/", "\\")) or ":" in member.name:
        kind = "an absolute path"
    elif ".." in member.name.replace("\\", "/").split("/"):
        kind = "a path that leaves the archive"
    elif member.issym() or member.islnk():
        kind = f"a link to {member.linkname!r}"
    elif not (member.isreg() or member.isdir()) or member.issparse():
        kind = "neither a plain file nor a folder"
    elif count >= _MOST_MEMBERS:
        kind = f"beyond the {_MOST_MEMBERS} members that are allowed"
    if kind:
        raise ValueError(f"{path}: expected plain files, got {member.name!r}, which is {kind}")


def _bytes(path: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, largest: int, *, is_new: bool) -> bytes:
    if not is_new:
        raise ValueError(f"{path}: expected {member.name!r} once, got it twice")
    if member.size > largest:
        raise ValueError(f"{path}: expected at most {largest} bytes in {member.name!r}, got {member.size}")
    file = tar.extractfile(member)
    assert file is not None  # of a plain file there is always one
    with file:
        return file.read()


class _Bounded(io.RawIOBase):
    """What an archive unpacks to, up to a limit: a small file can be made to unpack to any size."""

    def __init__(self, path: Path, largest: int) -> None:
        self._path, self._left = path, largest
        self._file = gzip.open(path, "rb")  # noqa: SIM115 - `close` closes it

    def read(self, size: int = -1) -> bytes:
        """Up to this many bytes."""
        piece = self._file.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(piece)
        if self._left < 0:
            raise ValueError(f"{self._path}: unpacks to far more than CIFAR-10 has")
        return piece

    def close(self) -> None:
        """Close the archive."""
        self._file.close()
        super().close()
