"""Feature schema of stored examples: from a record, and from ``examples.json`` for the whole data set."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tfopt.artifacts.tensor_spec import RecordSpec, TensorSpec, describe_specs
from tfopt.data import tf_example
from tfopt.data.tfrecords import read_records
from tfopt.error_messages import nearest
from tfopt.errors import ExamplesError
from tfopt.reports import report_schema
from tfopt.reports.examples_manifest import ExamplesManifest
from tfopt.storage import remote_files
from tfopt.value_types import JsonObject

MANIFEST = "examples.json"  # written by prepare_examples next to the splits
IMAGE_RANK = 4  # records, rows, columns, channels
LABEL = "label"  # the label feature of examples whose manifest does not name another one
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
        ExamplesError: If there is no record, or the first one is not a tf.Example.
    """
    return with_manifest(feature_specs(first_record(files)), files)


def with_manifest(specs: Mapping[str, TensorSpec], files: Sequence[str | Path]) -> Columns:
    """Add features of varying length and sparse features from the manifest of the examples."""
    columns = dict(specs)
    for name, facts in (_manifest_of(files).features or {}).items():
        has_values = facts.min is not None or facts.distinct or facts.distinct_is_exact is False
        if facts.sparse:
            shape = (None, *(facts.shape or []))
            columns[name] = SparseSpec(facts.dtype, shape, positions=facts.sparse.positions, values=facts.sparse.values)
        elif facts.shape == [None] and has_values:
            columns[name] = TensorSpec(facts.dtype, (None, None))
    return dict(sorted(columns.items()))


def label_of(files: Sequence[str | Path]) -> str:
    """Return the name of the label feature of examples, from their manifest."""
    return _manifest_of(files).label or LABEL


def read_manifest(folder: str | Path) -> ExamplesManifest:
    """Read ``examples.json`` in a folder or at an address; return an empty manifest if there is none."""
    file = remote_files.join(str(folder), MANIFEST)
    if remote_files.is_remote(file):
        if not remote_files.list_remote_files(file):
            return ExamplesManifest()
        file = remote_files.local_copy(file)
    return report_schema.load(ExamplesManifest, Path(file)) if os.path.lexists(file) else ExamplesManifest()


def first_record(files: Sequence[str | Path]) -> bytes:
    """Return the first record of the files; raise ExamplesError if there is none."""
    first = next(read_records(files), None)
    if first is None:
        where = files[0] if files else "no files"
        fix = "prepare the examples again with: tfopt prepare_examples"
        raise ExamplesError(f"{where}: no records", "at least one tf.Example", fix)
    return first


def feature_specs(record: bytes) -> Columns:
    """Return the name, stored type (int64, float32, string) and length of every feature of one record that has values.

    Raises:
        ExamplesError: If it is not a tf.Example.
    """
    try:
        features, types = tf_example.parse(record)
    except ValueError as error:
        received = f"a record of {len(record)} bytes that is not a tf.Example"
        expected = "serialized tf.Example records"
        raise ExamplesError(received, expected, "prepare the examples with: tfopt prepare_examples") from error
    return {name: TensorSpec(types[name], (None, len(values))) for name, values in features.items()}


def match_features(
    specs: Mapping[str, TensorSpec], stored: Mapping[str, TensorSpec], label: str
) -> dict[str, TensorSpec]:
    """Return the inputs of a model with the features that feed them, which usually have their names.

    If a model has a single input, and no feature has its name, the only feature of its type and shape feeds it. The
    label does not.
    """
    matched = dict(specs)
    name, spec = next(iter(specs.items()), ("", None))
    if spec is None or len(specs) > 1 or isinstance(spec, RecordSpec) or name in stored:
        return matched
    fitting = _fitting(spec, stored, label)
    if len(fitting) == 1:
        matched[name] = replace(spec, feature=fitting[0])
        _log_match(name, fitting[0], str(spec))
    return matched


@cache
def _log_match(name: str, feature: str, spec: str) -> None:
    """Log once in each process, not for each file."""
    logging.getLogger(__name__).info("input %r gets feature %r, the only one that fits %s", name, feature, spec)


def _fitting(spec: TensorSpec, stored: Mapping[str, TensorSpec], label: str) -> list[str]:
    """Return the features besides the label that could feed an input: those of its own type if there are any."""
    if spec.shape[1:].count(None) > 1:  # the number of values says nothing about such sizes
        return []
    parts = {part for each in stored.values() if isinstance(each, SparseSpec) for part in (each.positions, each.values)}
    fitting = {
        name: column
        for name, column in stored.items()
        if name not in {label, *parts} and _misfit(name, column, spec) is None
    }
    exact = [name for name, column in fitting.items() if column.dtype == _storage(spec.dtype)]
    return exact or list(fitting)


def check_features(stored: Mapping[str, TensorSpec], specs: Mapping[str, TensorSpec], where: str) -> Columns:
    """Return the stored dtype and shape of the features that feed ``specs``, and of those that a `RecordSpec` requires.

    Raises:
        ExamplesError: If a feature does not exist (with the closest names), or has another type or length.
    """
    specs = required_features(specs)
    for name, spec in specs.items():
        if name not in stored:
            refuse_parts(specs, stored, where)
            raise ExamplesError(
                f"{where}: no feature {name!r}, {spec}",
                f"a feature of that name; there are {describe_specs(stored)}",
                _how_to_prepare(name, spec, stored) or nearest(name, stored),
            )
        if misfit := _misfit(name, stored[name], spec):
            refuse_parts(specs, stored, where)  # a part may have the name of the whole
            received, expected, fix = misfit
            raise ExamplesError(f"{where}: {received}", expected, fix)
    return {name: stored[name] for name in specs}


def refuse_parts(specs: Mapping[str, TensorSpec], stored: Mapping[str, TensorSpec], where: str) -> None:
    """Raise ExamplesError if inputs that no feature feeds are the parts of a sparse or ragged tensor."""
    rest = {name: spec for name, spec in specs.items() if name not in stored or _misfit(name, stored[name], spec)}
    vectors = [name for name, spec in rest.items() if spec.shape == (None,)]
    whole = {name: spec for name, spec in rest.items() if spec.dtype == "int64"}
    sizes: dict[tuple[int | None, ...], str] = {
        spec.shape: name for name, spec in whole.items() if len(spec.shape) == 1 and spec.shape[0]
    }
    indices = [name for name, spec in whole.items() if len(spec.shape) == 2 and spec.shape[1:] in sizes]
    if vectors and indices:
        kind, parts = "sparse", [indices[0], vectors[0], sizes[whole[indices[0]].shape[1:]]]
    else:
        kind, parts = "ragged", next(([name, f"{name}_1"] for name in vectors if {name, f"{name}_1"} <= {*vectors}), [])
    if parts:
        raise ExamplesError(
            f"{where}: inputs {', '.join(parts)} are the parts of one {kind} tensor, which no example contains",
            "an input with a row for each example",
            "pass the Keras file, whose sparse and ragged inputs become dense; or export a signature with a dense "
            f"input that makes it {kind} (tf.sparse.from_dense, tf.RaggedTensor.from_tensor) or that parses records",
        )


def _misfit(name: str, column: TensorSpec, spec: TensorSpec) -> tuple[str, str, str] | None:
    """Return the three parts of the error if a feature cannot feed an input; None if it can."""
    if column.dtype != _storage(spec.dtype) and not (column.dtype == "int64" and _storage(spec.dtype) == "float32"):
        fix = _how_to_decode(name, spec, {name: column}) or "prepare the examples with that type"
        return f"feature {name!r} is {column.dtype}", f"{spec}", fix
    if column.shape[1] is None:
        if spec.shape[1:] == (None,):
            return None
        return (
            f"feature {name!r} has a varying number of values",
            f"{spec}, the same number in each record",
            "give the model an input of variable length, such as keras.Input((None,)), or pad the feature",
        )
    length = int(np.prod([size for size in spec.shape[1:] if size is not None], dtype=int))
    dynamic = None in spec.shape[1:]
    if column.shape[1] % length if dynamic else column.shape[1] != length:
        expected = f"{spec}, {length} values"
        return f"feature {name!r} has {column.shape[1]} values", expected, "prepare the examples with that shape"
    return None


def _how_to_prepare(name: str, spec: TensorSpec, stored: Mapping[str, TensorSpec]) -> str | None:
    """Return how `prepare_examples` makes the feature ``name`` of other features; None if there is no obvious way."""
    if fitting := _fitting(spec, stored, ""):
        return f"if it is {' or '.join(fitting)}, run: tfopt prepare_examples --rename {fitting[0]}={name}"
    columns = sum(column.dtype != "string" and column.shape[1] == 1 for column in stored.values()) - 1
    if columns and "float" in spec.dtype and columns == np.prod([size or 0 for size in spec.shape[1:]]):
        return f"to join all columns but the label, run: tfopt prepare_examples --pack {name}={_sizes(spec)}"
    return _how_to_decode(name, spec, stored)


def _how_to_decode(name: str, spec: TensorSpec, stored: Mapping[str, TensorSpec]) -> str | None:
    texts = [key for key, column in stored.items() if column.dtype == "string"]
    if not texts or len(spec.shape) != IMAGE_RANK or spec.dtype == "string":
        return None
    return f"if {texts[0]!r} has encoded images, run: tfopt prepare_examples --pack {name}={_sizes(spec)}"


def _sizes(spec: TensorSpec) -> str:
    return "x".join(str(size or "SIZE") for size in spec.shape[1:])


def required_features(specs: Mapping[str, TensorSpec]) -> dict[str, TensorSpec]:
    """Return the features that records must have for these inputs; of those that a model parses, the dense ones."""
    features: dict[str, TensorSpec] = {}
    for name, spec in specs.items():
        if isinstance(spec, RecordSpec):
            dense = {key: item for key, item in spec.features.items() if item.kind == "dense" and item.default is None}
            features |= {key: TensorSpec(item.dtype, item.shape) for key, item in dense.items()}
        else:
            features[spec.feature or name] = spec
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
    """Raise ExamplesError unless a record has these features with the stored types and lengths."""
    stored, features = feature_specs(record), dict[str, TensorSpec]()
    for name, spec in columns.items():
        if isinstance(spec, SparseSpec):  # a record contains two features of varying length
            features[spec.positions] = TensorSpec("int64", (None, None))
            features[spec.values] = TensorSpec(spec.dtype, (None, None))
        else:
            features[name] = spec
    for name, expected in features.items():
        recorded = stored.get(name)
        if recorded is None and expected.shape[1] is None:
            continue
        if recorded is None:
            fix = "fill in missing values, or remove such records, when preparing the examples"
            raise ExamplesError(f"{where}: feature {name!r} is missing", f"{expected} in every record", fix)
        if recorded.dtype != expected.dtype or expected.shape[1] not in (None, recorded.shape[1]):
            fix = (
                "prepare the examples with one type; pad values of varying length, or use tfopt prepare_examples, "
                "which records that the length varies"
            )
            raise ExamplesError(f"{where}: feature {name!r} is {recorded}", f"{expected}, as in the first record", fix)


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


def _manifest_of(files: Sequence[str | Path]) -> ExamplesManifest:
    folder, _, split = (str(files[0]) if files else "").rpartition("/")[0].rpartition("/")
    return read_manifest(folder if split.startswith("Split-") else f"{folder}/{split}")


def _storage(dtype: str) -> str:
    if dtype == "string":
        return "string"
    return "float32" if "float" in dtype else "int64"
