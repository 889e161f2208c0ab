"""Wheel and source distribution: their files, and the package installed from the wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch

from alibi_fairseq import __version__

pytestmark = pytest.mark.ci

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from setuptools import build_meta as b; getattr(b, sys.argv[1])(sys.argv[2])"
#: Packages in the folder of PyTorch that it needs to be imported.
TORCH = (
    *("torch", "torchgen", "functorch", "numpy", "sympy", "mpmath", "networkx", "jinja2"),
    *("markupsafe", "filelock", "fsspec", "typing_extensions"),
)


def run(*command: object, cwd: Path) -> str:
    """Run a command without this checkout on the path, and return its output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> Path:
    """Folder with a wheel and a source distribution of the tracked files."""
    folder = tmp_path_factory.mktemp("distributions")
    source = folder / "source"
    source.mkdir()
    files = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in files.splitlines():
        path = ROOT / name
        if path.is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(path.read_bytes())
    for step in ("build_sdist", "build_wheel"):
        run(sys.executable, "-c", BUILD, step, folder, cwd=source)
    return folder


@pytest.fixture(scope="module")
def wheel(distributions) -> Path:
    (path,) = distributions.glob("*.whl")
    return path


def wheel_files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_has_code_and_data(wheel):
    assert wheel.name == f"alibi_fairseq-{__version__}-py3-none-any.whl"
    names = wheel_files(wheel)
    names_of_data = (
        *("py.typed", "huggingface/card.md", "record/page.md", "record/track.md"),
        "results/defaults.json",
    )
    for name in (*names_of_data, "cli/__init__.py", "configs/README.md"):
        assert f"alibi_fairseq/{name}" in names
    for source, package, pattern in (
        ("configs", "configs", "*/*.yaml"),
        ("configs", "configs", "*/*.csv"),
        ("results/paper", "paper_data", "*.csv"),
        ("alibi_fairseq", ".", "**/*.py"),
    ):
        files = list((ROOT / source).glob(pattern))
        assert files
        for path in files:
            name = os.path.normpath(f"alibi_fairseq/{package}/{path.relative_to(ROOT / source)}")
            assert name in names


def test_wheel_has_nothing_else(wheel):
    folders = {name.split("/")[0] for name in wheel_files(wheel)}
    assert folders == {"alibi_fairseq", f"alibi_fairseq-{__version__}.dist-info"}
    assert not [name for name in wheel_files(wheel) if "test" in name.lower()]


def test_source_distribution_builds_same_wheel(distributions, wheel, tmp_path):
    (path,) = distributions.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path)
    assert not [name for name in names if re.search(r"/(tests|benchmarks|studies)/", name)]
    (source,) = tmp_path.iterdir()
    run(sys.executable, "-c", BUILD, "build_wheel", tmp_path, cwd=source)
    (rebuilt,) = tmp_path.glob("*.whl")
    assert wheel_files(rebuilt) == wheel_files(wheel)


def environment_with(wheel: Path, folder: Path, site: Path) -> Path:
    """Return a Python with the installed wheel and the packages of a folder."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(f"{site}\n")
    return python


def test_installed_wheel_runs_commands(wheel, tmp_path):
    site = Path(torch.__file__).parents[1]
    python = environment_with(wheel, tmp_path / "env", site)
    command = python.with_name("alibi-fairseq")
    assert "alibi_lm_wiki103" in run(command, "models", cwd=tmp_path)
    # Reads configs/ and results/paper/.
    text = run(command, "reproduce", "table5", "--dry-run", cwd=tmp_path)
    assert "wikitext-103/t5-3072" in text
    run(command, "report", "--out", "report", cwd=tmp_path)
    assert "18.40" in (tmp_path / "report" / "tables" / "table05.md").read_text()


def test_core_needs_only_torch(wheel, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    for path in Path(torch.__file__).parents[1].iterdir():
        if re.split(r"[-.]", path.name.lower())[0] in TORCH:
            (site / path.name).symlink_to(path)
    python = environment_with(wheel, tmp_path / "env", site)
    code = (
        "import importlib.util, alibi_fairseq.positions, alibi_fairseq.attention\n"
        "assert importlib.util.find_spec('fairseq') is None\n"
        "print(alibi_fairseq.__file__, alibi_fairseq.alibi_slopes(8)[0].item())"
    )
    path, slope = run(python, "-c", code, cwd=tmp_path).split()
    assert Path(path).is_relative_to(tmp_path / "env")
    assert float(slope) == 0.5
