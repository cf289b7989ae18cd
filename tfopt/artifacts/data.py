"""Input artifacts: raw data, the user's Python module, Examples."""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Self

from tfopt.artifacts.base import Artifact
from tfopt.artifacts.imported_modules import imported_files, imported_versions
from tfopt.errors import ComponentError, ExamplesError


class Files(Artifact):
    """Raw data: a table (CSV, TSV, JSON lines, Parquet), NPZ or TFRecord file, or a folder."""

    contents = "a data file or a folder of them"


class PythonModule(Artifact):
    """The user's Python file, or a folder with ``module.py`` that a step wrote."""

    file = "module.py"
    contents = "a Python file, or a folder with module.py"

    @classmethod
    def open(cls, uri: str | Path, metadata: dict[str, object] | None = None) -> Self:
        """Refer to the Python file, given its own path or that of its folder."""
        inside = Path(uri, cls.file)
        return super().open(inside if inside.is_file() else uri, metadata)

    @cached_property
    def digest(self) -> str:
        """Return the digest of the file, of the modules that it imports, and of the versions of packages."""
        modules = sorted(imported_files([self._file]))
        facts = [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in modules]
        versions = imported_versions([self._file, *modules])
        return hashlib.sha256(repr((super().digest, facts, versions)).encode()).hexdigest()

    @property
    def _file(self) -> Path:
        return self.path if self.path.suffix == ".py" else self.path / self.file

    def check(self) -> None:
        """Raise ComponentError unless it is a ``.py`` file or a folder with ``module.py``."""
        if not self._file.is_file():
            raise ComponentError(self.uri, "a Python file (.py)", "give the path of your module")


class Examples(Artifact):
    """TFX Examples: ``Split-NAME/*`` TFRecords of tf.Example; a bare folder or file of TFRecords is one split."""

    contents = "Split-NAME/ folders of TFRecord files of tf.Example"

    @cached_property
    def splits(self) -> dict[str, list[Path]]:
        """Return the sorted record files of each split."""
        if self.path.is_file():
            return {"all": [self.path]}
        splits = {
            folder.name.removeprefix("Split-"): sorted(file for file in folder.iterdir() if _is_data(file))
            for folder in sorted(self.path.glob("Split-*"))
        }
        bare = sorted(file for file in self.path.iterdir() if _is_data(file) and "tfrecord" in file.name)
        return splits or ({"all": bare} if bare else {})

    def split(self, name: str) -> list[Path]:
        """Return the record files of one split.

        Raises:
            ComponentError: If there is no such split, or it has no files.
        """
        if not self.splits.get(name):
            names = ", ".join(self.splits) or "none"
            received = f"{self.uri}: split {name!r} missing or without files"
            expected = f"one of its splits: {names}"
            raise ComponentError(received, expected, "name another split, or make it with: tfopt prepare_examples")
        return self.splits[name]

    def check(self) -> None:
        """Raise ComponentError unless there is at least one record file."""
        if not any(self.splits.values()):
            raise ExamplesError(f"{self.uri}: no records", self.contents, "make them with: tfopt prepare_examples")


class Anomalies(Artifact):
    """The anomalies that TFX's ExampleValidator or DistributionValidator reports: ``SchemaDiff.pb`` per split."""

    contents = "a folder in which each split has a SchemaDiff.pb"

    @property
    def diffs(self) -> list[Path]:
        """Return the file of each checked split."""
        return sorted(self.path.rglob("SchemaDiff.pb"))


def _is_data(file: Path) -> bool:
    return file.is_file() and not file.name.startswith((".", "_"))
