"""scripts/fetch_checkpoints.sh with a fake curl."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "fetch_checkpoints.sh"

# Fails with a status, which curl prints with --write-out.
FAKE_CURL = """#!/usr/bin/env bash
[[ "$*" == *"--write-out %{http_code}"* ]] && printf "$STATUS"
exit 22
"""


@pytest.mark.parametrize(("status", "is_complete"), [("416", True), ("404", False)])
def test_complete_download_only_gets_its_name(tmp_path, status, is_complete):
    curl = tmp_path / "curl"
    curl.write_text(FAKE_CURL)
    curl.chmod(0o755)
    for suffix in ("pt", "log"):
        (tmp_path / f"alibi_wt103_L512.{suffix}.part").write_text("all bytes")
    done = subprocess.run(
        ["bash", SCRIPT, "--to", tmp_path, "512"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "STATUS": status},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == is_complete, done.stderr
    assert (tmp_path / "alibi_wt103_L512.pt").exists() == is_complete
