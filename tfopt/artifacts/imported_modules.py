"""Find what Python code imports, without running it: modules outside of installed packages, and versions of these."""

import csv
import dis
import functools
import glob
import importlib.util
import modulefinder
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from types import CodeType
from typing import NamedTuple

INSTALLED = ("site-packages", "dist-packages")  # folders whose content has versions
STANDARD = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")]
LONGEST = 200  # characters of a name; file systems have a limit
NAME = re.compile(rf"[\w./-]{{1,{LONGEST}}}")  # of a module or folder
PARENTS = 3  # folders above a file, whose names a file adds to the search path most often
DEPTH = 3  # strings that name one folder: Path(__file__).parent / "a" / "b"
MOST_FOLDERS = 1000
LOADERS = {"import_module", "__import__", "find_spec", "walk_packages", "iter_modules"}  # of modules by their names
MOST_PACKAGES = 3  # with one top-level name: of two versions of TensorFlow, but not the many of google


class Scan(NamedTuple):
    """Names in a Python file: what it imports, and strings that may be modules or folders."""

    imports: frozenset[tuple[int, str]]  # the level of a relative import, 0 for an absolute one; the dotted name
    texts: frozenset[str]
    loads_by_name: bool


def imported_files(files: Iterable[Path]) -> set[Path]:
    """Return the files outside of installed packages that Python files import, and that those import in turn.

    Modules are looked up on the search path and next to each file; also in the parents of a file, and in the folders
    that its strings name, if it imports ``sys`` or ``site``, which add folders to the search path. A string that is the
    path of a Python file there is one that code runs: ``exec``, ``runpy``, ``spec_from_file_location``.
    """
    start = {file.resolve() for file in files}
    reached, pending = set(start), list(start)
    while pending:
        paths = {path.resolve() for path in _imported_by(pending.pop())} - reached
        modules = {path for path in paths if path.is_file() and not _is_installed(path)}
        reached |= modules
        pending += modules
    return reached - start


def imported_versions(files: Iterable[Path]) -> dict[str, str]:
    """Return the versions of the installed packages that Python files import, by name."""
    return versions_of(name.partition(".")[0] for file in files for level, name in scan(file).imports if not level)


def versions_of(modules: Iterable[str]) -> dict[str, str]:
    """Return the versions of the installed packages that have some top-level modules, by name."""
    listed = [packages_by_name().get(name, ()) for name in modules]
    packages = {package for names in listed if len(names) <= MOST_PACKAGES for package in names}
    return {package: _version(package) for package in sorted(packages)}


@functools.cache
def _version(package: str) -> str:
    return metadata.version(package)


@functools.lru_cache(4096)
def _scan(file: Path, _status: tuple[int, ...]) -> Scan:
    """Scan a file with a status. A damaged one imports nothing: the step that runs it reports it."""
    try:
        code = compile(file.read_bytes(), file, "exec", dont_inherit=True) if file.suffix == ".py" else None
    except (OSError, SyntaxError, ValueError, RecursionError):
        code = None
    parts = list(code_objects(code)) if code else []
    texts = frozenset(text for part in parts for text in strings_of(part.co_consts) if NAME.fullmatch(text))
    names = {name for part in parts for name in part.co_names}
    return Scan(frozenset(item for part in parts for item in imports_of(part)), texts, bool(names & LOADERS))


def scan(file: Path) -> Scan:
    """Scan a Python file as it is now, without Python's cache of bytecode."""
    status = file.stat()
    return _scan(file, (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino))


def _imported_by(file: Path) -> Iterator[Path]:
    """Yield where the modules that a file imports may be."""
    imports, texts, loads_by_name = scan(file)
    absolute = {name for level, name in imports if not level}
    folders = [file.parent]
    scripts = [text for text in texts if text.endswith(".py")]
    if scripts or absolute & {"sys", "site"}:
        folders = _named_folders([*list(file.parents)[:PARENTS], Path.cwd()], texts)
    yield from (folder / script.lstrip("/") for folder in folders for script in scripts)
    yield from map(Path, scripts)
    for name in absolute | (texts if loads_by_name else frozenset()):
        yield from _find(name, folders)
    for level, name in imports:
        if level and level <= len(file.parents):
            yield from _within(file.parents[level - 1], name.split("."))
    if loads_by_name and (file.parent / "__init__.py").is_file():  # its names may be computed
        yield from file.parent.glob("*.py")


def _named_folders(start: list[Path], texts: Iterable[str]) -> list[Path]:
    """Return folders, and those below them that strings name; ``/lib`` may follow ``dirname(__file__)``."""
    folders, reached = list(start), set(start)
    names = {name for text in texts if text.strip("./") for name in (text, text.lstrip("/"))}
    level = folders
    for _ in range(DEPTH):
        below = {folder / name for folder in level for name in names if (folder / name).is_dir()} - reached
        level = sorted(below)[: MOST_FOLDERS - len(folders)]
        reached |= below
        folders = [*folders, *level]
    return folders


def _find(name: str, folders: Iterable[Path]) -> Iterator[Path]:
    """Yield where a module with an absolute name may be: its packages and its file."""
    top, *parts = name.split(".")
    if top == "tfopt" or not top.isidentifier() or len(top) > LONGEST or top in sys.stdlib_module_names:
        return
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):  # of modules that were made in memory
        spec = None
    if spec and spec.origin:
        yield Path(spec.origin)
    for place in [*(spec.submodule_search_locations or () if spec else ()), *(folder / top for folder in folders)]:
        yield Path(f"{place}.py")
        yield from _within(Path(place), parts)


def _within(folder: Path, parts: Iterable[str]) -> Iterator[Path]:
    """Yield where a module of a package may be."""
    yield folder / "__init__.py"
    for part in parts:
        if not folder.is_dir() or len(part) > LONGEST:
            return
        yield from (folder / f"{part}.py", *folder.glob(f"{glob.escape(part)}.*.so"))
        folder = folder / part
        yield folder / "__init__.py"


def _is_installed(file: Path) -> bool:
    return any(name in file.parts for name in INSTALLED) or any(map(file.is_relative_to, STANDARD))


@functools.cache
def packages_by_name() -> dict[str, list[str]]:
    """Return what `importlib.metadata.packages_distributions` does, in a fifth of its time.

    It creates objects of all installed files: 0.6 s at the start of each run.
    """
    packages: dict[str, list[str]] = {}
    for distribution in metadata.distributions():
        declared = (distribution.read_text("top_level.txt") or "").split()
        names = declared or _modules_of(distribution)
        if names and (package := _package_name(distribution)):
            for name in names:
                packages.setdefault(name, []).append(package)
    return packages


def _modules_of(distribution: metadata.Distribution) -> set[str]:
    """Return the top-level names of a package's Python files."""
    record = distribution.read_text("RECORD")
    files = [row[0] for row in csv.reader((record or "").splitlines()) if row] or map(str, distribution.files or ())
    return {file.removesuffix(".py").partition("/")[0] for file in files if file.endswith(".py")}


def _package_name(distribution: metadata.Distribution) -> str:
    """Return the name of a package without parsing the rest of its metadata, such as its description."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    match = re.search(r"^Name: *(.+?) *$", text, re.MULTILINE)
    return match[1] if match else ""


def code_objects(code: CodeType) -> Iterator[CodeType]:
    """Yield code and all code in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_objects(constant)


def strings_of(constants: Iterable[object]) -> Iterator[str]:
    """Yield the strings of constants; the compiler folds some into tuples and sets."""
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple | frozenset):
            yield from strings_of(constant)


def imports_of(code: CodeType) -> Iterator[tuple[int, str]]:
    """Yield the names that the code imports, and those of what it imports from them, with the level of each."""
    if dis.opmap["IMPORT_NAME"] not in code.co_code[::2]:
        return
    for kind, details in modulefinder.ModuleFinder().scan_opcodes(code):
        if kind in ("absolute_import", "relative_import"):
            level, imported, module = details if kind == "relative_import" else (0, *details)
            yield from ((level, f"{module}.{name}".strip(".")) for name in ("", *(imported or ())))
