"""Who may import whom: the contracts in pyproject.toml, and the packages that may import fairseq."""

from __future__ import annotations

import sys

import grimp
import pytest
from commands import ROOT, as_process

PACKAGE = "alibi_fairseq"
CORE = ("positions", "attention")
#: fairseq and what it brings along.
FAIRSEQ = {"fairseq", "fairseq_cli", "hydra", "omegaconf"}
#: Packages and modules that may import fairseq; everything else works without it.
GLUE = {
    *("models", "tasks", "criterions", "checkpoints", "huggingface", "cli"),
    *("registration", "fairseq_patches", "training"),
    *("evaluation.checkpoint", "evaluation.data"),
    *("data.pipeline", "data.tokenization", "data.wikitext103", "data.truncation", "data.probes"),
    *("compare.experiment", "compare.speeds"),
}


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph(PACKAGE, include_external_packages=True, cache_dir=None)


def imports(graph) -> list[tuple[str, str]]:
    """(module, imported module) inside the package, without the package's name; whole names outside."""
    return [
        (module.removeprefix(f"{PACKAGE}."), imported.removeprefix(f"{PACKAGE}."))
        for module in sorted(graph.modules)
        if module.split(".")[0] == PACKAGE
        for imported in graph.find_modules_directly_imported_by(module)
    ]


def test_no_modules_import_each_other_in_a_circle():
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    following = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    # What imports nothing that is left, taken away again and again, leaves only circles.
    while done := {name for name, imported in following.items() if not imported & {*following}}:
        following = {name: found for name, found in following.items() if name not in done}
    assert not following


def is_in(module: str, packages) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def test_every_folder_is_a_package():
    """An installation copies packages alone; a checkout also imports a folder that is none."""
    folders = {path.parent for path in (ROOT / PACKAGE).rglob("*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").is_file()]


def test_contracts():
    # In a process of its own: it switches off the loggers that there are.
    done = as_process("-c", "from importlinter.cli import lint_imports_command as c; c()", cwd=ROOT)
    assert done.returncode == 0, done.stdout


def test_only_the_glue_imports_fairseq(graph):
    found = {
        module
        for module, imported in imports(graph)
        if imported.split(".")[0] in FAIRSEQ and not is_in(module, GLUE)
    }
    assert not found


def test_the_core_imports_torch_alone(graph):
    allowed = {*CORE, "errors", "torch"}
    found = {
        (module, imported)
        for module, imported in imports(graph)
        if is_in(module, CORE)
        and not is_in(imported, allowed)
        and imported.split(".")[0] not in sys.stdlib_module_names
    }
    assert not found
