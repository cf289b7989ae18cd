"""What every artifact has: a place, metadata, a check of its content, a digest."""

import hashlib
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from tfopt.errors import ComponentError

CARD = "model_card.json"
FAILURE = "failure.json"  # in place of a model that could not be made: why


class Artifact:
    """A file or folder somewhere, with what is known about it.

    Attributes:
        uri: Where it is; a local path, or an address such as ``gs://…`` for components that run on Beam.
        metadata: Plain values shown by the engines' interfaces and kept with the artifact.
    """

    contents = "a file or folder"
    page: str | None = None  # the file in it that people look at in an engine's interface

    def __init__(self, uri: str | Path, metadata: dict[str, Any] | None = None) -> None:
        """Point at a place, without looking at it."""
        self.uri = str(uri)
        self.metadata: dict[str, Any] = dict(metadata or {})

    def __fspath__(self) -> str:
        """Let ``open`` and ``Path`` take the artifact itself."""
        return self.uri

    @property
    def path(self) -> Path:
        """The local file or folder."""
        return Path(self.uri)

    @classmethod
    def open(cls, uri: str | Path, metadata: dict[str, Any] | None = None) -> Self:
        """Point at something that exists and holds what this type promises.

        Raises:
            ComponentError: When it does not.
        """
        artifact = cls(uri, metadata)
        if not artifact.path.exists():
            fix = "check the path" if artifact.path.parent.exists() else f"{artifact.path.parent} does not exist either"
            raise ComponentError(f"{uri}: no such file or folder", f"{cls.__name__}: {cls.contents}", fix)
        artifact.check()
        return artifact

    def check(self) -> None:
        """Raise ComponentError unless the content is whole. A step's outputs are checked too."""
        if not any(self.files()):
            raise ComponentError(
                f"{self.uri}: empty", f"{type(self).__name__}: {self.contents}", "give one with content"
            )

    def files(self) -> Iterator[Path]:
        """Every file, sorted, without the model card (which describes them)."""
        if self.path.is_file():
            yield self.path
        else:
            yield from (file for file in below(self.path) if file.name != CARD)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the names and contents of `files`."""
        total = hashlib.sha256()
        for file in self.files():
            name = file.relative_to(self.path).as_posix() if file.is_relative_to(self.path) else file.suffix
            with file.open("rb") as stream:
                total.update(f"{name}\0{hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
        return total.hexdigest()


def below(folder: Path) -> list[Path]:
    """Every file below a folder, sorted; what lies in linked folders too, but for those that lead back up."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder, followlinks=True):
        here = Path(place)
        above = {path.resolve() for path in (here, *here.parents)}
        folders[:] = [name for name in folders if (here / name).resolve() not in above]
        found += [here / name for name in names if (here / name).is_file()]
    return sorted(found)
