"""A Beam file system for tests of remote addresses: ``objects:///PATH`` is the local file PATH."""

from pathlib import Path

from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.localfilesystem import LocalFileSystem

SCHEME = "objects://"


class ObjectStore(LocalFileSystem):
    """A file system with a scheme of its own and, like an object store, without folders."""

    @classmethod
    def scheme(cls):
        return "objects"

    def has_dirs(self):
        return False

    def _list(self, dir_or_prefix):
        for metadata in super()._list(dir_or_prefix.removeprefix(SCHEME)):
            yield FileMetadata(SCHEME + metadata.path, metadata.size_in_bytes, metadata.last_updated_in_seconds)

    def _path_open(self, path, mode, *more, **options):
        return super()._path_open(path.removeprefix(SCHEME), mode, *more, **options)

    def create(self, path, *more, **options):
        Path(path.removeprefix(SCHEME)).parent.mkdir(parents=True, exist_ok=True)
        return super().create(path.removeprefix(SCHEME), *more, **options)

    def exists(self, path):
        return super().exists(path.removeprefix(SCHEME))

    def delete(self, paths):
        super().delete([path.removeprefix(SCHEME) for path in paths])

    def metadata(self, path):
        metadata = super().metadata(path.removeprefix(SCHEME))
        return FileMetadata(path, metadata.size_in_bytes, metadata.last_updated_in_seconds)
