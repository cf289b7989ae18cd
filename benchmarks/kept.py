"""A long measurement's file: what has ended is in it, and a second run goes on from there."""

import json
from pathlib import Path
from typing import Any


def begun(path: Path | None, settings: dict[str, Any], part: str) -> dict[str, Any]:
    """The settings with the list `part`: what an earlier run left in the file, or nothing yet.

    Raises SystemExit where the file's figures come of other settings, or its folder is not there.
    """
    if path and not path.parent.is_dir():
        raise SystemExit(f"{path} cannot be written: there is no folder {path.parent}")
    if not (path and path.exists()):
        return settings | {part: []}
    found: dict[str, Any] = json.loads(path.read_text())
    if (known := {name: found.get(name) for name in settings}) != settings:
        raise SystemExit(f"{path} holds {part} with {known}, not with {settings}: name another file")
    return found


def keep(path: Path | None, result: dict[str, Any]) -> None:
    """Write what there is, whole or not at all."""
    if path:
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps(result, indent=1) + "\n")
        partial.replace(path)
