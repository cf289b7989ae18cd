"""What goes in: raw data, the user's code, Examples."""

from functools import cached_property
from pathlib import Path
from typing import Any, Self

from tfopt.artifacts.base import Artifact
from tfopt.errors import ComponentError


class Files(Artifact):
    """Raw data as it comes: a CSV, NPZ or TFRecord file, or a folder."""

    contents = "a data file or a folder of them"


class PythonModule(Artifact):
    """The user's Python file; one that a step wrote is ``module.py`` in a folder."""

    file = "module.py"
    contents = "a Python file, or a folder with module.py"

    @classmethod
    def open(cls, uri: str | Path, metadata: dict[str, Any] | None = None) -> Self:
        """Point at the file itself, whichever of the two was given."""
        inside = Path(uri, cls.file)
        return super().open(inside if inside.is_file() else uri, metadata)

    def check(self) -> None:
        """Raise ComponentError unless it is a ``.py`` file, or a folder that a step wrote one in."""
        given = self.path if self.path.suffix == ".py" else self.path / self.file
        if not given.is_file():
            raise ComponentError(self.uri, "a Python file (.py)", "give the path of your module")


class Examples(Artifact):
    """TFX Examples: ``Split-NAME/*`` TFRecords of tf.Example; a bare folder or file of TFRecords is one split."""

    contents = "Split-NAME/ folders of TFRecord files of tf.Example"

    @cached_property
    def splits(self) -> dict[str, list[Path]]:
        """The record files of each split, sorted."""
        if self.path.is_file():
            return {"all": [self.path]}
        found = {
            folder.name.removeprefix("Split-"): sorted(file for file in folder.iterdir() if _is_data(file))
            for folder in sorted(self.path.glob("Split-*"))
        }
        bare = sorted(file for file in self.path.iterdir() if _is_data(file) and "tfrecord" in file.name)
        return found or ({"all": bare} if bare else {})

    def split(self, name: str) -> list[Path]:
        """The record files of one split.

        Raises:
            ComponentError: When there is no such split, or it has no files.
        """
        if not self.splits.get(name):
            have = ", ".join(self.splits) or "none"
            raise ComponentError(
                f"{self.uri}: split {name!r} missing or without files",
                f"one of its splits: {have}",
                "name another split, or prepare the examples again with it",
            )
        return self.splits[name]

    def check(self) -> None:
        """Raise ComponentError unless there is at least one record file."""
        if not any(self.splits.values()):
            raise ComponentError(f"{self.uri}: no records", self.contents, "make them with: tfopt prepare_examples")


class Anomalies(Artifact):
    """What TFX's ExampleValidator or DistributionValidator found in examples: ``SchemaDiff.pb`` for each split."""

    contents = "a folder in which each split has a SchemaDiff.pb"

    @property
    def found(self) -> list[Path]:
        """One for each split that was looked at."""
        return sorted(self.path.rglob("SchemaDiff.pb"))


def _is_data(file: Path) -> bool:
    return file.is_file() and not file.name.startswith((".", "_"))
