"""Rewrite SavedModels and Keras archives so that the same model has the same bytes in every process.

TensorFlow numbers functions, tables and captured inputs with a counter of the process, has random UUIDs in layers and
in ``fingerprint.pb``; Keras stores dates and addresses of objects. Nothing of this changes what a model computes.
"""

import hashlib
import json
import re
import shutil
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip archive can store
SHARED = re.compile(rb'("shared_object_id": )(\d+)')  # Keras 3 stores the address of an object
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Not after a colon: there it is the index of an output.
NUMBER = re.compile(rf"{UUID.pattern}|(?<![0-9A-Za-z:])\d+(?![0-9A-Za-z])|(?<=key_value_init)\d+")
# Where TensorFlow appends the counter, by field or attribute; names of backward functions contain those of others.
# `compile_xla` appends _compiled.
COUNTED = {
    "tensorflow.OpDef.name": re.compile(r"(?:.*__backward_.*_(\d+))?.*_(\d+)(?:_rewritten|_compiled)*"),
    "tensorflow.NodeDef.name": re.compile(r".*key_value_init(\d+)(?:/.*)?"),
    "_user_specified_name": re.compile(r"(\d+)"),  # of a captured tensor
    "shared_name": re.compile(r"(?:table_)?(\d+)"),
    "_gradient_op_type": re.compile(r"\w+-(\d+)"),
}
# Attributes with names that TensorFlow made; others may have text of the user.
NAMES = {*COUNTED, "_class", "api_implements", "backward_function_name", "forward_function_name"}
KEYS = {  # maps whose keys are names in the graph
    "tensorflow.FunctionDef.ret",
    "tensorflow.FunctionDef.control_ret",
    "tensorflow.SavedObjectGraph.concrete_functions",
}
# Names that users see or that files have, and large messages without names.
UNCHANGED = {
    "tensorflow.MetaGraphDef.meta_info_def",
    "tensorflow.AttrValue.shape",
    "tensorflow.AttrValue.tensor",
    "tensorflow.AttrValue.ListValue.shape",
    "tensorflow.AttrValue.ListValue.tensor",
    "tensorflow.SavedObject.children",
    "tensorflow.SavedObject.variable",
    "tensorflow.SavedObject.user_object",
    "tensorflow.SavedObject.asset",
    "tensorflow.SavedFunction.function_spec",
    "tensorflow.SavedConcreteFunction.canonicalized_input_signature",
    "tensorflow.SavedConcreteFunction.output_signature",
    "tensorflow.SavedBareConcreteFunction.argument_keywords",
    "tensorflow.SavedBareConcreteFunction.function_spec",
}


def make_saved_model_reproducible(folder: Path) -> None:
    """Rewrite ``saved_model.pb`` with numbers that follow from its content, and remove ``fingerprint.pb``.

    The numbers differ from those of other models, because TensorFlow has one function of each name in a process.
    """
    file = folder / "saved_model.pb"
    content = file.read_bytes()
    total = hashlib.sha256(_renumbered(content, 0))
    for variables in sorted(folder.glob("variables/*")):
        with variables.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    file.write_bytes(_renumbered(content, int(total.hexdigest()[:10], 16)))
    (folder / "fingerprint.pb").unlink(missing_ok=True)


def make_archive_reproducible(file: Path) -> None:
    """Rewrite a ``.keras`` file with a fixed date and order, and with numbers instead of addresses."""
    target = file.with_name(f".{file.name}")
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(target, "w") as copy:
        for entry in sorted(archive.infolist(), key=lambda entry: entry.filename):
            fixed = zipfile.ZipInfo(entry.filename, DATE)
            fixed.compress_type, fixed.external_attr = entry.compress_type, entry.external_attr
            if entry.filename == "metadata.json":
                metadata = json.loads(archive.read(entry)) | {"date_saved": "1980-01-01@00:00:00"}
                copy.writestr(fixed, json.dumps(metadata))
            elif entry.filename == "config.json":
                copy.writestr(fixed, _renumber_shared(archive.read(entry)))
            else:
                fixed.file_size = entry.file_size  # decides whether the entry needs 64-bit sizes
                with archive.open(entry) as source, copy.open(fixed, "w") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
    target.replace(file)


def _renumber_shared(config: bytes) -> bytes:
    numbers: dict[bytes, int] = {}
    return SHARED.sub(lambda match: match[1] + b"%d" % numbers.setdefault(match[2], len(numbers)), config)


def _renumbered(content: bytes, base: int) -> bytes:
    """Return a serialized SavedModel whose counters start at ``base``, and whose UUIDs follow from it."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as Proto

    proto = Proto.FromString(content)
    for meta in proto.meta_graphs:
        _renumber(meta, base)
    return bytes(proto.SerializeToString(deterministic=True))


def _renumber(meta_graph: Any, base: int) -> None:
    counters: set[str] = set()
    uuids: dict[str, None] = {}  # in the order of their places

    def collect(place: str, text: str) -> str:
        pattern = COUNTED.get(place)
        if pattern and (match := pattern.fullmatch(text)):
            counters.update(number for number in match.groups() if number)
        uuids.update(dict.fromkeys(UUID.findall(text)))
        return text

    meta_graph.graph_def.library.function.sort(key=_creation_order)
    _map_names(meta_graph, collect)
    new = {old: str(base + place) for place, old in enumerate(sorted(counters, key=int))}
    new |= {old: str(uuid.UUID(int=(base << 32) + place)) for place, old in enumerate(uuids)}
    _map_names(meta_graph, lambda _, text: NUMBER.sub(lambda match: new.get(match[0], match[0]), text))


def _creation_order(function: Any) -> tuple[str, int]:
    """Return a key to sort functions of one name as they were made; TensorFlow has ``f_100`` before ``f_99``."""
    name = function.signature.name.rstrip("0123456789")
    return name, int(function.signature.name.removeprefix(name) or 0)


def _map_names(message: Any, change: Callable[[str, str], str], attribute: str = "") -> None:
    """Replace the names in a message by ``change(field or attribute, name)``."""
    for field, value in message.ListFields():
        if field.full_name in UNCHANGED:
            continue
        inner = field.message_type
        if inner and inner.GetOptions().map_entry:
            _map_entries(field, value, change)
        elif inner:
            for item in value if field.label == field.LABEL_REPEATED else [value]:
                _map_names(item, change, attribute)
        elif field.type == field.TYPE_STRING and field.label == field.LABEL_REPEATED:
            value[:] = [change(field.full_name, text) for text in value]
        elif field.type == field.TYPE_STRING:
            setattr(message, field.name, change(field.full_name, value))
        elif field.full_name == "tensorflow.AttrValue.s" and attribute in NAMES:
            message.s = change(attribute, value.decode()).encode()
        elif field.full_name == "tensorflow.AttrValue.ListValue.s" and attribute in NAMES:
            value[:] = [change(attribute, text.decode()).encode() for text in value]


def _map_entries(field: Any, entries: Any, change: Callable[[str, str], str]) -> None:
    for key in sorted(entries):
        if isinstance(entries[key], str):
            entries[key] = change(field.full_name, entries[key])
        elif field.message_type.fields_by_name["value"].message_type:
            _map_names(entries[key], change, key if isinstance(key, str) else "")
        name = change(field.full_name, key) if field.full_name in KEYS else key
        if name != key:
            value = entries.pop(key)
            if isinstance(value, str):
                entries[name] = value
            else:
                entries[name].CopyFrom(value)
