"""Bundles for offline machines: their files, rejected options, and installation."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

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


# What bundles do not contain: packages of the node, and packages of which only features need them
# that language models do not use. The bundle's sacrebleu does not require lxml.
ON_NODE = {"torch", "numpy"}
LEFT_OUT = {"cffi", "cython", "lxml", "matplotlib", "scikit-learn", "tensorboard", "torchaudio"}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


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
    bundled = {normalized(pin.split("==")[0]) for pin in pins} | {"alibi-fairseq"}
    required = set()
    for name in bundled:
        for line in metadata.requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                required.add(normalized(requirement.name))
    assert required - bundled == ON_NODE | LEFT_OUT


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


TAG = "cp{0}{1}-cp{0}{1}-linux_x86_64".format(*sys.version_info[:2])


def write_wheel(folder, name: str, version: str, requirements=(), tag: str = "py3-none-any"):
    """Write the wheel of a package that is a module; running it prints its name."""
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in requirements]
    files = {
        f"{name}.py": "print(__name__)\n",
        f"{name}-{version}.dist-info/METADATA": "\n".join(metadata) + "\n",
        f"{name}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = f"{name}-{version}.dist-info/RECORD"
    files[record] = "".join(f"{file},,\n" for file in [*files, record])
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)


@pytest.fixture
def bundle(tmp_path):
    """Return a bundle of small wheels."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    ours = ["fairseq-fixed==2", "numpy", "pydantic>=2", "matplotlib", 'pytest; extra == "test"']
    write_wheel(folder, "alibi_fairseq", "2", ours)
    write_wheel(folder, "fairseq_fixed", "2", ["cffi", "hydra-core==1.3.2", "tqdm"], TAG)
    write_wheel(folder, "pydantic", "2.14.3", ["typing-extensions>=4.16.0"])
    write_wheel(folder, "typing_extensions", "4.16.0")
    write_wheel(folder, "hydra_core", "1.3.2", ["antlr4-python3-runtime (==4.9.*)"])
    write_wheel(folder, "antlr4_python3_runtime", "4.9.3")
    write_wheel(folder, "tqdm", "4.70.1")
    write_sums(folder)
    return folder


def write_sums(folder):
    wheels = folder.glob("*.whl")
    sums = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}" for p in wheels]
    (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n")


@pytest.fixture
def node(tmp_path):
    """Return the Python and the folder of packages of a node with pip, PyTorch, and NumPy."""
    venv.create(tmp_path / "env", symlinks=True)
    (site_packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site_packages / "pip").symlink_to(Path(find_spec("pip").origin).parent)
    for name in ("torch", "numpy"):
        write_wheel(site_packages, name, "1")
    unpack_wheels(site_packages)
    return tmp_path / "env" / "bin" / "python", site_packages


def unpack_wheels(folder):
    """Replace the wheels in a folder by their files."""
    for path in folder.glob("*.whl"):
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(folder)
        path.unlink()


def versions(site_packages) -> dict[str, str]:
    """Return the version of each installed package."""
    found = metadata.distributions(path=[str(site_packages)])
    return {distribution.metadata["Name"]: distribution.version for distribution in found}


def install(bundle, python, **variables):
    """Install a bundle on a node whose pip is the real one."""
    environment = {**os.environ, "PYTHON": python, **variables}
    environment.pop("PYTHONPATH", None)
    return run_command("bash", INSTALL, bundle, env=environment, cwd=bundle.parent)


def test_only_unsuitable_packages_are_replaced(bundle, node, tmp_path):
    python, site_packages = node
    write_wheel(site_packages, "alibi_fairseq", "2")
    write_wheel(site_packages, "fairseq_fixed", "1")
    write_wheel(site_packages, "pydantic", "1.10.0", ["typing-extensions"])
    write_wheel(site_packages, "typing_extensions", "4.12.2")
    write_wheel(site_packages, "antlr4_python3_runtime", "4.13.2")
    write_wheel(site_packages, "tqdm", "4.60.0")
    unpack_wheels(site_packages)
    (site_packages / "alibi_fairseq.py").write_text("an older file of the same version")
    write_wheel(bundle, "tqdm", "5")  # not listed
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    write_wheel(elsewhere, "pydantic", "3")
    configuration = tmp_path / "pip.conf"
    configuration.write_text(f"[global]\nfind-links = {elsewhere}\n")
    done = install(bundle, python, PIP_FIND_LINKS=elsewhere, PIP_CONFIG_FILE=configuration)
    assert done.returncode == 0, done.stderr
    assert "__main__" in done.stdout  # python -m alibi_fairseq
    assert versions(site_packages) == {
        "alibi_fairseq": "2",
        "fairseq_fixed": "2",
        "pydantic": "2.14.3",
        "typing_extensions": "4.16.0",
        "hydra_core": "1.3.2",
        "antlr4_python3_runtime": "4.9.3",
        "tqdm": "4.60.0",
        "torch": "1",
        "numpy": "1",
    }


def test_pydantic_of_node_is_kept(bundle, node):
    python, site_packages = node
    write_wheel(site_packages, "pydantic", "2.5.0", ["typing-extensions>=4.6"])
    write_wheel(site_packages, "typing_extensions", "4.12.2")
    unpack_wheels(site_packages)
    done = install(bundle, python)
    assert done.returncode == 0, done.stderr
    installed = versions(site_packages)
    assert installed["pydantic"] == "2.5.0"
    assert installed["typing_extensions"] == "4.12.2"
    assert installed["hydra_core"] == "1.3.2"


def test_mismatched_bundle_is_not_installed(script, bundle):
    (bundle / "hydra_core-1.3.2-py3-none-any.whl").write_text("cut off")
    done, pip_calls = script(INSTALL, bundle)
    assert done.returncode == 2
    assert "SHA256SUMS" in done.stderr
    assert pip_calls == []
    (bundle / f"fairseq_fixed-2-{TAG}.whl").rename(bundle / "fairseq_fixed-2-cp399-cp399-linux.whl")
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
