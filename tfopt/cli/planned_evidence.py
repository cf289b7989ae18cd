"""State in a plan what the records that the models will be evaluated on can show, as far as their number is known."""

from collections.abc import Mapping
from typing import Any

from tfopt.artifacts import Examples
from tfopt.dag.dag import Dag, PipelineInput, Step, StepOutput
from tfopt.dag.planned_step import PlannedStep
from tfopt.data.feature_schema import read_manifest
from tfopt.measurement.evidence import describe_visible_loss, expected_main_metric
from tfopt.storage.remote_files import is_remote

EVALUATE = "evaluate"


def describe_evidence(dag: Dag, values: Mapping[str, Any], planned: Mapping[str, PlannedStep]) -> list[str]:
    """Return a sentence for each different set of records that models are evaluated on.

    A step that the plan reuses has made its examples, whose number of records is known.
    """
    steps = [step for step in dag.steps.values() if step.component.name == EVALUATE]
    return list(dict.fromkeys(_describe(step, values, planned) for step in steps))


def _describe(step: Step, values: Mapping[str, Any], planned: Mapping[str, PlannedStep]) -> str:
    wire, candidates = step.inputs["examples"], step.inputs["candidates"]
    count = len(candidates) if isinstance(candidates, tuple) else 1
    source = _location(wire, values, planned)
    if source is None:
        maker = wire.step if isinstance(wire, StepOutput) else step.id
        return f"{maker} will print what the records that it makes can show about the goals of quality"
    manifest = read_manifest(source)
    splits, split = manifest.splits or {}, step.value("split", values)
    if split == "auto":
        split = "test" if "test" in splits else "eval"
    if split not in splits:
        return f"{step.id} will print what its records can show: {source} does not state how many they are"
    metric = expected_main_metric(
        step.value("metrics", values), has_classes=any((manifest.label_counts or {}).values())
    )
    return f"split {split}: {describe_visible_loss(splits[split], count, metric)}"


def _location(wire: Any, values: Mapping[str, Any], planned: Mapping[str, PlannedStep]) -> str | None:
    """Return the folder of examples that exist already and are near; else None."""
    if isinstance(wire, StepOutput):
        location = planned[wire.step].outputs.get(wire.output)
    else:
        assert isinstance(wire, PipelineInput)
        location = values[wire.name]
    return None if location is None or is_remote(location) else Examples(location).uri
