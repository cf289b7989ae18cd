"""Feature schema of stored examples: from a record, and from ``examples.json`` for the whole data set."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfopt.artifacts.tensor_spec import RecordSpec, TensorSpec
from tfopt.data import tf_example
from tfopt.data.tfrecords import read_records
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.reports import report_schema
from tfopt.reports.examples_manifest import ExamplesManifest, FeatureStatistics
from tfopt.storage import remote_files
from tfopt.value_types import JsonObject

MANIFEST = "examples.json"  # written by prepare_examples next to the splits
LARGEST_EXACT = 1 << 24  # the whole numbers that every float32 holds

Columns = dict[str, TensorSpec]  # stored dtype and shape of each feature: (None, length), with length None if it varies


@dataclass(frozen=True)
class SparseSpec(TensorSpec):
    """A sparse feature: a record contains two features instead, with the positions of the values and the values."""

    positions: str = ""
    values: str = ""


def stored_features(files: Sequence[str | Path]) -> Columns:
    """Return all features: names and types from the first record, varying lengths from the manifest.

    Raises:
        ComponentError: If there is no record, or the first one is not a tf.Example.
    """
    return with_manifest(feature_specs(first_record(files)), files)


def with_manifest(specs: Mapping[str, TensorSpec], files: Sequence[str | Path]) -> Columns:
    """Add features of varying length and sparse features from the manifest of the examples."""
    columns = dict(specs)
    for name, facts in _manifest_features(files).items():
        has_values = facts.min is not None or facts.distinct or facts.distinct_is_exact is False
        if facts.sparse:
            shape = (None, *(facts.shape or []))
            columns[name] = SparseSpec(facts.dtype, shape, positions=facts.sparse.positions, values=facts.sparse.values)
        elif facts.shape == [None] and has_values:
            columns[name] = TensorSpec(facts.dtype, (None, None))
    return dict(sorted(columns.items()))


def read_manifest(folder: str | Path) -> ExamplesManifest:
    """Read ``examples.json`` in a folder or at an address; return an empty manifest if there is none."""
    file = remote_files.join(str(folder), MANIFEST)
    if remote_files.is_remote(file):
        if not remote_files.list_remote_files(file):
            return ExamplesManifest()
        file = remote_files.local_copy(file)
    return report_schema.load(ExamplesManifest, Path(file)) if os.path.lexists(file) else ExamplesManifest()


def first_record(files: Sequence[str | Path]) -> bytes:
    """Return the first record of the files; raise ComponentError if there is none."""
    first = next(read_records(files), None)
    if first is None:
        where = files[0] if files else "no files"
        raise ComponentError(f"{where}: no records", "at least one tf.Example", "prepare the examples again")
    return first


def feature_specs(record: bytes) -> Columns:
    """Return the name, stored type (int64, float32, string) and length of every feature of one record that has values.

    Raises:
        ComponentError: If it is not a tf.Example.
    """
    try:
        features, types = tf_example.parse(record)
    except ValueError as error:
        raise ComponentError(
            f"a record of {len(record)} bytes that is not a tf.Example",
            "serialized tf.Example records",
            "prepare the examples with: tfopt prepare_examples",
        ) from error
    return {name: TensorSpec(types[name], (None, len(values))) for name, values in features.items()}


def check_features(stored: Mapping[str, TensorSpec], specs: Mapping[str, TensorSpec], where: str) -> Columns:
    """Return the stored dtype and shape of the features named in ``specs``, and of those that a `RecordSpec` requires.

    Raises:
        ComponentError: If a feature does not exist (with the closest names), or has another type or length.
    """
    specs = required_features(specs)
    for name, spec in specs.items():
        if name not in stored:
            raise ComponentError(
                f"{where}: no feature {name!r}", f"features {', '.join(stored)}", nearest(name, stored)
            )
        column = stored[name]
        if column.dtype != _storage(spec.dtype) and not (column.dtype == "int64" and _storage(spec.dtype) == "float32"):
            raise ComponentError(
                f"{where}: feature {name!r} is {column.dtype}", f"{spec}", "prepare the examples with that type"
            )
        if column.shape[1] is None:
            if spec.shape[1:] != (None,):
                raise ComponentError(
                    f"{where}: feature {name!r} has a varying number of values",
                    f"{spec}, the same number in each record",
                    "give the model an input of variable length, such as keras.Input((None,)), or pad the feature",
                )
            continue
        length = int(np.prod([size for size in spec.shape[1:] if size is not None], dtype=int))
        dynamic = None in spec.shape[1:]
        if column.shape[1] % length if dynamic else column.shape[1] != length:
            raise ComponentError(
                f"{where}: feature {name!r} has {column.shape[1]} values",
                f"{spec}, {length} values",
                "prepare the examples with that shape",
            )
    return {name: stored[name] for name in specs}


def required_features(specs: Mapping[str, TensorSpec]) -> dict[str, TensorSpec]:
    """Return the features that records must have for these inputs; of those that a model parses, the dense ones."""
    features: dict[str, TensorSpec] = {}
    for name, spec in specs.items():
        if isinstance(spec, RecordSpec):
            dense = {key: item for key, item in spec.features.items() if item.kind == "dense" and item.default is None}
            features |= {key: TensorSpec(item.dtype, item.shape) for key, item in dense.items()}
        else:
            features[name] = spec
    return features


def rounding_notes(
    manifest: ExamplesManifest, stored: Mapping[str, TensorSpec], inputs: Mapping[str, TensorSpec]
) -> list[str]:
    """Return a note for each stored integer feature with a range that the floats of a model's input cannot hold."""
    notes = []
    for name, spec in required_features(inputs).items():
        facts = (manifest.features or {}).get(name)
        if facts is None or name not in stored or stored[name].dtype != "int64" or "float" not in spec.dtype:
            continue
        largest = max(abs(facts.min or 0), abs(facts.max or 0))
        if largest > LARGEST_EXACT:
            notes.append(
                f"feature {name!r} has integers up to {int(largest)}, and the model takes {spec.dtype}, which rounds "
                f"those beyond {LARGEST_EXACT}: different identifiers can become one"
            )
    return notes


def check_record(record: bytes, columns: Mapping[str, TensorSpec], where: str) -> None:
    """Raise ComponentError unless a record has these features with the stored types and lengths."""
    stored = feature_specs(record)
    for name, expected in record_features(columns).items():
        spec = stored.get(name)
        if spec is None and expected.shape[1] is None:
            continue
        if spec is None:
            raise ComponentError(
                f"{where}: feature {name!r} is missing",
                f"{expected} in every record",
                "fill in missing values, or remove such records, when preparing the examples",
            )
        if spec.dtype != expected.dtype or expected.shape[1] not in (None, spec.shape[1]):
            raise ComponentError(
                f"{where}: feature {name!r} is {spec}",
                f"{expected}, as in the first record",
                "prepare the examples with one type; pad values of varying length, or use tfopt prepare_examples, "
                "which records that the length varies",
            )


def parsing_specs(columns: Mapping[str, TensorSpec]) -> JsonObject:
    """Return the features for ``tf.io.parse_example``: fixed-length, ragged for varying lengths, or sparse."""
    import tensorflow as tf

    def parser(spec: TensorSpec) -> Any:
        dtype = tf.as_dtype(spec.dtype)
        if isinstance(spec, SparseSpec):
            return tf.io.SparseFeature(spec.positions, spec.values, dtype, spec.shape[1])
        if spec.shape[1] is None:
            return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
        return tf.io.FixedLenFeature([spec.shape[1]], dtype)

    return {name: parser(spec) for name, spec in columns.items()}


def densify(values: Any) -> Any:
    """Convert a parsed tensor to a dense one; ragged rows are padded at the end with 0 or empty text."""
    import tensorflow as tf

    if isinstance(values, tf.SparseTensor):
        return tf.sparse.to_dense(values)
    if isinstance(values, tf.RaggedTensor):
        longest = tf.maximum(values.bounding_shape(axis=1), 1)
        return tf.ensure_shape(values.to_tensor(shape=tf.stack([tf.cast(-1, longest.dtype), longest])), [None, None])
    return values


def record_features(columns: Mapping[str, TensorSpec]) -> Columns:
    """Return the features as records contain them: two of varying length instead of each sparse one."""
    features: Columns = {}
    for name, spec in columns.items():
        if isinstance(spec, SparseSpec):
            features[spec.positions] = TensorSpec("int64", (None, None))
            features[spec.values] = TensorSpec(spec.dtype, (None, None))
        else:
            features[name] = spec
    return features


def _manifest_features(files: Sequence[str | Path]) -> Mapping[str, FeatureStatistics]:
    folder, _, split = (str(files[0]) if files else "").rpartition("/")[0].rpartition("/")
    return read_manifest(folder if split.startswith("Split-") else f"{folder}/{split}").features or {}


def _storage(dtype: str) -> str:
    if dtype == "string":
        return "string"
    return "float32" if "float" in dtype else "int64"
