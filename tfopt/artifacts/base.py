"""The base class of artifacts: location, metadata, content check and digest."""

import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Self

from tfopt.artifacts import notebook_html
from tfopt.errors import ComponentError

CARD = "model_card.json"
FAILURE = "failure.json"  # instead of a model that could not be made: the reason


class Artifact:
    """A file or folder with metadata.

    Attributes:
        uri: A local path, or an address such as ``gs://…`` for components that run on Beam.
        metadata: Plain values that engines store with the artifact and show in their user interfaces.
    """

    contents = "a file or folder"
    page: str | None = None  # the HTML file that engines show in their user interfaces

    def __init__(self, uri: str | Path, metadata: dict[str, object] | None = None) -> None:
        """Refer to a file or folder without checking it."""
        self.uri = str(uri)
        self.metadata: dict[str, object] = dict(metadata or {})

    def __fspath__(self) -> str:
        """Return the URI, so that ``open`` and ``Path`` accept an artifact."""
        return self.uri

    def __repr__(self) -> str:
        """Return the type and the location."""
        return f"{type(self).__name__}({self.uri!r})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the page of a report, or a table of the location and the metadata."""
        page = self.path / self.page if self.page else None
        if page and page.is_file():
            return notebook_html.frame(page)
        return notebook_html.table(type(self).__name__, ["fact", "value"], {"path": self.uri, **self._facts()}.items())

    def _facts(self) -> dict[str, object]:
        return {name: value for name, value in self.metadata.items() if isinstance(value, str | int | float)}

    @property
    def path(self) -> Path:
        """Return the local file or folder."""
        return Path(self.uri)

    @classmethod
    def open(cls, uri: str | Path, metadata: dict[str, object] | None = None) -> Self:
        """Refer to an existing artifact and check its content.

        Raises:
            ComponentError: If it does not exist, or its content does not have this type.
        """
        artifact = cls(uri, metadata)
        expected = f"{cls.__name__}: {cls.contents}"
        if not artifact.path.exists():
            fix = "check the path" if artifact.path.parent.exists() else f"{artifact.path.parent} does not exist either"
            raise ComponentError(f"{uri}: no such file or folder", expected, fix)
        check_regular(artifact.path, expected)
        artifact.check()
        return artifact

    def check(self) -> None:
        """Raise ComponentError unless the content is complete. The outputs of a step are checked too."""
        if not any(self.files()):
            received = f"{self.uri}: empty"
            raise ComponentError(received, f"{type(self).__name__}: {self.contents}", "pass one with content")

    def files(self) -> Iterator[Path]:
        """Yield all files, sorted, without the model card (which describes them)."""
        if self.path.is_file():
            yield self.path
        else:
            yield from (file for file in files_below(self.path) if file.name != CARD)

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 digest of the names and contents of `files`."""
        total = hashlib.sha256()
        for file in self.files():
            name = file.relative_to(self.path).as_posix() if file.is_relative_to(self.path) else file.suffix
            with file.open("rb") as stream:
                total.update(f"{name}\0{hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
        return total.hexdigest()

    @property
    def content_digest(self) -> str:
        """Return a SHA-256 digest of all files, with the model card, which `digest` leaves out."""
        card = self.path / CARD
        return hashlib.sha256(self.digest.encode() + (card.read_bytes() if card.is_file() else b"")).hexdigest()


class Outputs(dict[str, Artifact]):
    """The outputs of a component by name; a notebook shows each."""

    def _repr_html_(self) -> str:
        return "".join(artifact._repr_html_() for artifact in self.values())


def is_location(value: object, many: bool = False) -> bool:
    """Test for a path or an artifact, with ``many`` also for a list of them, and for an absent value."""
    if many and isinstance(value, list | tuple):
        return all(map(is_location, value))
    return value is None or isinstance(value, str | os.PathLike)


def check_links(folder: Path) -> None:
    """Raise ComponentError if a link in a folder leads out of it, or to a folder that contains the link.

    Copies of the folder would contain other files, or would not end.
    """
    check_within(folder, folder.rglob("*"))
    for _, loops, _ in _walk(folder):
        for path in loops:
            received, expected = (
                f"{path}: a link to {path.readlink()}, which contains it",
                "a folder that can be copied",
            )
            raise ComponentError(received, expected, f"remove the link: rm {shlex.quote(str(path))}")


def check_within(folder: Path, paths: Iterable[Path]) -> None:
    """Raise ComponentError if one of some paths in a folder is a link that leads out of it."""
    root = folder.resolve()
    for path in paths:
        if not path.is_symlink():
            continue
        target = Path(os.path.realpath(path))
        if not (target.is_relative_to(root) and (target.is_file() or target.is_dir())):
            fix = "if you trust the link, copy the folder with its files: cp -rL"
            raise ComponentError(f"{path}: a link to {path.readlink()}", "files in the folder of the model", fix)


def check_regular(path: Path, expected: str) -> None:
    """Raise ComponentError for a device, pipe or socket, also below a folder: reading one may never end."""
    paths = _paths_below(path) if path.is_dir() else [path]
    special = next((other for other in paths if not other.is_file() and other.exists()), None)
    if special:
        raise ComponentError(f"{special}: a device, pipe or socket", expected, "copy its content to a file")


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted. Links to folders are followed, except links to a parent folder."""
    return sorted(path for path in _paths_below(folder) if path.is_file())


def _paths_below(folder: Path) -> Iterator[Path]:
    """Yield all that is below a folder, but the folders; see `files_below`."""
    for current, _, names in _walk(folder):
        yield from (current / name for name in names)


def _walk(folder: Path) -> Iterator[tuple[Path, list[Path], list[str]]]:
    """Yield each folder with its links to parent folders, which are not followed, and the names of its files."""
    for root, folders, names in os.walk(folder, followlinks=True):
        current = Path(root)
        parents = {path.resolve() for path in (current, *current.parents)}
        loops = [current / name for name in folders if (current / name).resolve() in parents]
        folders[:] = [name for name in folders if current / name not in loops]
        yield current, loops, names
