"""Digest the code that a component can reach, so that no cached result outlives the code that made it.

Imports are followed from the component's module, without importing anything. A module is reached by an ``import``
anywhere in a file, by its dotted name in a string (``importlib.import_module``, ``python -m``), or as part of a package
that lists its own modules (``__path__``). Templates and style sheets next to a reached module count too.

Of other packages that the code imports, and of Python, the version counts, and of the environment the variables that
change what TensorFlow and its kernels compute. Files of modules that a user's code imports from elsewhere count too.
"""

import dis
import functools
import hashlib
import importlib.machinery
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple, cast

import tfopt
from tfopt.artifacts.imported_modules import code_objects, imported_files, imports_of, strings_of, versions_of
from tfopt.declaration.component import Component
from tfopt.declaration.library import find
from tfopt.formatting import changes

TEMPLATES = (".j2", ".css")
LIBRARY = Path(tfopt.__file__).parent
OWN = (LIBRARY, (LIBRARY / "components").resolve())  # a link in a source checkout
FUNCTION = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_]\w*")  # in a parameter, such as ``metrics`` of `evaluate`
CATALOGS = ("tfopt.components.", "tfopt.pipelines.")  # loaded by name; a component that runs others declares them
# Variables that change results: the implementation of Keras and of kernels, their precision and order of operations.
RESULT_VARIABLES = (
    *("TF_USE_LEGACY_KERAS", "KERAS_BACKEND", "TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA"),
    *("ONEDNN_DEFAULT_FPMATH_MODE", "TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC", "XLA_FLAGS", "TF_XLA_FLAGS"),
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE"),
)
# Those of the start of this process: a step may set some for the libraries that it uses.
_ENVIRONMENT = {name: os.environ[name] for name in RESULT_VARIABLES if name in os.environ}


@dataclass(frozen=True)
class Code:
    """The code that a component can reach, and what else of the process its results depend on."""

    sources: str
    python: str
    packages: dict[str, str]  # versions of the packages that the code imports
    variables: dict[str, str]  # `RESULT_VARIABLES` of the environment

    @property
    def digest(self) -> str:
        """Return a digest of all of it."""
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()[:16]


def describe(component: Component, parameters: Mapping[str, Any] | None = None) -> Code:
    """Describe the code that the component, and each component it runs, can reach.

    It includes the modules that parameters name as ``PACKAGE.MODULE:FUNCTION``, and the others of their packages.
    """
    total, reached = hashlib.sha256(), [*files(component), *named_modules(parameters or {})]
    for file in reached:
        total.update(file.name.encode() + file.read_bytes())
    python = ".".join(map(str, sys.version_info[:2]))
    versions = versions_of(name for file in reached for name in _names(file).packages)
    return Code(total.hexdigest()[:16], python, versions, dict(sorted(_ENVIRONMENT.items())))


def differences(earlier: Code | None, now: Code) -> list[str]:
    """List how code whose digest is another one differs from earlier code; None if nothing but that is known."""
    if earlier is None:
        return ["code changed"]
    lines = ["its code changed"] if earlier.sources != now.sources else []
    lines += changes("", {"Python": earlier.python}, {"Python": now.python})
    lines += changes("package ", earlier.packages, now.packages)
    return lines + changes("variable ", earlier.variables, now.variables)


def named_modules(parameters: Mapping[str, Any]) -> list[Path]:
    """List the source files of the installed modules that parameters name, without importing them."""
    texts = [text for value in parameters.values() for text in (value if isinstance(value, list | tuple) else [value])]
    named: set[Path] = set()
    for match in [FUNCTION.fullmatch(text) for text in texts if isinstance(text, str)]:
        if match and (file := _installed_file(match[1].split("."))):
            named |= set(file.parent.glob("*.py")) if "." in match[1] else {file}
    return sorted(named | imported_files(named))


def _installed_file(names: list[str], folders: Sequence[str] | None = None) -> Path | None:
    spec = importlib.machinery.PathFinder.find_spec(names[0], folders)
    if spec is None or not names[1:]:
        return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None
    return _installed_file(names[1:], list(spec.submodule_search_locations or ()))


def files(component: Component) -> list[Path]:
    """List the source files and templates that the component, and each component it runs, can reach."""
    file = Path(component.function.__code__.co_filename).resolve()
    reached = {file}
    if not _is_own(file):
        reached |= {other for other in _adjacent(file.parent) if other.suffix in (".py", *TEMPLATES)}
        reached |= imported_files([file])
    pending = list(reached)  # imports are followed from file to file
    while pending:
        modules = _names(pending.pop()).modules - reached
        reached |= modules
        pending += modules
    folders = {module.parent for module in reached}
    reached |= {other for folder in folders for other in folder.iterdir() if other.suffix in TEMPLATES}
    for name in component.runs:
        reached |= set(files(find(name)))
    return sorted(reached)


def _is_own(file: Path) -> bool:
    return any(file.is_relative_to(folder) for folder in OWN)


class Names(NamedTuple):
    """Modules of the library, and top-level names of other packages, that a file names."""

    modules: frozenset[Path]
    packages: frozenset[str]


@functools.cache
def _names(file: Path) -> Names:
    """Return what a file imports, or names in strings, once for each file."""
    strings: set[str] = set()
    imported: set[str] = set()
    for code in code_objects(_compiled(file)) if file.suffix == ".py" else ():
        strings |= set(strings_of(code.co_consts))
        imported |= {name for level, name in imports_of(code) if not level}
        reads = (step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_NAME", "LOAD_GLOBAL"))
        if "__path__" in code.co_names and "__path__" in reads and file.is_relative_to(LIBRARY):
            strings.add(".".join(("tfopt", *file.parent.relative_to(LIBRARY).parts, "")))
    if file == LIBRARY / "__init__.py":  # which loads public names lazily, for users
        strings, imported = set(), set()
    names = {name for name in imported | strings if name.startswith("tfopt.")}
    packages = frozenset(name.partition(".")[0] for name in imported) - {"tfopt"}
    return Names(frozenset(path for name in names for path in _modules(name)), packages)


def _compiled(file: Path) -> CodeType:
    """Return the bytecode of a file, which takes a tenth of the time of a syntax tree.

    That of the library comes from Python's cache, where imports take it from; a user's file may have changed since.
    """
    if _is_own(file):
        loader = importlib.machinery.SourceFileLoader(file.stem, str(file))
        return cast(CodeType, loader.get_code(file.stem))
    return compile(file.read_bytes(), file, "exec", dont_inherit=True)


@functools.cache
def _modules(name: str) -> list[Path]:
    """List the files of a dotted name: its packages and module, or all modules of a package if it ends with a dot."""
    return list(_find_modules(name))


def _find_modules(name: str) -> Iterator[Path]:
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


def _adjacent(folder: Path) -> Iterator[Path]:
    """Yield the files of a user's folder, and of the packages in it."""
    for path in folder.iterdir():
        if path.is_file():
            yield path
        elif (path / "__init__.py").is_file():
            yield from _adjacent(path)
