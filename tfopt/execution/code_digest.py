"""Digest the code that a component can reach, so that no cached result outlives the code that made it.

Imports are followed from the component's module, without importing anything. A module is reached by an ``import``
anywhere in a file, by its dotted name in a string (``importlib.import_module``, ``python -m``), or as part of a package
that lists its own modules (``__path__``). Templates and style sheets next to a reached module count too.
"""

import ast
import functools
import hashlib
import importlib.machinery
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tfopt
from tfopt.declaration.component import Component
from tfopt.declaration.library import find

TEMPLATES = (".j2", ".css")
LIBRARY = Path(tfopt.__file__).parent
FUNCTION = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_]\w*")  # in a parameter, such as ``metrics`` of `evaluate`
CATALOGS = ("tfopt.components.", "tfopt.pipelines.")  # loaded by name; a component that runs others declares them


def digest(component: Component, parameters: Mapping[str, Any] | None = None) -> str:
    """Return a digest of the code that the component, and each component it runs, can reach.

    It includes the modules that parameters name as ``PACKAGE.MODULE:FUNCTION``, and the others of their packages.
    """
    total = hashlib.sha256()
    for file in (*files(component), *named_modules(parameters or {})):
        total.update(file.name.encode() + file.read_bytes())
    return total.hexdigest()[:16]


def named_modules(parameters: Mapping[str, Any]) -> list[Path]:
    """List the source files of the installed modules that parameters name, without importing them."""
    texts = [text for value in parameters.values() for text in (value if isinstance(value, list | tuple) else [value])]
    named: set[Path] = set()
    for match in [FUNCTION.fullmatch(text) for text in texts if isinstance(text, str)]:
        if match and (file := _installed_file(match[1].split("."))):
            named |= set(file.parent.glob("*.py")) if "." in match[1] else {file}
    return sorted(named)


def _installed_file(names: list[str], folders: Sequence[str] | None = None) -> Path | None:
    spec = importlib.machinery.PathFinder.find_spec(names[0], folders)
    if spec is None or not names[1:]:
        return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None
    return _installed_file(names[1:], list(spec.submodule_search_locations or ()))


def files(component: Component) -> list[Path]:
    """List the source files and templates that the component, and each component it runs, can reach."""
    file = Path(component.function.__code__.co_filename).resolve()
    reached = {file}
    if not file.is_relative_to(LIBRARY) and not file.is_relative_to((LIBRARY / "components").resolve()):
        reached |= {other for other in _adjacent(file.parent) if other.suffix in (".py", *TEMPLATES)}
    _follow(reached)
    reached |= {other for module in list(reached) for other in module.parent.iterdir() if other.suffix in TEMPLATES}
    for name in component.runs:
        reached |= set(files(find(name)))
    return sorted(reached)


def _follow(reached: set[Path]) -> None:
    """Add the library's modules that the files import, directly or through each other."""
    pending = list(reached)
    while pending:
        for module in _imports(pending.pop()):
            if module not in reached:
                reached.add(module)
                pending.append(module)


@functools.cache
def _imports(file: Path) -> frozenset[Path]:
    """Return the files of the library's modules that one file names."""
    if file.suffix != ".py" or file == LIBRARY / "__init__.py":  # which loads public names lazily, for users
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
        elif isinstance(node, ast.Name) and node.id == "__path__":
            names.add(_dotted(file.parent) + ".")
    return frozenset(path for name in names if name.startswith("tfopt.") for path in _modules(name))


def _modules(name: str) -> Iterator[Path]:
    """Yield the files of a dotted name: its packages and module, or all modules of a package if it ends with a dot."""
    if name in CATALOGS:
        return
    folder = LIBRARY
    for part in name.rstrip(".").split(".")[1:]:
        if not part.isidentifier():
            return
        module = folder / f"{part}.py"
        if module.is_file():
            yield module.resolve()
            return
        folder = folder / part
        if not (folder / "__init__.py").is_file():
            return
        yield (folder / "__init__.py").resolve()
    if name.endswith("."):
        yield from (module.resolve() for module in folder.glob("*.py"))


def _dotted(folder: Path) -> str:
    return ".".join(("tfopt", *folder.relative_to(LIBRARY).parts))


def _adjacent(folder: Path) -> Iterator[Path]:
    """Yield the files of a user's folder, and of the packages in it."""
    for path in folder.iterdir():
        if path.is_file():
            yield path
        elif (path / "__init__.py").is_file():
            yield from _adjacent(path)
