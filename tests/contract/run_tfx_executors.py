"""Run the TFX executors of components, as TFX's launcher does."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_beam_executor, base_executor
from tfx.types import standard_artifacts
from tfx.utils import import_utils

from tests.contract.inputs import COMPONENTS
from tfopt.tfx.components import TYPES, node


def run(name: str, job: Mapping[str, Any], folder: Path) -> None:
    """Build the TFX component of a component, import its executor, and run it; a folder gets a folder of outputs.

    Args:
        name: The component.
        job: Its ``inputs``, with the paths of each, and its ``values``.
        folder: For the outputs of all components.
    """
    component = COMPONENTS[name]
    wires = {
        key: [types.Channel(type=TYPES[port.type])] * len(job["inputs"][key])
        if port.many
        else types.Channel(type=TYPES[port.type])
        for key, port in component.inputs.items()
        if key in job["inputs"]
    }
    built = node(component, **wires, **job["values"])
    executor_class = import_utils.import_class_by_path(built.executor_spec.class_path)
    inputs = {}
    for key, port in component.inputs.items():
        for index, uri in enumerate(job["inputs"].get(key, []), 1):
            inputs[f"{key}_{index}" if port.many else key] = [artifact(TYPES[port.type], uri)]
    outputs = {key: [artifact(TYPES[port.type], folder / name / key)] for key, port in component.outputs.items()}
    context = base_beam_executor.BaseBeamExecutor if component.beam else base_executor.BaseExecutor
    executor_class(context.Context(beam_pipeline_args=[]) if component.beam else context.Context()).Do(
        inputs, outputs, dict(built.exec_properties)
    )
    if name == "prepare_examples":
        assert json.loads(outputs["examples"][0].split_names) == ["train", "eval"]
    if name == "select_model":
        assert isinstance(outputs["blessing"][0], standard_artifacts.ModelBlessing)
        assert outputs["blessing"][0].get_int_custom_property("blessed") in (0, 1)


def artifact(kind: type, uri: str | Path) -> types.Artifact:
    """Build a TFX artifact as its launcher does."""
    artifact = kind()
    artifact.uri = str(uri)
    return artifact
