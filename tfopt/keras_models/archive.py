"""Archives of Keras models: checks of size, names and links before a file is read."""

import contextlib
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tfopt.error_messages import first_line
from tfopt.errors import ComponentError

MAX_UNPACKED = 64 << 20  # bytes that every archive may unpack to
MAX_RATIO = 50  # of unpacked to packed size beyond that; weights compress to a half or more
LINK = 0o120000  # the type of a symbolic link in the permissions of an entry
DAMAGED = "save it again: it may be truncated"


def read_entry(file: Path, name: str) -> bytes:
    """Return the content of an entry of a ``.keras`` file.

    Raises:
        ComponentError: If the file is refused by `check_archive`, or has no such entry.
    """
    check_archive(file)
    with _open_archive(file, f"a .keras file with {name}") as archive:
        return archive.read(name)


def check_archive(file: Path) -> None:
    """Raise ComponentError unless a ``.keras`` file is a zip archive that unpacks in its folder to a plausible size."""
    with _open_archive(file, "a .keras file, which is a zip archive") as archive:
        entries = archive.infolist()
    _check_size(sum(entry.file_size for entry in entries), file)
    for entry in entries:
        is_link = entry.external_attr >> 16 & 0o170000 == LINK
        if entry.filename.startswith("/") or ".." in Path(entry.filename).parts or is_link:
            received = f"{file}: entry {entry.filename!r}"
            raise ComponentError(received, "files with names within the archive", "do not load this file")


def check_stored_weights(file: Path) -> None:
    """Check the weights in a ``.keras`` file as `check_weights_file` does: HDF5, or of Keras 3 also an NPZ file."""
    with _open_archive(file, "a .keras file with weights") as archive:
        for name in archive.namelist():
            if name.endswith(".weights.h5"):
                # A stream of the archive would be read again from its start for each step backwards.
                with archive.open(name) as stream, tempfile.TemporaryFile() as copy:
                    shutil.copyfileobj(stream, copy)
                    check_weights_file(copy, file)
            elif name.endswith(".weights.npz"):
                with archive.open(name) as stream, zipfile.ZipFile(stream) as arrays:
                    _check_size(sum(entry.file_size for entry in arrays.infolist()), file)


@contextlib.contextmanager
def _open_archive(file: Path, expected: str) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError, NotImplementedError, RuntimeError) as error:
        raise ComponentError(f"{file}: {first_line(error)}", expected, DAMAGED) from error


def _check_size(unpacked: int, file: Path) -> None:
    """Raise ComponentError if a file declares more content than weights of its size unpack to."""
    if unpacked > MAX_UNPACKED + MAX_RATIO * file.stat().st_size:
        received = f"{file}: {file.stat().st_size} bytes that unpack to {unpacked}"
        expected = f"a model whose weights compress to 1/{MAX_RATIO} at most"
        raise ComponentError(received, expected, "save the model again; if you did not make this file, do not load it")


def check_weights_file(file: Path | IO[bytes], where: Path) -> None:
    """Check that an HDF5 file has its data itself, and not much more than its size: HDF5 may compress it.

    Links and external data would be read from other files.

    Raises:
        ComponentError: If it has not, cannot be read, or is a file of its own with weights only.
    """
    import h5py

    def check(group: Any) -> int:
        size = 0  # as declared, which is what Keras reads
        for name in group:
            link = group.get(name, getlink=True)
            item = group.get(name) if isinstance(link, h5py.HardLink) else None
            if item is None or (isinstance(item, h5py.Dataset) and (item.external or item.is_virtual)):
                text = f"{where}: data {name!r} in another file"
                raise ComponentError(text, "a model in one file", "do not load it, or save the model again")
            size += check(item) if isinstance(item, h5py.Group) else int(getattr(item, "nbytes", 0))
        return size

    try:
        with h5py.File(file) as content:
            size = check(content)
            has_layers = "model_config" in content.attrs
    except (OSError, RuntimeError, KeyError, ValueError, RecursionError) as error:
        raise ComponentError(f"{where}: {first_line(error)}", "an HDF5 file of a Keras model", DAMAGED) from error
    _check_size(size, where)
    if file == where and not has_layers:
        received = f"{where}: weights without the layers, as model.save_weights writes them"
        fix = f'build the model in Python, then model.load_weights("{where.name}") and model.save("model.keras")'
        raise ComponentError(received, "a whole model", fix)
