"""Download of one file from the first mirror that has it; what has arrived is kept."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from ..errors import BadInput
from .progress import progress

# Some mirrors refuse urllib's default.
_USER_AGENT = "alibi-fairseq data preparation (Python urllib)"
_TIMEOUT = 60  # seconds without a byte


def download(mirrors: dict[str, str], folder: Path) -> tuple[Path, str]:
    """Fetch a file into ``folder``; it appears under its own name only if its hash matches.

    Args:
        mirrors: URL → SHA-256 or SHA-512, in the order in which they are tried.

    Returns:
        The file, and the URL it comes from.

    Raises:
        BadInput: no mirror worked. The next call continues what has arrived in part.
    """
    failures = []
    for url, expected in mirrors.items():
        target = folder / _file_name(url)
        if target.exists():
            return target, url
        part = folder / f"{target.name}.part"
        try:
            _fetch(url, part)
        except (OSError, HTTPException) as error:
            failures.append(f"{url}: {error}")
        else:
            if (found := hash_file(part, expected)) == expected:
                os.replace(part, target)
                return target, url
            part.unlink()
            failures.append(f"{url}: its hash is {found}, expected {expected}")
        print(f"{failures[-1]}; trying the next mirror", file=sys.stderr)
    raise BadInput(
        f"No mirror could be used ({'; '.join(failures)}). Run the command again to go on, or "
        "fetch the archive elsewhere and give it with --archive FILE."
    )


def hash_file(path: Path, like: str) -> str:
    """SHA-256 or SHA-512 of a file in hexadecimal, whichever has the length of the other."""
    digest = hashlib.new("sha256" if len(like) == 64 else "sha512")
    with open(path, "rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _file_name(url: str) -> str:
    found = re.fullmatch(r"https?://[^/]+/(?:[^?#]*/)?([^/?#]+)([?#].*)?", url)
    if not found:
        raise BadInput(f"--mirror {url} is not the address of a file (https://…/name.zip).")
    return found[1]


def _fetch(url: str, part: Path) -> None:
    """Ask for the bytes that are missing, again as long as some of them come."""
    while True:
        have = part.stat().st_size if part.exists() else 0
        try:
            return _receive(url, part, have)
        except (OSError, HTTPException):
            if not part.exists() or part.stat().st_size <= have:
                raise


def _receive(url: str, part: Path, have: int) -> None:
    headers = {"User-Agent": _USER_AGENT, "Range": f"bytes={have}-"}
    try:
        response = urlopen(Request(url, headers=headers), timeout=_TIMEOUT)
    except HTTPError as error:
        if error.code == 416 and have:  # all of it was there already, or it is of another file
            return
        raise
    with response:
        resumed = response.status == 206  # otherwise the server knows no ranges
        length = response.headers.get("Content-Length")
        total = int(length) + have * resumed if length else None
        with open(part, "ab" if resumed else "wb") as out, progress(total, "downloading") as bar:
            bar.update(out.tell())
            while chunk := response.read(1 << 18):
                out.write(chunk)
                bar.update(len(chunk))
        received = part.stat().st_size
    if total not in (None, received):
        raise ConnectionError(f"broke off after {received:,} of {total:,} bytes")
