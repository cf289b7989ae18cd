"""File systems for tests of remote addresses: ``objects:///PATH`` is the local file PATH."""

import errno

import fsspec
from fsspec.implementations.local import LocalFileSystem


class ObjectStore(LocalFileSystem):
    """The local files under a scheme of its own; missing folders are created, as an object store has none.

    Like HDFS it has no conditional writes, so fsspec emulates them: it asks for the file, and then writes it.
    """

    protocol = "objects"

    def __init__(self, **options):
        super().__init__(auto_mkdir=True, **options)

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.partition("://")[2] if "://" in path else path)

    def info(self, path, **options):
        """Return the facts that stores without checksums have; the modification time 0 stands for an unknown one."""
        return {name: fact for name, fact in super().info(path, **options).items() if name != "created"}


class OverwritingStore(ObjectStore):
    """Ignores the condition of a write, as S3 servers of 2023 do."""

    protocol = "overwriting"

    def pipe_file(self, path, value, mode="overwrite", **options):
        super().pipe_file(path, value, **options)


class AppendingStore(ObjectStore):
    """Refuses the condition of a write."""

    protocol = "appending"

    def pipe_file(self, path, value, mode="overwrite", **options):
        if mode != "overwrite":
            raise ValueError(f"unsupported mode {mode!r}")
        super().pipe_file(path, value, **options)


class FullStore(ObjectStore):
    """Has no room for the last file of a SavedModel."""

    protocol = "full"

    def put_file(self, source, target, *more, **options):
        if target.endswith("saved_model.pb"):
            raise OSError(errno.ENOSPC, "No space left on device")
        super().put_file(source, target, *more, **options)


for _store in (ObjectStore, OverwritingStore, AppendingStore, FullStore):
    fsspec.register_implementation(_store.protocol, _store, clobber=True)
