"""Result file of a long measurement: every finished part is stored, and a second run continues from there."""

import json
from pathlib import Path
from typing import Any


def load_results(path: Path | None, settings: dict[str, Any], part: str) -> dict[str, Any]:
    """Return the settings with the list ``part``: the content of the file of an earlier run, or an empty list.

    Raises:
        SystemExit: If the file has results of other settings, or its folder does not exist.
    """
    if path and not path.parent.is_dir():
        raise SystemExit(f"{path} cannot be written: there is no folder {path.parent}")
    if not (path and path.exists()):
        return settings | {part: []}
    results: dict[str, Any] = json.loads(path.read_text())
    if (stored := {name: results.get(name) for name in settings}) != settings:
        raise SystemExit(f"{path} holds {part} with {stored}, not with {settings}: name another file")
    return results


def save_results(path: Path | None, results: dict[str, Any]) -> None:
    """Write the results atomically; do nothing without a path."""
    if path:
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps(results, indent=1) + "\n")
        partial.replace(path)
