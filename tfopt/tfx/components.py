"""The TFX face of every component: usable in any TFX pipeline, beside stock components.

from tfopt.tfx.components import steps
folded = steps.fold_batch_norm(model=trainer.outputs["model"])
pusher = Pusher(model=folded.outputs["folded"], …)
"""

import json
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_beam_component, base_beam_executor, base_component, base_executor
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec, ExecutorClassSpec
from tfx.dsl.io import fileio
from tfx.types import component_spec, standard_artifacts

from tfopt import artifacts
from tfopt.artifacts.storage import is_remote
from tfopt.component import Component, Port, find
from tfopt.data import beam_runner as beam
from tfopt.declaration.parameters import Parameter
from tfopt.errors import ComponentError
from tfopt.execution import code_digest as implementation

COMPONENT, IMPLEMENTATION, RUN = "component", "implementation", "run"
EXAMPLES, MODEL = standard_artifacts.Examples, standard_artifacts.Model


def _artifact(name: str, base: type = types.Artifact) -> Any:
    """On Kubeflow, TFX imports a type by its name, which may have one dot only: ``tfopt.__getattr__`` finds it here."""
    return type(name, (base,), {"TYPE_NAME": f"tfopt.{name}"})


TYPES: dict[type[artifacts.Artifact], Any] = {
    artifacts.Files: _artifact("Files"),
    artifacts.PythonModule: _artifact("PythonModule"),
    artifacts.Examples: EXAMPLES,
    artifacts.Anomalies: standard_artifacts.ExampleAnomalies,
    artifacts.Model: MODEL,
    artifacts.SavedModel: _artifact("SavedModel"),
    artifacts.KerasModel: _artifact("KerasModel"),
    artifacts.TFLiteModel: _artifact("TFLiteModel"),
    artifacts.OnnxModel: _artifact("OnnxModel"),
    artifacts.OpenVINOModel: _artifact("OpenVINOModel"),
    artifacts.TensorRTModel: _artifact("TensorRTModel"),
    artifacts.Report: _artifact("Report"),
    artifacts.Evaluation: _artifact("Evaluation"),
    artifacts.Benchmark: _artifact("Benchmark"),
    artifacts.Inspection: _artifact("Inspection"),
    artifacts.Decision: _artifact("Decision"),
    artifacts.Recipe: _artifact("Recipe"),
    artifacts.TrainingPlan: _artifact("TrainingPlan"),
    artifacts.Comparison: _artifact("Comparison"),
    artifacts.Blessing: standard_artifacts.ModelBlessing,
    artifacts.InfraBlessing: standard_artifacts.InfraBlessing,
    artifacts.Pushed: standard_artifacts.PushedModel,
}

KINDS = {kind: marker for marker, kind in TYPES.items()}

for _marker, _type in TYPES.items():
    # A channel takes its own type and ours below it; for any model also the stock Model, checked at run time.
    _accepted = {other for marker, other in TYPES.items() if issubclass(marker, _marker)}
    setattr(
        _type,
        component_spec.COMPATIBLE_TYPES_KEY,
        _accepted | ({MODEL} if issubclass(_marker, artifacts.Model) else set()),
    )


class Steps:
    """The shipped components as TFX components: ``steps.NAME(input=channel, parameter=value)``."""

    def __getattr__(self, name: str) -> Callable[..., base_component.BaseComponent]:
        """Find a shipped component by name."""
        return lambda **wires: node(find(name), **wires)


steps = Steps()


def node(component: Component, **wires: Any) -> base_component.BaseComponent:
    """Build the TFX component of any declaration, wired to channels and given parameter values.

    A list input takes a list of channels, of any model types; it becomes one TFX input per element.

    Raises:
        ComponentError: On wrong wiring or a value the component refuses.
    """
    channels = {name: wires.pop(name) for name in component.inputs if wires.get(name) is not None}
    for port in component.inputs.values():
        if port.name not in channels and not port.optional:
            raise ComponentError(f"{component.name}: no {port.name}", port.type.__name__, f"pass {port.name}=…")
    inputs = dict(_flatten(component, channels))
    values = {name: _encode(value) for name, value in component.check(wires).items() if value is not None}
    values |= {COMPONENT: component.path, IMPLEMENTATION: implementation.digest(component)}
    if component.cache == "never":  # what it did may have been undone since, which no input of it tells
        values[RUN] = uuid.uuid4().hex
    _, first = next(iter(inputs.values()), (None, None))
    given = KINDS.get(getattr(first, "type", None), artifacts.Artifact)
    outputs = {name: TYPES[port.kind(given)] for name, port in component.outputs.items()}
    spec = type(
        f"{component.name}_spec",
        (component_spec.ComponentSpec,),
        {
            "PARAMETERS": {name: component_spec.ExecutionParameter(type=type(value)) for name, value in values.items()},
            "INPUTS": {
                name: component_spec.ChannelParameter(type=TYPES[port.type]) for name, (port, _) in inputs.items()
            },
            "OUTPUTS": {name: component_spec.ChannelParameter(type=kind) for name, kind in outputs.items()},
        },
    )
    base = base_beam_component.BaseBeamComponent if component.beam else base_component.BaseComponent
    executor = BeamExecutorSpec(BeamExecutor) if component.beam else ExecutorClassSpec(Executor)
    built = type(component.name, (base,), {"SPEC_CLASS": spec, "EXECUTOR_SPEC": executor, "__doc__": component.__doc__})
    try:
        return built(
            spec(
                **{name: channel for name, (_, channel) in inputs.items()},
                **values,
                **{name: types.Channel(type=kind) for name, kind in outputs.items()},
            )
        )
    except TypeError as error:
        raise ComponentError(
            f"{component.name}: {error}", "a channel of the declared type", "wire another output"
        ) from error


class Executor(base_executor.BaseExecutor):
    """Runs any component in TFX; which one is an execution property.

    Attributes:
        failure: What ended the last component in this process; the runners hand on only its text.
    """

    failure: ComponentError | KeyboardInterrupt | None = None

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: dict[str, Any]) -> None:  # noqa: N802  (TFX's name)
        """Bring remote artifacts here, run the function, send its outputs back and publish their metadata."""
        component = find(exec_properties[COMPONENT])
        parameters = {
            name: _decode(parameter, exec_properties[name])
            for name, parameter in component.parameters.items()
            if name in exec_properties
        }
        outputs = {name: output_dict[name][0] for name in component.outputs}
        with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
            inputs = {
                name: found
                for name, port in component.inputs.items()
                if (found := _gather(component, port, input_dict, Path(folder)))
            }
            local = {name: _place(component, artifact.uri, Path(folder, name)) for name, artifact in outputs.items()}
            try:
                written = component(**inputs, **local, **parameters)
            except (ComponentError, KeyboardInterrupt) as error:
                Executor.failure = error
                raise
            for name, artifact in outputs.items():
                if local[name] != artifact.uri:
                    _copy(local[name], artifact.uri)
                _publish(artifact, written[name])


class BeamExecutor(base_beam_executor.BaseBeamExecutor):
    """Runs a component whose work is a Beam pipeline, with the runner's arguments."""

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: dict[str, Any]) -> None:  # noqa: N802  (TFX's name)
        """As `Executor`; the component opens its own pipeline with these arguments."""
        with beam.arguments(self._beam_pipeline_args):
            Executor.Do(self, input_dict, output_dict, exec_properties)


def _flatten(component: Component, channels: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Port, Any]]]:
    for name, wired in channels.items():
        port = component.inputs[name]
        if not port.many:
            yield name, (port, wired)
        else:
            yield from ((f"{name}_{index}", (port, channel)) for index, channel in enumerate(wired, 1))


def _gather(component: Component, port: Port, input_dict: Any, folder: Path) -> Any:
    """The local path (or list of paths) behind an input; remote ones are fetched unless Beam reads them itself."""
    keys = [key for key in input_dict if key.startswith(f"{port.name}_")] if port.many else [port.name]
    keys.sort(key=lambda key: int(key.rpartition("_")[2]) if port.many else 0)
    found = []
    for key in keys:
        for artifact in input_dict.get(key, []):
            place = _place(component, artifact.uri, folder / key)
            if place != artifact.uri:
                _copy(artifact.uri, place)
            found.append(place)
    return found if port.many else (found[0] if found else None)


def _place(component: Component, uri: str, local: Path) -> str:
    return str(local) if is_remote(uri) and not component.beam else uri


def _copy(source: str, target: str) -> None:
    """Copy a file or folder between any two file systems TFX knows."""
    if not fileio.isdir(source):
        fileio.copy(source, target, overwrite=True)
        return
    for folder, _, files in fileio.walk(source):
        place = f"{target.rstrip('/')}/{folder[len(source) :].strip('/')}".rstrip("/")
        fileio.makedirs(place)
        for file in files:
            fileio.copy(f"{folder.rstrip('/')}/{file}", f"{place}/{file}", overwrite=True)


def _publish(artifact: types.Artifact, written: artifacts.Artifact) -> None:
    for key, value in written.metadata.items():
        if key in (artifact.PROPERTIES or {}):
            setattr(artifact, key, value)
        elif isinstance(value, bool | int):
            artifact.set_int_custom_property(key, int(value))
        elif isinstance(value, float):
            artifact.set_float_custom_property(key, value)
        elif value is not None:
            artifact.set_string_custom_property(key, value if isinstance(value, str) else json.dumps(value))


def _encode(value: Any) -> Any:
    """TFX keeps int, float and str; the others travel as JSON."""
    return json.dumps(value) if isinstance(value, bool | list) else value


def _decode(parameter: Parameter, value: Any) -> Any:
    return json.loads(value) if parameter.type in (bool, list[str]) else value
