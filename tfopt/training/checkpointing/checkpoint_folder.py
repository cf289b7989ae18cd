"""The folder of a training's checkpoints: a local folder, or a local copy of one in an object store."""

import json
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path

from tfopt.reports import report_schema
from tfopt.storage import remote_files
from tfopt.value_types import JsonObject

IDENTITY = "about.json"
STATE = "checkpoint"  # TensorFlow's list of complete checkpoints


class CheckpointFolder:
    """A folder that TensorFlow writes; files of an object store are downloaded once and uploaded after each save.

    ``path`` is always local. ``address`` is the same, or that of the object store.
    """

    def __init__(self, parent: str, name: str) -> None:
        """Create the folder, or download it.

        Raises:
            OSError: If a local folder cannot be created.
            ComponentError: If the object store cannot be read.
        """
        self.parent = parent.rstrip("/")
        self.address = self.path = remote_files.join(self.parent, name)
        if remote_files.is_remote(parent):
            self.path = tempfile.mkdtemp(prefix="tfopt-")
            weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
            remote_files.download(self.address, Path(self.path))
        Path(self.path).mkdir(parents=True, exist_ok=True)

    def write_identity(self, identity: Mapping[str, str]) -> None:
        """Write what identifies the training."""
        Path(self.path, IDENTITY).write_text(json.dumps(identity, indent=1) + "\n")
        self.upload()

    def identities(self) -> Iterator[tuple[str, JsonObject]]:
        """Yield path or address, and identity, of every training that has checkpoints in the parent folder."""
        if not remote_files.is_remote(self.parent):
            for file in sorted(Path(self.parent).glob(f"*/{IDENTITY}")):
                yield str(file), report_schema.read(file)
            return
        for name in remote_files.list_names(self.parent):
            address = remote_files.join(self.parent, f"{name}/{IDENTITY}")
            if content := remote_files.read_file(address):
                yield address, report_schema.decode(content, address)

    def upload(self) -> None:
        """Upload new files, the list of checkpoints after them, and then remove files that are no longer there."""
        if self.path == self.address:
            return
        stored, files = set(remote_files.list_names(self.address)), {file.name for file in Path(self.path).iterdir()}
        for name in sorted(files - stored - {STATE}) + sorted(files & {STATE}):
            remote_files.upload(Path(self.path, name), remote_files.join(self.address, name))
        for name in stored - files:
            remote_files.remove(remote_files.join(self.address, name))

    def remove(self) -> None:
        """Delete the checkpoints of this training."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.path != self.address:
            remote_files.remove(self.address)
