"""Bundles for offline machines: their files, rejected options, and installation."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "scripts" / "bundle_wheels.sh"
INSTALL = ROOT / "scripts" / "install_offline.sh"
PYTHON_VERSION = "{}.{}".format(*sys.version_info[:2])

# A Python whose pip logs its arguments, splits constraints at spaces as pip does, and creates small
# files instead of wheels.
FAKE_PYTHON = """#!/usr/bin/env bash
if [ "$1 $2" = "-m alibi_fairseq" ]; then echo "$*"; exit; fi
if [ "$1 $2" != "-m pip" ]; then exec "$REAL" "$@"; fi
shift 2
echo "$*" >> "$LOG"
for file in ${PIP_CONSTRAINT:-} ${PIP_BUILD_CONSTRAINT:-}; do [ -f "$file" ] || exit 1; done
verb=$1
while [ $# -gt 1 ]; do
  case "$1" in --dest | --wheel-dir) folder=$2 ;; esac
  last=$2
  shift
done
case "$verb" in
  download)
    if [[ "$last" == fairseq* ]]; then
      [ "${BINARY:-1}" -eq 1 ] || exit 1
      echo wheel > "$folder/fairseq_fixed-1-cp312-cp312-linux.whl"
    fi
    [ "${BROKEN:-0}" -eq 0 ] || exit 1
    ;;
  wheel) echo wheel > "$folder/$(basename "${last%%=*}")-1-py3-none-any.whl" ;;
esac
"""


def run_command(*command, **options):
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


@pytest.fixture
def script(tmp_path):
    """Run a script with a fake Python, and return the process and pip's log."""
    python = tmp_path / "python"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    log = tmp_path / "log"

    def run(path, *arguments, **variables):
        log.write_text("")
        fixed = {"PYTHON": str(python), "REAL": sys.executable, "LOG": str(log)}
        environment = {**os.environ, **fixed, **variables}
        done = run_command("bash", path, *arguments, env=environment, cwd=tmp_path)
        return done, log.read_text().splitlines()

    return run


def test_bundle_lists_files(script, tmp_path):
    done, pip_calls = script(BUNDLE, "--out", "bundle")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "bundle" / "SHA256SUMS").read_text().splitlines()
    listed = {}
    for line in lines:
        checksum, name = line.split("  ")
        listed[name] = checksum
    checksums = {}
    for path in (tmp_path / "bundle").iterdir():
        if path.name != "SHA256SUMS":
            checksums[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    assert listed == checksums
    assert {"install_offline.sh", "fairseq_fixed-1-cp312-cp312-linux.whl"} <= set(listed)
    wheels = [line for line in pip_calls if line.startswith("wheel")]
    assert len(wheels) == 2  # antlr4, this project
    assert not [line for line in pip_calls if re.search(r"\b(torch|numpy|nvidia\S*)==", line)]
    pins = re.findall(r"\S+==\S+", " ".join(pip_calls))
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    assert set(pins) - set(constraints) == {"sacrebleu==2.0.0"}


def test_bundle_from_clone_with_space_in_path(script, tmp_path):
    (tmp_path / "a clone").symlink_to(ROOT)
    done, _ = script(tmp_path / "a clone" / "scripts" / BUNDLE.name, "--out", "bundle")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "change", "named"),
    [
        (["--python", "3.9"], {}, "--python"),
        (["--torch"], {}, "--torch"),
        (["--out", "log"], {}, "log"),
        (["--out", "b"], {"BROKEN": "1"}, "pip"),
        (["--out", "b", "--python", "3.19"], {"BINARY": "0"}, "3.19"),
    ],
)
def test_failed_bundle_leaves_no_files(script, tmp_path, arguments, change, named):
    before = {path.name for path in tmp_path.iterdir()} | {"log"}
    done, _ = script(BUNDLE, *arguments, **change)
    assert done.returncode == 2
    assert named in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.fixture
def bundle(tmp_path):
    """Return a bundle of three wheels: this project, an installed one, and a missing one."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    tag = "cp{}{}".format(*sys.version_info[:2])
    names = ["alibi_fairseq-0.1.0-py3-none-any.whl", "hydra_core-1.3.2-py3-none-any.whl"]
    names += [f"not_installed-1-{tag}-{tag}-linux_x86_64.whl"]
    for name in names:
        (folder / name).write_text(name)
    write_sums(folder)
    return folder


def write_sums(folder):
    wheels = folder.glob("*.whl")
    sums = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}" for p in wheels]
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n")


def test_missing_packages_install_without_index(script, bundle):
    (bundle / "stranger-1-py3-none-any.whl").write_text("not listed")
    done, pip_calls = script(INSTALL, bundle)
    assert done.returncode == 0, done.stderr
    (command,) = pip_calls
    assert {"--isolated", "--no-index", "--no-deps"} <= set(command.split())
    wheels = {word for word in command.split() if word.endswith(".whl")}
    assert {wheel.split("-")[0] for wheel in wheels} == {"alibi_fairseq", "not_installed"}
    assert "-m alibi_fairseq models" in done.stdout


def test_mismatched_bundle_is_not_installed(script, bundle):
    (bundle / "hydra_core-1.3.2-py3-none-any.whl").write_text("cut off")
    done, pip_calls = script(INSTALL, bundle)
    assert done.returncode == 2
    assert "SHA256SUMS" in done.stderr
    assert pip_calls == []
    (bundle / "fairseq_fixed-1-cp399-cp399-linux_x86_64.whl").touch()
    write_sums(bundle)
    done, pip_calls = script(INSTALL, bundle)
    assert done.returncode == 2
    assert "Python 3.99" in done.stderr
    assert pip_calls == []


@pytest.mark.slow
def test_training_on_bare_torch(tmp_path):
    """Install a real bundle in a new environment whose pip reaches no index."""
    site = Path(os.path.dirname(__import__("torch").__file__)).parent
    torch_packages = tmp_path / "torch-packages"
    torch_packages.mkdir()
    names = "torch torchgen numpy sympy mpmath networkx jinja2 markupsafe filelock fsspec "
    names += "functorch typing_extensions"
    for path in site.iterdir():
        if re.split(r"[-.]", path.name.lower())[0] in names.split():
            (torch_packages / path.name).symlink_to(path)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    (site_packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site_packages / "torch-packages.pth").write_text(f"{torch_packages}\n")
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run(
        ["bash", BUNDLE, "--python", PYTHON_VERSION, "--out", tmp_path / "bundle"],
        env={**os.environ, "PYTHON": sys.executable},
        check=True,
    )
    environment = {}
    for name, value in os.environ.items():
        if not name.startswith(("PIP_", "PYTHON")):
            environment[name] = value
    for name in ("http_proxy", "https_proxy", "PIP_INDEX_URL"):
        environment[name] = "http://127.0.0.1:9"

    def run(*command):
        done = run_command(*command, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    install = ["env", f"PYTHON={python}", "bash", tmp_path / "bundle" / "install_offline.sh"]
    assert "--position-method: alibi" in run(*install)
    assert "Installing into" in run(*install)  # a second run changes nothing
    (tmp_path / "text").write_text("".join(f"the word {n % 97} is here\n" for n in range(2000)))
    ours = [str(python), "-m", "alibi_fairseq"]
    run(*ours, "preprocess", "--only-source", "--trainpref", "text", "--destdir", "data")
    options = "--task language_modeling --arch alibi_lm_tiny --position-method alibi --cpu"
    options += " --tokens-per-sample 64 --max-tokens 512 --optimizer adam --lr 0.001 --max-update 3"
    options += " --disable-validation --no-epoch-checkpoints --save-dir run"
    assert "num_updates 3" in run(*ours, "train", "data", *options.split())
    assert (tmp_path / "run" / "checkpoint_last.pt").exists()
