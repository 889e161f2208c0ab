"""scripts/install.sh and the environment of the other scripts, with a fake pip."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A Python of an environment. Its pip appends its arguments to pip.txt and prints a lot. The file
# no-pip stands for a missing pip.
FAKE_PYTHON = """#!/usr/bin/env bash
environment="$(cd "$(dirname "$0")/.." && pwd)"
case "$*" in
  "-m pip --version") [ ! -e "$environment/no-pip" ] ;;
  "-m venv --clear "*)
    rm -rf "$4"
    mkdir -p "$4/bin"
    cp "$0" "$4/bin/python"
    ;;
  "-m venv "*) rm "$3/no-pip" ;;
  "-m pip install"*)
    echo "$*" >> "$environment/pip.txt"
    env | grep '^PIP_.*CONSTRAINT=' >> "$environment/constraints.txt"
    sleep "${PIP_SECONDS:-0}"
    seq 100
    if [ -n "${PIP_ERROR:-}" ]; then echo "ERROR: $PIP_ERROR" >&2; exit 1; fi
    ;;
  "-m "*) ;;
  *sys.prefix*) echo "$environment" ;;
  *"import torch"*) echo "${TORCH:-2.13.0}" ;;
  *) exec "$REAL" "$@" ;;
esac
"""


@pytest.fixture
def clone(tmp_path):
    """Return a clone whose .venv contains the fake Python."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "scripts", clone / "scripts")
    for name in ("setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, clone)
    python = clone / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    return clone


def run(clone, line, **variables):
    fixed = {
        "PATH": f"{clone}/.venv/bin:{os.environ['PATH']}",
        "REAL": sys.executable,
        "TMPDIR": str(clone),
    }
    return subprocess.run(
        ["bash", "-euc", line],
        cwd=clone,
        env={**os.environ, **fixed, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def requests(clone):
    """Return the arguments of the pip calls since the last request."""
    log = clone / ".venv" / "pip.txt"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def ensured(clone, extra=""):
    """Return the pip calls of a script that needs an extra."""
    done = run(clone, f"source scripts/environment.sh; ensure_environment {extra}")
    assert done.returncode == 0, done.stderr
    return requests(clone)


def test_environment_of_install_is_recognized(clone):
    assert run(clone, "./scripts/install.sh").returncode == 0
    assert requests(clone)
    assert ensured(clone) == []
    assert "[test]" in ensured(clone, "test")[-1]
    assert ensured(clone) == ensured(clone, "test") == []


def test_changed_constraints_are_installed(clone):
    ensured(clone, "test")
    with (clone / "constraints.txt").open("a") as file:
        file.write("another==1\n")
    assert ensured(clone)
    assert ensured(clone) == []
    assert ensured(clone, "test")


def test_install_hides_pip_output(clone):
    done = run(clone, "./scripts/install.sh")
    assert len(done.stdout.splitlines()) < 8
    assert not list(clone.glob("alibi-fairseq-install.*"))


def test_failed_install_names_its_log(clone):
    ensured(clone)
    done = run(clone, "./scripts/install.sh test", PIP_ERROR="No space left on device")
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    (log,) = clone.glob("alibi-fairseq-install.*")
    assert str(log) in done.stderr
    assert re.search("^100$", log.read_text(), re.MULTILINE)
    assert ensured(clone)  # a failed installation does not count as complete


def test_old_pytorch_is_rejected_before_any_change(clone):
    ensured(clone)
    done = run(clone, "./scripts/install.sh test", TORCH="2.9.1+cu128")
    assert done.returncode == 2
    assert done.stderr == (
        "error: PyTorch 2.9.1+cu128 is installed, but 2.10 or later is needed. Upgrade it, or use "
        "another environment.\n"
    )
    assert requests(clone) == []
    assert run(clone, "./scripts/install.sh test", TORCH="2.10.0+cpu").returncode == 0


def test_exported_constraints_are_ignored(clone):
    exported = {"PIP_CONSTRAINT": "constraints.txt", "PIP_BUILD_CONSTRAINT": "constraints.txt"}
    assert run(clone, "./scripts/install.sh", **exported).returncode == 0
    assert requests(clone)
    assert (clone / ".venv" / "constraints.txt").read_text() == ""


def test_environment_of_removed_python_is_created_again(clone):
    ensured(clone)
    python = clone / ".venv" / "bin" / "python"
    base = clone / "python"
    python.rename(base)
    python.symlink_to("removed")
    done = run(clone, "source scripts/environment.sh; ensure_environment", PYTHON=str(base))
    assert done.returncode == 0, done.stderr
    assert requests(clone)
    assert ensured(clone) == []


def test_environment_whose_python_does_not_start_is_kept(clone):
    ensured(clone)
    python = clone / ".venv" / "bin" / "python"
    python.write_text("#!/usr/bin/env bash\necho no libpython >&2; exit 127\n")
    done = run(clone, "source scripts/environment.sh; ensure_environment", PYTHON=sys.executable)
    assert done.returncode == 2
    assert "no libpython" in done.stderr
    assert "does not start" in done.stderr
    assert "no libpython" in python.read_text()


def test_interrupted_creation_is_completed(clone):
    (clone / ".venv" / "no-pip").touch()
    assert ensured(clone)
    assert not (clone / ".venv" / "no-pip").exists()


@pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock")
def test_jobs_that_start_together_install_once(clone):
    alone = ensured(clone)
    (clone / ".venv" / "alibi-fairseq-installed").unlink()
    line = "source scripts/environment.sh; ensure_environment & ensure_environment; wait $!"
    done = run(clone, line, PIP_SECONDS="1")
    assert done.returncode == 0, done.stderr
    # The name of the copy of the constraints differs.
    assert len(requests(clone)) == len(alone)


def test_only_python_3_10_is_found(clone):
    commands = clone / "commands"
    commands.mkdir()
    for name in ("bash", "dirname"):
        (commands / name).symlink_to(shutil.which(name))
    (commands / "python3.10").write_text("#!/usr/bin/env bash\n")
    (commands / "python3.10").chmod(0o755)
    done = run(clone, "source scripts/environment.sh; find_python", PATH=str(commands), PYTHON="")
    assert done.stdout.strip() == "python3.10"


def test_fairseq_is_not_cached(clone):
    run(clone, "./scripts/install.sh")
    (fairseq,) = [line for line in requests(clone) if "--no-deps" in line]
    assert "--no-cache-dir" in fairseq


def test_missing_module_installs_extra(clone):
    line = "source scripts/environment.sh; ensure_training_environment study"
    assert run(clone, f"{line} json").returncode == 0
    assert requests(clone) == []
    assert run(clone, f"{line} not_installed").returncode == 0
    assert "[study]" in requests(clone)[-1]


def test_python_without_pydantic_is_not_kept(clone):
    (clone / "sitecustomize.py").write_text("import sys; sys.modules['pydantic'] = None")
    line = "source scripts/environment.sh; ensure_training_environment"
    assert run(clone, line, PYTHONPATH=str(clone)).returncode == 0
    assert requests(clone)
