"""Version of the plugin that a position method comes from: a hash of the code that defines it."""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from ..errors import PACKAGE, UserInputError
from .display_names import METHOD_NAMES


class ModuleSource(NamedTuple):
    """Source of an imported module of a plugin.

    Attributes:
        code_sha256: hash of the syntax tree, without docstrings.
        imports: imported modules of the same package that it imports.
    """

    code_sha256: str
    imports: tuple[str, ...]


SourceReader = Callable[[str], ModuleSource | None]


def plugin_sha256(methods: Iterable[str]) -> str | None:
    """Return the hash of the plugins' code that defines a model, or None for a model without one.

    It covers the module of each method, the modules of the same package that this one imports, and
    so on. Comments, docstrings, and formatting do not count. A file is read once in a process: an
    edit after that has no effect on this process, and does not change the hash either.

    Args:
        methods: position methods of the model. Unknown names are ignored.
    """
    return _sha256_of(methods, _source)


def check_unedited(methods: Iterable[str]) -> None:
    """Check that the code that defines a model is still what this process has imported.

    A process that is started now would train or evaluate with the edited code.

    Raises:
        UserInputError: it was edited.
    """
    if _sha256_of(methods, _read_source) != plugin_sha256(methods):
        raise UserInputError(
            "The plugin of this model was edited since the command started. Rerun the command, "
            "or undo the edit first."
        )


def plugin_files(methods: Iterable[str]) -> dict[str, Path]:
    """Return the imported source files of the plugins of a model, by path within their folders.

    They are the whole packages, such as ``my_plugin/__init__.py``: a copy can be imported.
    """
    packages = {_package(kind) for kind in _plugin_classes(methods)}
    files: dict[str, Path] = {}
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] not in packages or not file or not Path(file).is_file():
            continue
        parts = name.split(".")
        if hasattr(module, "__path__"):
            parts.append("__init__")
        files["/".join(parts) + Path(file).suffix] = Path(file)
    return files


def _sha256_of(methods: Iterable[str], source: SourceReader) -> str | None:
    """Return the hash of the plugins' code that defines a model, or None without any."""
    definitions = _definitions(methods, source)
    if not definitions:
        return None
    digest = hashlib.sha256()
    for definition in definitions:
        digest.update(f"{definition}\n".encode())
    return digest.hexdigest()


def _plugin_classes(methods: Iterable[str]) -> list[type]:
    """Return the classes of plugins' methods, and the classes of plugins that they inherit from."""
    if METHOD_NAMES.keys() >= set(methods):
        return []  # without importing the methods
    from .registry import METHODS

    plugins = {_package(kind) for kind in METHODS.values()} - {PACKAGE}
    classes: dict[type, None] = {}
    for name in methods:
        for kind in METHODS[name].__mro__ if name in METHODS else ():
            if _package(kind) in plugins:
                classes[kind] = None
    return list(classes)


def _package(kind: type) -> str:
    """Return the top-level package that a class is defined in."""
    return kind.__module__.partition(".")[0]


def _definitions(methods: Iterable[str], source: SourceReader) -> list[str]:
    """Return the classes of plugins' methods, and the modules that define them with their hashes.

    What a function returns can depend on its caller, so a class that was made in a function is
    defined by all modules of its package.
    """
    classes = set()
    modules = set()
    for kind in _plugin_classes(methods):
        classes.add(f"{kind.__module__}.{kind.__qualname__}")
        if "<locals>" in kind.__qualname__:
            modules |= _imported_modules(_package(kind))
        else:
            modules |= _reachable(kind.__module__, source)
    hashes = []
    for name in modules:
        module = source(name)
        if module is not None:
            hashes.append(f"{name} {module.code_sha256}")
    return sorted(classes) + sorted(hashes)


def _reachable(module: str, source: SourceReader) -> set[str]:
    """Return a module and the modules of its package that it imports, directly or not."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        read = source(name)
        if read is not None:
            waiting += read.imports
    return found


def _imported_modules(package: str) -> set[str]:
    """Return the modules of a package that are imported."""
    return {name for name in sys.modules if name.partition(".")[0] == package}


@functools.cache
def _source(module: str) -> ModuleSource | None:
    """Return the source of an imported module as this process first read it."""
    return _read_source(module)


def _read_source(module: str) -> ModuleSource | None:
    """Return the source of an imported module, or None without a source file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if not file or not Path(file).is_file():
        return None
    content = Path(file).read_bytes()
    if Path(file).suffix != ".py":  # a compiled module
        return ModuleSource(hashlib.sha256(content).hexdigest(), ())
    tree = ast.parse(content)
    imports = tuple(sorted(_own_imports(module, tree)))
    _remove_docstrings(tree)
    code = ast.unparse(tree)  # unlike ast.dump, hardly depends on the version of Python
    return ModuleSource(hashlib.sha256(code.encode()).hexdigest(), imports)


def _remove_docstrings(tree: ast.AST) -> None:
    """Remove the docstrings of a module, its classes, and its functions."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            # A body that was only a docstring becomes "pass".
            node.body = node.body[1:] or [ast.Pass()]


def _own_imports(module: str, tree: ast.AST) -> set[str]:
    """Return the imported modules of the same package that a module imports."""
    package = module.partition(".")[0]
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                # Without "as", the package itself is what gets a name.
                names.add(alias.name if alias.asname else alias.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            parent = _absolute_name(module, node)
            for alias in node.names:
                child = f"{parent}.{alias.name}"
                names.add(child if child in sys.modules else parent)
    return {name for name in names if name.partition(".")[0] == package and name in sys.modules}


def _absolute_name(module: str, node: ast.ImportFrom) -> str:
    """Return the full name of the module that ``from … import …`` reads."""
    if not node.level:
        return node.module or ""
    base = module.split(".")
    if not hasattr(sys.modules[module], "__path__"):
        base.pop()
    base = base[: len(base) - (node.level - 1)]
    if node.module:
        base.append(node.module)
    return ".".join(base)
