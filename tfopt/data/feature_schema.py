"""How the features of examples are stored: as a record shows it, and as ``examples.json`` says it of all of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.tfrecords import read_records
from tfopt.errors import ComponentError, nearest

MANIFEST = "examples.json"  # which prepare_examples writes beside the splits
KINDS = {"int64_list": "int64", "float_list": "float32", "bytes_list": "string"}

Columns = dict[str, TensorSpec]  # how each feature is stored: (None, length), the length None where it varies


@dataclass(frozen=True)
class SparseSpec(TensorSpec):
    """Rows of which only some values are stored.

    Attributes:
        positions: The feature that says where they are.
        values: The feature that holds them.
    """

    positions: str = ""
    values: str = ""

    @property
    def parts(self) -> tuple[str, str]:
        """The features that a record has in its place."""
        return self.positions, self.values


def stored_features(files: Sequence[str | Path]) -> Columns:
    """Return every feature of these examples: their first record knows names and types, their manifest what varies.

    Raises:
        ComponentError: When there is no record, or it is no tf.Example.
    """
    return with_manifest(feature_specs(first_record(files)), files)


def with_manifest(found: Mapping[str, TensorSpec], files: Sequence[str | Path]) -> Columns:
    """Add what the manifest beside the files knows: which features vary in length, and which are sparse."""
    columns = dict(found)
    for name, facts in _features_beside(files).items():
        sizes = facts.get("shape")
        some = "min" in facts or facts.get("distinct") or not facts.get("distinct_is_exact", True)  # values
        if "sparse" in facts:
            columns[name] = SparseSpec(facts["dtype"], (None, *sizes), **facts["sparse"])
        elif sizes == [None] and some:
            columns[name] = TensorSpec(facts["dtype"], (None, None))
    return dict(sorted(columns.items()))


def manifest(folder: Path) -> dict[str, Any]:
    """What ``examples.json`` in a folder says; nothing where there is none, or it is not on this machine."""
    file = folder / MANIFEST
    content: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return content


def first_record(files: Sequence[str | Path]) -> bytes:
    """Return the first record of some files.

    Raises:
        ComponentError: When there is none.
    """
    first = next(read_records(files), None)
    if first is None:
        where = files[0] if files else "no files"
        raise ComponentError(f"{where}: no records", "at least one tf.Example", "prepare the examples again")
    return first


def feature_specs(record: bytes) -> Columns:
    """Return the name, stored type (int64, float32, string) and length of every feature of one record.

    Raises:
        ComponentError: When it is no tf.Example.
    """
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        features = tf.train.Example.FromString(record).features.feature
    except DecodeError as error:
        raise ComponentError(
            f"a record of {len(record)} bytes that is no tf.Example",
            "serialized tf.Example records",
            "prepare the examples with: tfopt prepare_examples",
        ) from error
    found = {}
    for name, feature in sorted(features.items()):
        kind = feature.WhichOneof("kind")
        if kind and getattr(feature, kind).value:  # a feature without values is a missing one
            found[name] = TensorSpec(KINDS[kind], (None, len(getattr(feature, kind).value)))
    return found


def check_features(stored: Mapping[str, TensorSpec], specs: Mapping[str, TensorSpec], where: str) -> Columns:
    """Return how the features named in ``specs`` are stored.

    Raises:
        ComponentError: When one is absent (the nearest names are offered), or of another type or length.
    """
    for name, spec in specs.items():
        if name not in stored:
            raise ComponentError(
                f"{where}: no feature {name!r}", f"features {', '.join(stored)}", nearest(name, stored)
            )
        have = stored[name]
        if have.dtype != _storage(spec.dtype) and not (have.dtype == "int64" and _storage(spec.dtype) == "float32"):
            raise ComponentError(
                f"{where}: feature {name!r} is {have.dtype}", f"{spec}", "prepare the examples with that type"
            )
        if have.shape[1] is None:
            if spec.shape[1:] != (None,):
                raise ComponentError(
                    f"{where}: feature {name!r} has another number of values in each record",
                    f"{spec}, as many in each",
                    "give the model an input of any length, such as keras.Input((None,)), or pad the feature",
                )
            continue
        length = int(np.prod([size for size in spec.shape[1:] if size is not None], dtype=int))
        dynamic = None in spec.shape[1:]
        if have.shape[1] % length if dynamic else have.shape[1] != length:
            raise ComponentError(
                f"{where}: feature {name!r} has {have.shape[1]} values",
                f"{spec}, {length} values",
                "prepare the examples with that shape",
            )
    return {name: stored[name] for name in specs}


def check_record(record: bytes, columns: Mapping[str, TensorSpec], where: str) -> None:
    """Raise ComponentError unless a record has these features as they are stored in the others."""
    stored = feature_specs(record)
    for name, want in as_lists(columns).items():
        have = stored.get(name)
        if have is None and want.shape[1] is None:
            continue
        if have is None:
            raise ComponentError(
                f"{where}: feature {name!r} is missing",
                f"{want} in every record",
                "fill in missing values, or leave such records out, when preparing the examples",
            )
        if have.dtype != want.dtype or want.shape[1] not in (None, have.shape[1]):
            raise ComponentError(
                f"{where}: feature {name!r} is {have}",
                f"{want}, as in the first record",
                "prepare the examples with one type; pad what differs in length, or use tfopt prepare_examples, "
                "which notes that it varies",
            )


def parsers(columns: Mapping[str, TensorSpec]) -> dict[str, Any]:
    """What ``tf.io.parse_example`` takes: dense, ragged where the length varies, sparse where few values are stored."""
    import tensorflow as tf

    def parser(spec: TensorSpec) -> Any:
        dtype = tf.as_dtype(spec.dtype)
        if isinstance(spec, SparseSpec):
            return tf.io.SparseFeature(spec.positions, spec.values, dtype, spec.shape[1])
        if spec.shape[1] is None:
            return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
        return tf.io.FixedLenFeature([spec.shape[1]], dtype)

    return {name: parser(spec) for name, spec in columns.items()}


def dense(values: Any) -> Any:
    """Of whatever was parsed: a sparse row in full, and ragged ones filled up at their end, with 0 or no text."""
    import tensorflow as tf

    if isinstance(values, tf.SparseTensor):
        return tf.sparse.to_dense(values)
    if isinstance(values, tf.RaggedTensor):
        longest = tf.maximum(values.bounding_shape(axis=1), 1)
        return tf.ensure_shape(values.to_tensor(shape=tf.stack([tf.cast(-1, longest.dtype), longest])), [None, None])
    return values


def as_lists(columns: Mapping[str, TensorSpec]) -> Columns:
    """The same features as they are in a record: two of any length in the place of a sparse one."""
    found: Columns = {}
    for name, spec in columns.items():
        if isinstance(spec, SparseSpec):
            found[spec.positions] = TensorSpec("int64", (None, None))
            found[spec.values] = TensorSpec(spec.dtype, (None, None))
        else:
            found[name] = spec
    return found


def _features_beside(files: Sequence[str | Path]) -> Mapping[str, Any]:
    """What the manifest of the examples that the files belong to says of each feature."""
    beside = Path(files[0]).parent if files else Path()
    features: Mapping[str, Any] = manifest(beside.parent if beside.name.startswith("Split-") else beside).get(
        "features", {}
    )
    return features


def _storage(dtype: str) -> str:
    if dtype == "string":
        return "string"
    return "float32" if "float" in dtype else "int64"
