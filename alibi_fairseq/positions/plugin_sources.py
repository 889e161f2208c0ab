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
    """Source of a module of a plugin.

    Attributes:
        code_sha256: hash of the syntax tree, without docstrings.
        imports: modules of the same package that it imports, also inside functions.
        classes: qualified names of its class statements outside of functions.
    """

    code_sha256: str
    imports: tuple[str, ...] = ()
    classes: frozenset[str] = frozenset()


SourceReader = Callable[[str], ModuleSource | None]


def plugin_sha256(methods: Iterable[str]) -> str | None:
    """Return the hash of the plugins' code that defines a model, or None for a model without one.

    It covers the module of each method, the modules of the same package that this one imports, and
    so on. A function that has not run may import some of them, so they are found as files, and are
    not imported for this. Comments, docstrings, and formatting do not count. A file is read once in
    a process: a later edit does not change the hash.

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
    """Return the source files of the plugins of a model, by path within their folders.

    They are the imported modules of the whole packages, such as ``my_plugin/__init__.py``, and what
    these import: a copy can be imported.
    """
    modules: set[str] = set()
    for package in {_package(kind) for kind in _plugin_classes(methods)}:
        modules |= _reachable(_imported_modules(package), _source, with_packages=True)
    files: dict[str, Path] = {}
    for name in sorted(modules):
        file = _file(name)
        if file is not None:
            package_file = "/__init__" if _is_package(file) else ""
            files[f"{name.replace('.', '/')}{package_file}{file.suffix}"] = file
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

    What a function returns can depend on its caller, so a class that was made in a function, also
    by calling ``type``, is defined by all imported modules of its package, and what these import.
    """
    classes = set()
    modules = set()
    for kind in _plugin_classes(methods):
        classes.add(f"{kind.__module__}.{kind.__qualname__}")
        module = source(kind.__module__)
        if module is not None and kind.__qualname__ in module.classes:
            modules |= _reachable({kind.__module__}, source)
        else:
            modules |= _reachable(_imported_modules(_package(kind)), source)
    hashes = []
    for name in modules:
        module = source(name)
        if module is not None:
            hashes.append(f"{name} {module.code_sha256}")
    return sorted(classes) + sorted(hashes)


def _reachable(modules: set[str], source: SourceReader, with_packages: bool = False) -> set[str]:
    """Return modules and the modules of their package that they import, directly or not.

    Args:
        modules: names of the modules.
        source: reads a module.
        with_packages: also the packages that contain a module, and what these import.
    """
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        read = source(name)
        if read is not None:
            waiting += read.imports
        if with_packages and "." in name:
            waiting.append(name.rpartition(".")[0])
    return found


def _imported_modules(package: str) -> set[str]:
    """Return the modules of a package that are imported."""
    return {name for name in sys.modules if name.partition(".")[0] == package}


@functools.cache
def _source(module: str) -> ModuleSource | None:
    """Return the source of a module as this process first read it."""
    return _read_source(module)


def _read_source(module: str) -> ModuleSource | None:
    """Return the source of a module, or None without a source file."""
    file = _file(module)
    if file is None:
        return None
    content = file.read_bytes()
    if file.suffix != ".py":  # a compiled module
        return ModuleSource(hashlib.sha256(content).hexdigest())
    tree = ast.parse(content, str(file))
    imports = tuple(sorted(_own_imports(module, tree, _is_package(file))))
    classes = frozenset(_class_names(tree))
    _remove_docstrings(tree)
    code = ast.unparse(tree)  # unlike ast.dump, hardly depends on the version of Python
    return ModuleSource(hashlib.sha256(code.encode()).hexdigest(), imports, classes)


def _file(module: str) -> Path | None:
    """Return the file of a module, or None without one.

    A module that is not imported is found at its place in the package, without running any code.
    """
    if module in sys.modules:
        file = getattr(sys.modules[module], "__file__", None)
        candidates = [Path(file)] if file else []
    else:
        candidates = []
        for place in _places(module):
            candidates += [place / "__init__.py", place.with_name(f"{place.name}.py")]
    return next((file for file in candidates if file.is_file()), None)


def _places(module: str) -> list[Path]:
    """Return the folders that a module of an imported plugin has if it is a package."""
    if module in sys.modules:
        return [Path(folder) for folder in getattr(sys.modules[module], "__path__", ())]
    parent, _, name = module.rpartition(".")
    return [folder / name for folder in _places(parent)] if parent else []


def _is_package(file: Path) -> bool:
    """Return True if the file of a module is that of a package."""
    return file.name.partition(".")[0] == "__init__"


def _remove_docstrings(tree: ast.AST) -> None:
    """Remove the docstrings of a module, its classes, and its functions."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            # A body that was only a docstring becomes "pass".
            node.body = node.body[1:] or [ast.Pass()]


def _class_names(node: ast.AST, prefix: str = "") -> set[str]:
    """Return the qualified names of the class statements in a node, except those in functions."""
    names: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            name = f"{prefix}{child.name}"
            names.add(name)
            names |= _class_names(child, f"{name}.")
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names |= _class_names(child, prefix)
    return names


def _own_imports(module: str, tree: ast.AST, is_package: bool) -> set[str]:
    """Return the modules of the same package that a module imports."""
    package = module.partition(".")[0]
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names.add(alias.name)
                if not alias.asname:  # The package itself is what gets a name.
                    names.add(alias.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            parent = _absolute_name(module, node, is_package)
            for alias in node.names:
                names.add(_module_of_name(parent, alias.name))
    return {name for name in names if name.partition(".")[0] == package}


def _module_of_name(parent: str, name: str) -> str:
    """Return the module that ``from parent import name`` reads: ``parent``, or one in it."""
    child = f"{parent}.{name}"
    if child in sys.modules:
        return child
    is_attribute = parent in sys.modules and name in vars(sys.modules[parent])
    return parent if is_attribute or _file(child) is None else child


def _absolute_name(module: str, node: ast.ImportFrom, is_package: bool) -> str:
    """Return the full name of the module that ``from … import …`` reads."""
    if not node.level:
        return node.module or ""
    base = module.split(".")
    if not is_package:
        base.pop()
    base = base[: len(base) - (node.level - 1)]
    if node.module:
        base.append(node.module)
    return ".".join(base)
