"""The part of a model's file that prediction needs: without the optimizer's state, which is for further training.

Adam keeps two numbers for each weight, so that a model saved after its training is three times as large as what a
server needs. Exports have no such state: a comparison of file sizes would count its absence as compression.
"""

import contextlib
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tfopt.artifacts.variables_file import copy_without_optimizer

if TYPE_CHECKING:
    import h5py

ARCHIVED = "model.weights.h5"  # the weights in a ``.keras`` archive, of Keras 2 and 3
SUFFIXES = (".keras", ".h5", ".hdf5")
OPTIMIZER = ("optimizer", "optimizer_weights")  # the group of its state: in an archive, in a file of weights and layers


@contextlib.contextmanager
def without_optimizer(file: Path) -> Iterator[Path]:
    """Yield a model's file without an optimizer's state: a temporary copy, or the file itself if it has none.

    Keras files and the variables of SavedModels have such a state. Files of other formats, and damaged ones, are
    yielded as they are; loading them reports what is wrong.
    """
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        copy = Path(folder) / file.name
        written = False
        damage = (OSError, LookupError, RuntimeError, ValueError, zipfile.BadZipFile, ImportError)
        with contextlib.suppress(*damage):
            if file.suffix in SUFFIXES:
                written = _copy_archive(file, copy) if zipfile.is_zipfile(file) else _copy_weights(file, copy)
            else:
                written = copy_without_optimizer(file, copy)
        yield copy if written else file


def _copy_archive(file: Path, target: Path) -> bool:
    """Write an archive without the optimizer's state; return False if there is none."""
    weights = target.with_name(ARCHIVED)
    with zipfile.ZipFile(file) as archive:
        with archive.open(ARCHIVED) as stream:
            if not _copy_weights(stream, weights):
                return False
        with zipfile.ZipFile(target, "w") as copy:
            for entry in archive.infolist():
                if entry.filename == ARCHIVED:
                    copy.write(weights, ARCHIVED, entry.compress_type)
                else:
                    copy.writestr(entry, archive.read(entry), entry.compress_type)
    return True


def _copy_weights(source: Path | IO[bytes], target: Path) -> bool:
    """Write a file of weights without the optimizer's group; return False if it has none, or an empty one."""
    import h5py

    with h5py.File(source) as weights:
        if not any(_has_values(weights, name) for name in OPTIMIZER):
            return False
        with h5py.File(target, "w") as copy:
            copy.attrs.update(weights.attrs)
            for name in weights:
                if name not in OPTIMIZER:
                    weights.copy(name, copy)
    return True


def _has_values(weights: "h5py.File", name: str) -> bool:
    import h5py

    if not isinstance(weights.get(name, getlink=True), h5py.HardLink):  # a link may lead to another file
        return False
    group = weights[name]
    return isinstance(group, h5py.Group) and bool(
        group.visititems(lambda _, item: isinstance(item, h5py.Dataset) or None)
    )
