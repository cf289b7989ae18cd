"""The folder of a training's checkpoints: a local folder, or a local copy of one in an object store."""

import json
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfopt.artifacts import report_schema, storage

IDENTITY = "about.json"
STATE = "checkpoint"  # TensorFlow's list of complete checkpoints


class CheckpointFolder:
    """A folder that TensorFlow writes; files of an object store are downloaded once and uploaded after each save.

    Attributes:
        address: The path or address, for messages.
        path: The local path.
    """

    def __init__(self, parent: str, name: str) -> None:
        """Create the folder, or download it.

        Raises:
            OSError: If a local folder cannot be created.
            ComponentError: If the object store cannot be read.
        """
        self.parent = parent.rstrip("/")
        self.address = self.path = storage.join(self.parent, name)
        if storage.is_remote(parent):
            self.path = tempfile.mkdtemp(prefix="tfopt-")
            weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
            storage.download(self.address, Path(self.path))
        Path(self.path).mkdir(parents=True, exist_ok=True)

    def write_identity(self, identity: Mapping[str, str]) -> None:
        """Write what identifies the training."""
        Path(self.path, IDENTITY).write_text(json.dumps(identity, indent=1) + "\n")
        self.upload()

    def identities(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield path or address, and identity, of every training that has checkpoints in the parent folder."""
        if not storage.is_remote(self.parent):
            for file in sorted(Path(self.parent).glob(f"*/{IDENTITY}")):
                yield str(file), report_schema.read(file)
            return
        for name in storage.list_names(self.parent):
            address = storage.join(self.parent, f"{name}/{IDENTITY}")
            if content := storage.read_file(address):
                yield address, report_schema.decode(content, address)

    def upload(self) -> None:
        """Upload new files, the list of checkpoints after them, and then remove files that are no longer there."""
        if self.path == self.address:
            return
        stored, files = set(storage.list_names(self.address)), {file.name for file in Path(self.path).iterdir()}
        for name in sorted(files - stored - {STATE}) + sorted(files & {STATE}):
            storage.upload(Path(self.path, name), storage.join(self.address, name))
        for name in stored - files:
            storage.remove(storage.join(self.address, name))

    def remove(self) -> None:
        """Delete the checkpoints of this training."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.path != self.address:
            storage.remove(self.address)
