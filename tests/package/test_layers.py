"""Import rules: the contracts in pyproject.toml, and the packages that may import fairseq."""

from __future__ import annotations

import sys

import pytest
from commands import ROOT, as_process

grimp = pytest.importorskip("grimp", reason="./scripts/install.sh test")

PACKAGE = "alibi_fairseq"
CORE = ("positions", "attention", "blocks")
#: fairseq and packages that it installs.
FAIRSEQ = {"fairseq", "fairseq_cli", "hydra", "omegaconf"}
#: Packages and modules that may import fairseq; everything else works without it.
GLUE = {
    "models",
    "checks",
    "huggingface",
    "cli",
    "registration",
    "plugin",
    "evaluation.checkpoint",
    "evaluation.overrides",
    "evaluation.split",
    "data.binarization",
    "data.tokenization",
    "data.wikitext103",
    "data.truncation",
    "data.probe_data",
    "experiment.training_flags",
}


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph(PACKAGE, include_external_packages=True, cache_dir=None)


def imports(graph) -> list[tuple[str, str]]:
    """Return pairs (module, imported module), with names inside the package shortened."""
    pairs = []
    for module in sorted(graph.modules):
        if module.split(".")[0] == PACKAGE:
            for imported in graph.find_modules_directly_imported_by(module):
                pair = (module.removeprefix(f"{PACKAGE}."), imported.removeprefix(f"{PACKAGE}."))
                pairs.append(pair)
    return pairs


def modules_in_cycles(imports_of: dict[str, set[str]]) -> set[str]:
    """Return the modules in import cycles, and the modules that import them.

    Modules without imports among the remaining ones are removed until only cycles are left.
    """
    remaining = dict(imports_of)
    while True:
        finished = [name for name in remaining if not imports_of[name] & remaining.keys()]
        if not finished:
            return set(remaining)
        for name in finished:
            del remaining[name]


@pytest.mark.parametrize("package", [PACKAGE, "studies"])
def test_imports_have_no_cycles(package):
    """Imports for type checking count, because they also couple two files."""
    graph = grimp.build_graph(package, cache_dir=None)
    imports_of = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert not modules_in_cycles(imports_of)


def test_cycle_of_type_checking_imports_is_found(tmp_path, monkeypatch):
    package = tmp_path / "circular"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.py").write_text("from . import two\n")
    (package / "two.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import one\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    graph = grimp.build_graph("circular", cache_dir=None)
    imports_of = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert modules_in_cycles(imports_of) == {"circular.one", "circular.two"}


def is_in(module: str, packages) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def test_every_folder_is_a_package():
    """An installation copies packages only, but a checkout also imports other folders."""
    folders = {path.parent for path in (ROOT / PACKAGE).rglob("*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").is_file()]


def test_contracts():
    # In a separate process, because it disables existing loggers.
    done = as_process("-c", "from importlinter.cli import lint_imports_command as c; c()", cwd=ROOT)
    assert done.returncode == 0, done.stdout


def test_core_does_not_import_fairseq(graph):
    violations = {
        module
        for module, imported in imports(graph)
        if imported.split(".")[0] in FAIRSEQ and not is_in(module, GLUE)
    }
    assert not violations


def test_core_imports_only_torch(graph):
    allowed = {*CORE, "errors", "options", "torch"}
    violations = {
        (module, imported)
        for module, imported in imports(graph)
        if is_in(module, CORE)
        and not is_in(imported, allowed)
        and imported.split(".")[0] not in sys.stdlib_module_names
    }
    assert not violations
