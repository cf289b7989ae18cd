"""Image reader: one subfolder per class; each image becomes a float feature of a fixed size, values 0 to 255."""

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from tfopt.components.prepare_examples.files import open_for_reading, relative_name
from tfopt.components.prepare_examples.parameters import Pack, Settings
from tfopt.components.prepare_examples.readers.base import Row, Source
from tfopt.components.prepare_examples.schema import number_classes
from tfopt.data import tf_example
from tfopt.errors import ComponentError
from tfopt.storage.remote_files import is_remote

MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def inspect(source: Source, settings: Settings) -> Source:
    """Determine the classes, the sorted names of the subfolders; each must have images."""
    pack, label, root, files = settings.packed_feature, settings.label, source.root, source.files
    stray = [file for file in files if "/" not in relative_name(file, root)]
    if stray:
        received = f"{stray[0]}: an image outside a class folder"
        raise ComponentError(received, "one subfolder of images per class", "move it into the folder of its class")
    classes = {relative_name(file, root).split("/")[0] for file in files}
    folders = set() if is_remote(root) else {item.name for item in Path(root).iterdir() if item.is_dir()}
    empty = sorted(name for name in folders - classes if not name.startswith((".", "_")))
    if empty:
        received = f"{root}: no images in class folder {', '.join(empty)}"
        raise ComponentError(received, "images in every class folder", "add images, or remove the folder")
    unknown = sorted(classes.difference(settings.classes)) if settings.classes else []
    if unknown:
        expected = f"the declared classes {', '.join(settings.classes)}"
        raise ComponentError(f"class folder {', '.join(unknown)}", expected, "add it to classes, or remove the folder")
    pack = check_size(pack, label, lambda: _read(next(iter(files))), root)
    return replace(
        source,
        classes=number_classes(classes, settings.classes, label),
        image=pack.shape,
        shapes={pack.name: pack.shape},
        columns=(pack.name, label),
    )


def read(file: str, source: Source) -> Iterator[Row]:
    """Yield the row of an image file; a file that cannot be read or decoded is an unusable row."""
    name = source.name(file)
    image, label = source.columns
    try:
        pixels = decode(_read(file), *source.image)
    except Exception as error:  # Pillow's decoders raise many exceptions for damaged content
        yield Row(name, 0, problem=reason(error))
        return
    row: dict[str, tf_example.Values] = {image: pixels.ravel(), label: [source.classes.index(name.split("/")[0])]}
    yield Row(name, 0, tf_example.serialize(row, {image: "float32", label: "int64"}))


def decode(content: bytes, height: int, width: int, channels: int) -> NDArray[np.float32]:
    """Return the pixels, rotated upright, with the given channels and size (bilinear, antialiased when reduced)."""
    with Image.open(io.BytesIO(content)) as opened:
        if opened.mode.startswith(("I", "F")):
            raise ValueError(f"mode {opened.mode}; 8 bits a channel are expected")
        upright = ImageOps.exif_transpose(opened)
        image = upright.convert(MODES[channels])
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image, np.float32).reshape(height, width, channels)


def check_size(pack: Pack | None, label: str, first: Callable[[], bytes], source: str) -> Pack:
    """Return ``pack`` if it is a size of images; else raise ComponentError with the size of the first one."""
    if not pack or len(pack.shape) != 3 or pack.shape[2] not in MODES:
        height, width, channels = size_of(first) or (224, 224, 3)
        received = f"pack={str(pack) if pack else None}"
        fix = f'pass pack="image={height}x{width}x{channels}", the size of the first image'
        raise ComponentError(received, "a name with height x width x channels (1, 3 or 4) for the images", fix)
    pack.check(label, pack.size, source)
    return pack


def size_of(content: Callable[[], bytes]) -> tuple[int, int, int] | None:
    """Return height, width and channels of an encoded image; None for other content."""
    try:
        with Image.open(io.BytesIO(content())) as image:
            return image.height, image.width, 1 if image.mode in ("1", "L") else 3
    except Exception:  # Pillow's decoders raise many exceptions for damaged content
        return None


def reason(error: Exception) -> str:
    """Return why an image cannot be decoded."""
    if isinstance(error, ComponentError):
        return "cannot be read"
    # Pillow's message contains a memory address, which differs in each run.
    return "no image" if "BytesIO" in str(error) else f"no image: {error or type(error).__name__}"


def _read(file: str) -> bytes:
    with open_for_reading(file) as stream:
        return stream.read()
