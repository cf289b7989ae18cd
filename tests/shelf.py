"""A real Beam file system with addresses that are no local path: ``shelf:///PATH`` is the local file of that path."""

from pathlib import Path

from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.localfilesystem import LocalFileSystem

SCHEME = "shelf://"


class Shelf(LocalFileSystem):
    """Beam finds it by its scheme, as it finds an object store's; like one, it has no folders to make."""

    @classmethod
    def scheme(cls):
        return "shelf"

    def has_dirs(self):
        return False

    def _list(self, dir_or_prefix):
        for found in super()._list(dir_or_prefix.removeprefix(SCHEME)):
            yield FileMetadata(SCHEME + found.path, found.size_in_bytes, found.last_updated_in_seconds)

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
        found = super().metadata(path.removeprefix(SCHEME))
        return FileMetadata(path, found.size_in_bytes, found.last_updated_in_seconds)
