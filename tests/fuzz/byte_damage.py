"""Damage to the bytes of a file of any format, and to the values of a JSON file; every random choice has a seed."""

import functools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Damage = Callable[[Path], None]
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d7a2146" * 8 + b"\nsize 12345\n"
HUGE = 1 << 62


def whole_file_damage() -> dict[str, Damage]:
    """Return damage that every reader can notice, by name."""
    return {
        "empty": lambda file: file.write_bytes(b""),
        "half": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2 - 3]),
        "random": lambda file: file.write_bytes(random.Random(0).randbytes(file.stat().st_size)),
        "lfs": lambda file: file.write_bytes(LFS),
        "html": lambda file: file.write_bytes(b"<!DOCTYPE html><html><body>404 Not Found</body></html>"),
        "zip": lambda file: file.write_bytes(b"PK\x03\x04" + bytes(200)),
        "missing": lambda file: file.unlink(),
        "folder": _to_folder,
        "dangling": functools.partial(_link, "nowhere"),
        "loop": functools.partial(_link, None),
        "device": functools.partial(_link, "/dev/zero"),
    }


def flips(seed: int, count: int = 3) -> Damage:
    """Return damage that flips some bytes."""

    def damage(file: Path) -> None:
        draw, content = random.Random(seed), bytearray(file.read_bytes())
        for _ in range(count):
            content[draw.randrange(len(content))] ^= draw.randrange(1, 256)
        file.write_bytes(bytes(content))

    return damage


def below(name: str, damage: Damage) -> Damage:
    """Return damage to a file in a folder."""
    return lambda folder: damage(folder / name)


def json_texts() -> dict[str, bytes]:
    """Return texts that are no report, by name."""
    return {
        "null": b"null",
        "list": b"[]",
        "number": b"1",
        "object": b"{}",
        "text": b'"text"',
        "deep": b"[" * 100_000,
        "deep object": b'{"a":' * 100_000,
        "binary": bytes(range(256)),
        "utf16": '{"a": 1}'.encode("utf-16"),
        "nan": b'{"schema_version": NaN}',
        "version": b'{"schema_version": 99}',
        "version list": b'{"schema_version": [1]}',
        "version true": b'{"schema_version": true}',
        "long number": b'{"schema_version": ' + b"1" * 5000 + b"}",
    }


def json_value(seed: int) -> Damage:
    """Return damage that replaces one value of a JSON file by one of another type, or removes it."""

    def damage(file: Path) -> None:
        draw = random.Random(seed)
        content = json.loads(file.read_text())
        places = list(_places(content))
        holder, key = draw.choice(places)
        values: list[Any] = [None, [], {}, "text", "", -1, True, [[[]]], 1e300, {"a": None}, HUGE, "\ud800"]
        if draw.random() < 0.2:
            del holder[key]
        else:
            holder[key] = draw.choice([value for value in values if type(value) is not type(holder[key])])
        file.write_text(json.dumps(content))

    return damage


def json_edit(edit: Callable[[Any], None]) -> Damage:
    """Return damage that edits the content of a JSON file."""

    def damage(file: Path) -> None:
        content = json.loads(file.read_text())
        edit(content)
        file.write_text(json.dumps(content))

    return damage


def text_edit(old: str, new: str) -> Damage:
    """Return damage that replaces a text, which must be there."""

    def damage(file: Path) -> None:
        text = file.read_text()
        assert old in text, old
        file.write_text(text.replace(old, new))

    return damage


def write(content: bytes | str) -> Damage:
    """Return damage that replaces the content."""
    return functools.partial(_write, content)


def _write(content: bytes | str, file: Path) -> None:
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def _link(target: str | None, file: Path) -> None:
    """Replace a file by a link, without a target by one to itself."""
    file.unlink()
    file.symlink_to(target or file.name)


def _to_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()
    (file / "inside.txt").write_text("text")


def _places(value: Any) -> Any:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


@dataclass(frozen=True)
class Rename:
    """Damage that moves a file or folder to another name in its folder."""

    name: str

    def __call__(self, path: Path) -> None:
        """Move it."""
        path.rename(path.parent / self.name)
