"""Damage to data: records, arrays and tables."""

import gzip
import io
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.byte_damage import Damage, write
from tests.fuzz.runner import CANARY

GZIP_BYTES = 1 << 30


class Hostile:
    """An object whose unpickling creates the canary."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the call that unpickling makes."""
        return (eval, (f"open(__import__('os').environ[{CANARY!r}], 'w').close()",))


def record_damage(*, packed: bool) -> dict[str, Damage]:
    """Return damage to the records of a TFRecord file, plain or gzipped, by name."""

    def edited(edit: Callable[[list[bytes]], list[bytes]], frame: Callable[[bytes], bytes]) -> Damage:
        def damage(file: Path) -> None:
            data = b"".join(map(frame, edit(_records(file))))
            file.write_bytes(gzip.compress(data) if packed else data)

        return damage

    def cut(share: float, extra: int) -> Damage:
        def damage(file: Path) -> None:
            frames = [_frame(record) for record in _records(file)]
            count = int(len(frames) * share)
            data = b"".join(frames[:count]) + frames[count][:extra]
            file.write_bytes(gzip.compress(data) if packed else data)

        return damage

    def garbage_half(records: list[bytes]) -> list[bytes]:
        return [*records[: len(records) // 2], *(b"\xff\xfe garbage" for _ in records[len(records) // 2 :])]

    def lengths(value: int) -> Damage:
        return edited(lambda records: records, lambda record: struct.pack("<Q", value) + _frame(record)[8:])

    damage = {
        "cut header": cut(0.5, 5),
        "cut length": cut(0.5, 10),
        "cut body": cut(0.5, 30),
        "cut last": cut(0.99, -1),
        "garbage record": edited(lambda records: [*records[:3], b"\xff garbage", *records[4:]], _frame),
        "garbage half": edited(garbage_half, _frame),
        "all garbage": edited(lambda records: [b"\xff garbage" for _ in records], _frame),
        "empty records": edited(lambda records: [b"" for _ in records], _frame),
        "wrong checksum": edited(lambda records: records, lambda record: _frame(record)[:-1] + b"\0"),
        "half wrong checksums": _half_wrong,
        "huge length": lengths(1 << 62),
        "true huge length": edited(lambda records: records, lambda record: _header(1 << 40) + record + bytes(4)),
        "missing feature": edited(lambda records: [*records[:-1], _without(records[-1], "image")], _frame),
        "missing label": edited(lambda records: [*records[:-1], _without(records[-1], "label")], _frame),
        "other type": edited(lambda records: [*records[:-1], _retyped(records[-1])], _frame),
        "label range": edited(lambda records: [*records[:-1], _labelled(records[-1], 1 << 40)], _frame),
        "negative label": edited(lambda records: [*records[:-1], _labelled(records[-1], -1)], _frame),
    }
    if packed:
        damage |= {
            "cut gzip": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]) and None,
            "no gzip": lambda file: file.write_bytes(gzip.decompress(file.read_bytes())) and None,
            "gzip of nothing": lambda file: file.write_bytes(gzip.compress(b"")) and None,
            "bomb": lambda file: file.write_bytes(_gzip_bomb()) and None,
            "trailer": lambda file: file.write_bytes(file.read_bytes()[:-4] + b"\1\1\1\1") and None,
        }
    return damage


def npz_damage() -> dict[str, Damage]:
    """Return damage to an NPZ file, by name."""
    objects = np.array([Hostile()] * 24, object)

    def edited(edit: Callable[[dict[str, Any]], None]) -> Damage:
        def damage(file: Path) -> None:
            with np.load(file) as content:
                arrays = dict(content)
            edit(arrays)
            np.savez(file, **arrays)

        return damage

    def member(name: str, content: bytes) -> Damage:
        def damage(file: Path) -> None:
            with zipfile.ZipFile(file) as archive:
                entries = {item: archive.read(item) for item in archive.namelist()}
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for item, data in (entries | {name: content}).items():
                    archive.writestr(item, data)

        return damage

    return {
        "objects": edited(lambda arrays: arrays.update(image=objects)),
        "pickle": member("label.npy", pickle.dumps(Hostile())),
        "8 TiB": member("image.npy", _npy_header((1 << 41,), "<f4") + b"ab"),
        "negative shape": member("image.npy", _npy_header((-5, 16), "<f4") + b"ab"),
        "bomb": member("image.npy", _npy_header((1 << 27,), "<f4") + bytes(1 << 29)),
        "no array": member("image.npy", b"text"),
        "text member": member("image.txt", b"text"),
        "header code": member("image.npy", _npy_text("{'descr': __import__('os').getcwd(), 'shape': (1,)}") + b"ab"),
        "unequal": edited(lambda arrays: arrays.update(label=arrays["label"][:5])),
        "no label": edited(lambda arrays: arrays.pop("label")),
        "no rows": edited(lambda arrays: arrays.update(image=arrays["image"][:0], label=arrays["label"][:0])),
        "scalar": edited(lambda arrays: arrays.update(image=np.float32(1))),
        "complex": edited(lambda arrays: arrays.update(image=arrays["image"].astype(complex))),
        "dates": edited(lambda arrays: arrays.update(image=np.zeros(24, "datetime64[s]"))),
        "structured": edited(lambda arrays: arrays.update(image=np.zeros(24, [("x", "f4")]))),
        "traversal": member("../../escaped.npy", _npy_header((24,), "<f4") + bytes(96)),
    }


def table_damage(suffix: str) -> dict[str, Damage]:
    """Return damage to a table with the columns ``a,b,label`` of a text format, by name."""
    if suffix == "jsonl":
        row = '{"a": 0.5, "b": "word 1", "label": 1}\n'
        return {
            "broken row": write(row * 5 + '{"a": \n' + row * 5),
            "list row": write(row * 5 + "[1, 2]\n" + row * 5),
            "null row": write(row * 5 + "null\n" + row * 5),
            "all broken": write("{{{\n" * 10),
            "deep row": write(row * 5 + "[" * 100_000 + "\n" + row * 5),
            "deep value": write(row * 5 + '{"a": ' + "[" * 90_000 + "\n" + row * 5),
            "nan": write(row * 5 + row.replace("0.5", "NaN") + row * 5),
            "huge number": write(row * 5 + row.replace("0.5", "1" * 6000) + row * 5),
            "huge label": write(row * 5 + row.replace('"label": 1', '"label": 1e400') + row * 5),
            "mixed types": write(row * 5 + row.replace("0.5", '{"x": 1}') + row * 5),
            "binary": write(bytes(range(256)) * 20),
            "utf16": write((row * 10).encode("utf-16")),
            "surrogate": write(row * 5 + row.replace("word 1", "\\ud800") + row * 5),
            "one line": write("[" + ",".join([row.strip()] * 10) + "]"),
        }
    comma = "\t" if suffix == "tsv" else ","
    head, row = comma.join(("a", "b", "label")) + "\n", comma.join(("0.5", "word", "1")) + "\n"
    return {
        "header only": write(head),
        "zero bytes": write((head + row * 10).encode() + bytes(1000)),
        "unequal": write(head + row * 5 + comma.join("1234567") + "\n" + row * 5),
        "open quote": write(head + row * 5 + '"open' + row * 5),
        "huge field": write(head + row * 5 + "x" * 300_000 + row * 5),
        "binary": write(bytes(range(256)) * 20),
        "latin1": write((head + row * 9).encode() + comma.join(("1", "w\xf6rt", "1\n")).encode("latin-1")),
        "utf16": write((head + row * 10).encode("utf-16")),
        "same names": write(comma.join(("a", "a", "label")) + "\n" + row * 10),
        "no label": write(comma.join(("a", "b", "c")) + "\n" + row * 10),
        "empty names": write(comma * 2 + "\n" + row * 10),
        "wide": write(comma.join(f"c{n}" for n in range(50_000)) + "\n" + row * 3),
        "old mac": write((head + row * 10).replace("\n", "\r")),
        "inf": write(head + row * 9 + comma.join(("inf", "w", "1")) + "\n"),
        "huge label": write(head + row * 9 + comma.join(("1", "w", "9" * 400)) + "\n"),
    }


def parquet_damage() -> dict[str, Damage]:
    """Return damage to a Parquet file, by name."""

    def written(columns: Callable[[], dict[str, Any]]) -> Damage:
        def damage(file: Path) -> None:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table(columns()), file)

        return damage

    return {
        "footer size": lambda file: file.write_bytes(file.read_bytes()[:-8] + b"\xff\xff\xff\x7fPAR1") and None,
        "no magic": lambda file: file.write_bytes(file.read_bytes()[:-4]) and None,
        "header": lambda file: file.write_bytes(b"XXXX" + file.read_bytes()[4:]) and None,
        "data zeros": lambda file: file.write_bytes(b"PAR1" + bytes(200) + file.read_bytes()[204:]) and None,
        "no rows": written(lambda: {"a": [], "label": []}),
        "no columns": written(dict),
        "nested": written(lambda: {"a": [{"x": {"y": 1}}] * 5, "label": [1, 0, 1, 0, 1]}),
        "nulls": written(lambda: {"a": [None] * 5, "label": [1, 0, 1, 0, 1]}),
        "null labels": written(lambda: {"a": [1.0] * 5, "label": [None] * 5}),
        "bomb": _parquet_bomb,
        "dictionary bomb": lambda file: _write_equal_texts(file, 2000, 50 << 20),
        "list bomb": _parquet_list_bomb,
        "page of gigabytes": _declare_gigabytes,
        "bytes": written(lambda: {"a": [b"\xff\xfe"] * 5, "label": [1, 0, 1, 0, 1]}),
    }


def _parquet_bomb(file: Path) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    zeros = pa.table({"a": np.zeros(1 << 25), "label": np.zeros(1 << 25, np.int32)})
    pq.write_table(zeros, file, compression="zstd", use_dictionary=False, row_group_size=1 << 25)


def _write_equal_texts(file: Path, count: int, size: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["a" * size]))
    table = pa.table({"a": texts, "label": np.arange(count) % 2})
    pq.write_table(table, file, compression="zstd", dictionary_pagesize_limit=1 << 30)


def _parquet_list_bomb(file: Path) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    zeros = pa.array(np.zeros(100_000_000, np.int8))
    pq.write_table(pa.table({"a": pa.LargeListArray.from_arrays(pa.array([0, len(zeros)]), zeros), "label": [1]}), file)


def _declare_gigabytes(file: Path) -> None:
    """Declare 2 GiB in the header of the last page, and leave the footer as it is."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"a": [float(number) for number in range(60)], "label": [0, 1] * 30})
    pq.write_table(table, file, compression="zstd", use_dictionary=False, write_statistics=False)
    start = pq.ParquetFile(file).metadata.row_group(0).column(1).data_page_offset + 3
    content = file.read_bytes()
    file.write_bytes(content[:start] + b"\xfe\xff\xff\xff\x0f" + content[start + 2 :])


def _records(file: Path) -> list[bytes]:
    from tfopt.data.tfrecords import read_records

    return list(read_records([file]))


def _header(length: int) -> bytes:
    size = struct.pack("<Q", length)
    return size + struct.pack("<I", _masked_crc(size))


def _frame(record: bytes) -> bytes:
    return _header(len(record)) + record + struct.pack("<I", _masked_crc(record))


def _half_wrong(file: Path) -> None:
    frames = [_frame(record) for record in _records(file)]
    half = len(frames) // 2
    data = b"".join([*frames[:half], *(frame[:-4] + b"\0\0\0\0" for frame in frames[half:])])
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)


def _masked_crc(data: bytes) -> int:
    import google_crc32c

    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _example(record: bytes) -> Any:
    import tensorflow as tf

    return tf.train.Example.FromString(record)


def _without(record: bytes, name: str) -> bytes:
    example = _example(record)
    del example.features.feature[name]
    return bytes(example.SerializeToString())


def _retyped(record: bytes) -> bytes:
    example = _example(record)
    example.features.feature["image"].bytes_list.value[:] = [b"text"]
    return bytes(example.SerializeToString())


def _labelled(record: bytes, label: int) -> bytes:
    example = _example(record)
    example.features.feature["label"].int64_list.value[:] = [label]
    return bytes(example.SerializeToString())


def _gzip_bomb() -> bytes:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as stream:
        stream.write(_header(GZIP_BYTES - 16))
        for _ in range(GZIP_BYTES >> 24):
            stream.write(bytes(1 << 24))
    return packed.getvalue()


def _npy_header(shape: tuple[int, ...], dtype: str) -> bytes:
    return _npy_text(repr({"descr": dtype, "fortran_order": False, "shape": shape}))


def _npy_text(text: str) -> bytes:
    line = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(line)) + line
