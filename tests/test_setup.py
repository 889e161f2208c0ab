"""README on PyPI, as setup.py gives it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from commands import ROOT

from alibi_fairseq import __version__

URL = "https://github.com/someone/alibi_fairseq"
#: Targets of links and images, with the exclamation mark of an image.
TARGET = re.compile(r"(!?)\[(?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*\]\(([^)\s]+)\)")


def long_description(repository: str) -> str:
    environment = {**os.environ, "REPOSITORY_URL": repository}
    command = [sys.executable, "setup.py", "--quiet", "--long-description"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_links_are_absolute_on_pypi():
    readme = (ROOT / "README.md").read_text(encoding="utf-8").strip()
    assert long_description("") == readme
    text = long_description(URL)
    images = 0
    files = 0
    for is_image, target in TARGET.findall(text):
        if target.startswith("#"):
            continue
        assert target.startswith("https://"), target
        kind = "raw" if is_image else "blob"
        prefix = f"{URL}/{kind}/v{__version__}/"
        if target.startswith(URL):
            path = target.removeprefix(prefix).partition("#")[0]
            assert (ROOT / path).exists(), target
            images += bool(is_image)
            files += 1
    assert images == 1
    assert files > 20
    # Nothing else has changed.
    plain = text.replace(f"{URL}/raw/v{__version__}/", "").replace(
        f"{URL}/blob/v{__version__}/", ""
    )
    assert plain == readme
