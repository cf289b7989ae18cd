"""A mutant: a fault as data, and its application to a copy of the repository."""

import importlib.util
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TABLE = Path("tests", "mutants", "mutants.toml")


@dataclass(frozen=True)
class Mutant:
    """A fault in one file.

    Attributes:
        file: The file, relative to the repository.
        old: Text that occurs exactly once in it.
        new: The text that replaces it.
        breaks: What is wrong then.
        tests: The test files that find it.
    """

    file: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        """Return the file and what is wrong."""
        return f"{self.file}: {self.breaks}"

    def apply(self, tree: Path) -> None:
        """Replace the text in a copy of the repository; its compiled form, which looks as new, is removed.

        Raises:
            ValueError: If the text does not occur exactly once.
        """
        file = tree / self.file
        text = file.read_text()
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self}: {self.old!r} occurs {count} times in {self.file}; adapt {TABLE}")
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)
        file.write_text(text.replace(self.old, self.new))


def read_mutants(root: Path) -> Sequence[Mutant]:
    """Read the table of mutants of a repository."""
    with (root / TABLE).open("rb") as stream:
        entries = tomllib.load(stream)["mutant"]
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]
