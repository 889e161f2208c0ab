"""Download one file from the first mirror that has it, resuming interrupted downloads."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from alibi_fairseq.data.progress import progress
from alibi_fairseq.errors import BadInput

# Some mirrors refuse urllib's default.
_USER_AGENT = "alibi-fairseq data preparation (Python urllib)"
_TIMEOUT = 60  # seconds without a byte
_ATTEMPTS = 3  # per mirror without any progress
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Mirror:
    """A URL and the hash of the file that it serves.

    Attributes:
        algorithm: name of a hash in ``hashlib``.
        digest: hexadecimal.
    """

    url: str
    algorithm: str
    digest: str


def download(mirrors: list[Mirror], folder: Path, pause: float = 2.0) -> tuple[Path, Mirror]:
    """Fetch a file into ``folder``; it appears under its own name only if its hash matches.

    Args:
        mirrors: tried in this order; one that fails or serves another file is skipped.
        pause: seconds before another attempt at the same mirror.

    Raises:
        BadInput: no mirror worked; names the error of each. Partial files are kept, and the next
            run resumes them.
    """
    failures = []
    for mirror in mirrors:
        target = folder / file_name(mirror.url)
        if target.exists():
            return target, mirror
        part = target.with_name(target.name + ".part")
        try:
            _fetch(mirror.url, part, pause)
        except (OSError, HTTPException) as error:
            failures.append(f"{mirror.url}: {_reason(error)}")
            print(f"{failures[-1]}; trying the next mirror", file=sys.stderr)
            continue
        found = hash_file(part, mirror.algorithm)
        if found != mirror.digest:
            part.unlink()
            failures.append(
                f"{mirror.url}: {mirror.algorithm.upper()} is {found}, expected {mirror.digest}"
            )
            print(f"{failures[-1]}; trying the next mirror", file=sys.stderr)
            continue
        os.replace(part, target)
        return target, mirror
    raise BadInput(
        f"No mirror could be used ({'; '.join(failures)}). Run the command again to go on, or "
        "fetch the archive elsewhere and give it with --archive FILE."
    )


def file_name(url: str) -> str:
    """The name of the file that a URL leads to.

    Raises:
        BadInput: it is no URL of a file.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    name = Path(parts.path).name
    if parts.scheme not in ("http", "https") or not parts.netloc or not name:
        raise BadInput(f"{url} is not the address of a file (https://…/name.zip).")
    return name


def hash_file(path: Path, algorithm: str) -> str:
    """Hexadecimal hash of a file by an algorithm of ``hashlib``, with a progress bar."""
    digest = hashlib.new(algorithm)
    with open(path, "rb") as stream, progress(path.stat().st_size, f"{algorithm} of file") as bar:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
            bar.update(len(chunk))
    return digest.hexdigest()


def _fetch(url: str, part: Path, pause: float) -> None:
    failed = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            _receive(url, part)
            return
        except (OSError, HTTPException) as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            grown = part.exists() and part.stat().st_size > before
            failed = 0 if grown else failed + 1
            if refused or failed == _ATTEMPTS:
                raise
            time.sleep(pause)


def _receive(url: str, part: Path) -> None:
    """One request, for the bytes that are still missing.

    Raises:
        OSError, HTTPException: refused, broken off, or no connection.
    """
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": _USER_AGENT}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=_TIMEOUT
        )
    except urllib.error.HTTPError as error:
        if error.code == 416 and error.headers.get("Content-Range") == f"bytes */{have}":
            return  # everything was there already
        if error.code == 416:
            part.unlink()
        raise
    with response:
        resumed = response.status == 206
        if not resumed:  # the server knows no ranges: from the beginning
            have = 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        if total is not None:
            free = shutil.disk_usage(part.parent).free
            if free < total - have:
                raise BadInput(
                    f"{url} has {total / 1e6:.0f} MB, but only {free / 1e6:.0f} MB are free in "
                    f"{part.parent}; make room or choose another --out."
                )
        with open(part, "ab" if resumed else "wb") as out, progress(total, "downloading") as bar:
            bar.update(have)
            while chunk := response.read(_CHUNK):
                out.write(chunk)
                bar.update(len(chunk))
        received = part.stat().st_size
    if total is not None and received != total:
        raise ConnectionError(f"broke off after {received:,} of {total:,} bytes")


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    return str(getattr(error, "reason", error)) or type(error).__name__
