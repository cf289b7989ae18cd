"""Store measurements in a folder that outlives a step, so that a step that was killed continues with them."""

import hashlib
import json
from pathlib import Path

from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.storage import remote_files
from tfopt.training.checkpointing.checkpoint_folder import CheckpointFolder

Values = dict[str, float | None]


class StoredMeasurements:
    """Measured values by name, one file for each, in a folder below ``checkpoints``; in memory only without one."""

    def __init__(self, checkpoints: str | None, identity: object) -> None:
        """Read what was stored for the same identity, whose ``repr`` names the folder."""
        name = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
        self._folder = CheckpointFolder(checkpoints, name) if checkpoints else None
        self._stored: dict[str, Values] = {}
        for file in sorted(Path(self._folder.path).glob("measured-*.json")) if self._folder else []:
            content = json.loads(file.read_text())
            self._stored[content.pop("name")] = content
        self.reused = len(self._stored)

    def get(self, name: str) -> Values | None:
        """Return the values of a measurement; None if it was not made."""
        return self._stored.get(name)

    def add(self, name: str, values: Values) -> None:
        """Store the values of a new measurement."""
        self._stored[name] = values
        if not self._folder:
            return
        file = Path(self._folder.path, f"measured-{len(self._stored):06}.json")
        unfinished = file.with_suffix(".partial")
        unfinished.write_text(json.dumps({"name": name, **values}))
        unfinished.rename(file)
        self._folder.upload()

    def remove(self) -> None:
        """Delete what was stored."""
        if self._folder:
            self._folder.remove()


def create_local_folders(checkpoints: str | None) -> list[Path]:
    """Create the folder unless it is in an object store, and return it: a child may only write to folders that exist.

    Raises:
        ComponentError: If it cannot be written.
    """
    if checkpoints is None or remote_files.is_remote(checkpoints):
        return []
    try:
        Path(checkpoints).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        received = f"checkpoints={checkpoints}: {first_line(error)}"
        raise ComponentError(received, "a folder that can be written", "name another folder") from error
    return [Path(checkpoints)]
