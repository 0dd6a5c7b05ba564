"""Downloads that resume after an interruption, verified by their checksum."""

from __future__ import annotations

import hashlib
import http.client
import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from ..files import naming
from .storage import Progress, Report, silent

_PIECE = 1 << 18
_TRY_AGAIN = (408, 429, 500, 502, 503, 504)
_RANGE_IS_BEYOND = 416


@dataclass(frozen=True)
class Source:
    """A file on the web: address, checksum, and limits for fetching it."""

    url: str
    md5: str
    largest: int = 1 << 28
    timeout: float = 20.0
    attempts: int = 4
    pause: float = 1.0

    @property
    def name(self) -> str:
        """File name."""
        return self.url.rsplit("/", 1)[-1]


class UnavailableError(OSError):
    """The file is not available from this source."""


class _BrokenError(Exception):
    """The connection failed; another attempt may succeed."""


def download(source: Source, path: Path, *, report: Report = silent) -> None:
    """Download the file of a source to the path; an unfinished download is kept beside it as .part."""
    part = path.with_name(path.name + ".part")
    if path.exists() and _md5(path) == source.md5:
        return
    with naming(part, "be written"):
        part.parent.mkdir(parents=True, exist_ok=True)
        part.touch()
    had_begun = part.stat().st_size > 0
    _complete(source, part, report)
    if had_begun and _md5(part) != source.md5:
        # The beginning may be from another version of the file, so start again.
        part.write_bytes(b"")
        _complete(source, part, report)
    if (actual := _md5(part)) != source.md5:
        part.unlink()
        raise UnavailableError(f"{source.url}: expected a file with the MD5 {source.md5}, got {actual}")
    part.replace(path)


def _complete(source: Source, part: Path, report: Report) -> None:
    """Try until the file is complete; only attempts that receive nothing count as failures."""
    failures = 0
    while True:
        before = part.stat().st_size
        try:
            return _resume(source, part, report)
        except _BrokenError as error:
            failures = 0 if part.stat().st_size > before else failures + 1
            if failures >= source.attempts:
                raise UnavailableError(f"{source.url}: {error}") from error
            report(Progress(f"{source.name}: {error}; trying again"))
            time.sleep(source.pause * 2 ** max(0, failures - 1))


def _resume(source: Source, part: Path, report: Report) -> None:
    start = part.stat().st_size
    headers = {"Accept-Encoding": "identity", "User-Agent": "orthograd"} | (
        {"Range": f"bytes={start}-"} if start else {}
    )
    try:
        response = urllib.request.urlopen(urllib.request.Request(source.url, headers=headers), timeout=source.timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == _RANGE_IS_BEYOND and start:
            return  # the file may be complete, which the checksum decides
        if error.code in _TRY_AGAIN:
            raise _BrokenError(f"HTTP {error.code} {error.reason}") from error
        raise UnavailableError(f"{source.url}: HTTP {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(getattr(error, "reason", None) or str(error) or type(error).__name__) from error
    with response:
        _receive(response, source, part, start, report)


def _receive(response: http.client.HTTPResponse, source: Source, part: Path, start: int, report: Report) -> None:
    """Append the response to the part, or overwrite the part if the response starts at 0."""
    begin, total = _extent(response)
    is_continued = begin == start
    done = start if is_continued else 0
    if (begin and not is_continued) or max(done, total or 0) > source.largest:
        raise UnavailableError(
            f"{source.url}: expected bytes from {start} up to {source.largest}, got {begin} to {total}"
        )
    with naming(part, "be written"), open(part, "ab" if is_continued else "wb") as file:
        while piece := _piece(response):
            done += len(piece)
            if done > source.largest:
                raise UnavailableError(f"{source.url}: expected at most {source.largest} bytes, got more")
            file.write(piece)
            report(Progress(f"downloading {source.name}", done, total, "bytes"))
    if total is not None and done < total:
        raise _BrokenError(f"the connection ended after {done} of {total} bytes")


def _extent(response: http.client.HTTPResponse) -> tuple[int, int | None]:
    """Position in the file where the response starts, and the size of the file, or None if unknown."""
    if response.status == http.client.PARTIAL_CONTENT:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if match is not None:
            return int(match[1]), None if match[2] == "*" else int(match[2])
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _piece(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_PIECE)
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(f"the connection broke: {error or type(error).__name__}") from error


def _md5(path: Path) -> str:
    with open(path, "rb") as file:
        digest = hashlib.md5(usedforsecurity=False)  # the decoded arrays are checked by SHA-256
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
