"""Check the sources of a pipeline against each other before the first step, without TensorFlow.

What only TensorFlow can find, such as the features that a model parses from records, the first step reports.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tfopt.artifacts import Artifact, Examples, Model
from tfopt.artifacts.saved_model_proto import peek_inputs
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.dag.dag import Dag, PipelineInput, Step
from tfopt.data import feature_schema
from tfopt.data.tfrecords import peek_records
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError, ExamplesError
from tfopt.storage.remote_files import is_remote

HOW_TO_MAKE = "tfopt prepare_examples"
AUTO, SPLITS = "auto", ("test", "eval")  # a split ``auto`` is the first of these that the examples have
PEEKED = 64  # records whose features are read, because a single one may lack the label

Source = TypeVar("Source", bound=Artifact)


def check_sources(dag: Dag, values: Mapping[str, Any]) -> None:
    """Check that models have the signature that steps use, and that examples have their splits, label and features.

    Raises:
        ComponentError: If a local source cannot be used by a step that gets it directly.
    """
    for step in dag.steps.values():
        signature = step.value("signature", values)
        inputs = [
            peek_inputs(model.saved_model, signature)
            for model in _sources(step, values, Model)
            if signature and model.format == "saved_model" and model.saved_model
        ]
        if "split" in step.component.parameters and "precision" not in step.component.parameters:
            for examples in _sources(step, values, Examples):
                _check_examples(examples, step, values, inputs)


def _sources(step: Step, values: Mapping[str, Any], type: type[Source]) -> Iterator[Source]:
    for wire in step.inputs.values():
        for source in wire if isinstance(wire, tuple) else (wire,):
            if isinstance(source, PipelineInput) and issubclass(source.type, type):
                value = values[source.name]
                if value is not None and not is_remote(value):
                    yield source.type(value)


def _check_examples(
    examples: Examples, step: Step, values: Mapping[str, Any], inputs: list[dict[str, TensorSpec]]
) -> None:
    """Raise ExamplesError if examples lack the split or the label of a step, or a feature for an input of a model."""
    split = step.value("split", values)
    if split is None:  # only the run knows it
        return
    if split == AUTO:
        split = next((name for name in SPLITS if examples.splits.get(name)), SPLITS[-1])
    label = step.value("label", values)
    try:
        files = examples.split(split)
        stored = _stored_features(files)
        if label is not None and label not in stored:
            expected = f"one of the features {', '.join(stored)}"
            raise ExamplesError(f"{examples.uri}: no label {label!r}", expected, nearest(label, stored))
        for specs in inputs:
            matched = feature_schema.match_features(specs, stored, label or feature_schema.label_of(files))
            feature_schema.check_features(stored, matched, examples.uri)
    except ComponentError as error:
        made = f"{error.fix}; examples are made with: {HOW_TO_MAKE}"
        fix = error.fix if HOW_TO_MAKE in error.fix else made
        raise ExamplesError(error.received, error.expected, fix) from error


def _stored_features(files: list[Path]) -> feature_schema.Columns:
    features: feature_schema.Columns = {}
    records = list(peek_records(files, PEEKED))
    for record in records:
        with contextlib.suppress(ExamplesError):  # evaluate counts such a record as skipped
            features = feature_schema.feature_specs(record) | features
    if not features:
        expected = "tf.Example records with features"
        received = f"{files[0]}: no tf.Example in the first {len(records)} records"
        raise ExamplesError(received, expected, "check the path")
    return feature_schema.with_manifest(features, files)
