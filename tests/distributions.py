"""A distribution with entry points, as pip installs one."""

from collections.abc import Mapping
from pathlib import Path

import pytest


def install(folder: Path, patch: pytest.MonkeyPatch, group: str, entries: Mapping[str, str], **modules: str) -> None:
    """Install the distribution ``others`` into a folder in the search path.

    Args:
        folder: The folder.
        patch: Undoes the change of the search path.
        group: The group of its entry points.
        entries: The objects of the entry points, as ``MODULE:ATTRIBUTE``.
        modules: The source text of its modules.
    """
    facts = folder / "others-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    patch.syspath_prepend(folder)
