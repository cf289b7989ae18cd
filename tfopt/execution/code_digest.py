"""The code that a component's results depend on."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import tfopt
from tfopt.declaration.component import Component

CODE = (".py", ".j2", ".css")  # what a component consists of
FINDS = re.compile(r"^from tfopt\.component import .*\bfind\b", re.MULTILINE)


def digest(component: Component) -> str:
    """A digest of the component's code and the library's, so that no cached result outlives the code that made it."""
    total = hashlib.sha256()
    for file in files(component):
        total.update(file.name.encode() + file.read_bytes())
    return total.hexdigest()[:16]


def files(component: Component) -> list[Path]:
    """What lies beside the component, with packages below, and the library.

    Of the library's other components those count that it may run, which is all or none: it does so by name.
    """
    library = Path(tfopt.__file__).parent
    doors = (library / "components", library / "pipelines")
    found = set(_beside(Path(component.function.__code__.co_filename).resolve().parent))
    runs_others = any(FINDS.search(file.read_text()) for file in found if file.suffix == ".py")
    found |= {file for file in library.rglob("*") if not any(file.is_relative_to(door) for door in doors)}
    if runs_others:
        found |= set(doors[0].resolve().rglob("*"))
    return sorted(file for file in found if file.suffix in CODE)


def _beside(folder: Path) -> Iterator[Path]:
    for found in folder.iterdir():
        if found.is_file():
            yield found
        elif (found / "__init__.py").is_file():
            yield from _beside(found)
