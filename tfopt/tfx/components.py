"""TFX components of all declarations, usable in every TFX pipeline together with standard components.

from tfopt.tfx import steps
folded = steps.fold_batch_norm(model=trainer.outputs["model"])
pusher = Pusher(model=folded.outputs["folded"], …)
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tfx import types
from tfx.dsl.components.base import base_beam_component, base_beam_executor, base_component, base_executor
from tfx.dsl.components.base.executor_spec import BeamExecutorSpec, ExecutorClassSpec
from tfx.types import component_spec, standard_artifacts

from tfopt import artifacts
from tfopt.component import Component, Port, find
from tfopt.dag.dag import LAYOUT, check_same_layout
from tfopt.data import beam_runner
from tfopt.declaration.library import ComponentCalls
from tfopt.errors import ComponentError
from tfopt.execution import code_digest
from tfopt.storage.remote_files import is_remote
from tfopt.tfx.cached_executions import DIGEST

COMPONENT, IMPLEMENTATION, CODE_PARTS, RUN = "component", "implementation", "code_parts", "run"
MODEL = standard_artifacts.Model

STANDARD_TYPES: dict[type[artifacts.Artifact], Any] = {
    artifacts.Examples: standard_artifacts.Examples,
    artifacts.Anomalies: standard_artifacts.ExampleAnomalies,
    artifacts.Model: MODEL,
    artifacts.Blessing: standard_artifacts.ModelBlessing,
    artifacts.InfraBlessing: standard_artifacts.InfraBlessing,
    artifacts.Pushed: standard_artifacts.PushedModel,
}


# TFX's own type, or a new one. On Kubeflow TFX imports ``tfopt.NAME``, which is found here.
TYPES: dict[type[artifacts.Artifact], Any] = {
    kind: STANDARD_TYPES.get(kind) or type(kind.__name__, (types.Artifact,), {"TYPE_NAME": f"tfopt.{kind.__name__}"})
    for kind in vars(artifacts).values()
    if isinstance(kind, type) and issubclass(kind, artifacts.Artifact) and kind is not artifacts.Artifact
}
KINDS = {tfx_type: artifact_class for artifact_class, tfx_type in TYPES.items()}

for _class, _type in TYPES.items():
    # A channel accepts its type and subtypes. For models also TFX's own Model, whose format is checked at run time.
    _accepted = {other for subclass, other in TYPES.items() if issubclass(subclass, _class)}
    _accepted |= {MODEL} if issubclass(_class, artifacts.Model) else set()
    setattr(_type, component_spec.COMPATIBLE_TYPES_KEY, _accepted)


if TYPE_CHECKING:
    from tfopt.dag.component_nodes import ComponentNodes  # a generated stub
else:
    ComponentNodes = object


class Steps(ComponentCalls, ComponentNodes):
    """The shipped components as TFX components: ``steps.NAME(input=channel, parameter=value)``."""

    def __call__(self, component: Component, /, **wires: Any) -> base_component.BaseComponent:
        """Return the TFX component of any declaration; see `node`."""
        return node(component, **wires)


steps = Steps()


def node(component: Component, **wires: Any) -> base_component.BaseComponent:
    """Build the TFX component of a declaration from channels and parameter values.

    A list input takes a list of channels, of any model types; it becomes one TFX input per element.

    Raises:
        ComponentError: If an input is missing or has the wrong type, or the component does not allow a value.
    """
    channels = {name: wires.pop(name) for name in component.inputs if wires.get(name) is not None}
    for port in component.inputs.values():
        if port.name not in channels and not port.optional:
            raise ComponentError(f"{component.name}: no {port.name}", port.type.__name__, f"pass {port.name}=…")
    inputs = dict(split_lists(component, channels))
    values = execution_properties(component, wires)
    for _, channel in inputs.values():
        if producer := getattr(channel, "producer_component", None):
            check_same_layout(component.name, values.get(LAYOUT), producer.id, producer.exec_properties.get(LAYOUT))
    _, first = next(iter(inputs.values()), (None, None))
    first_class = KINDS.get(getattr(first, "type", None), artifacts.Artifact)
    outputs = {name: TYPES[port.kind(first_class)] for name, port in component.outputs.items()}
    node_class = _node_class(component, {name: port for name, (port, _) in inputs.items()}, values, outputs)
    channels = {name: channel for name, (_, channel) in inputs.items()}
    channels |= {name: types.Channel(type=tfx_type) for name, tfx_type in outputs.items()}
    try:
        return node_class(node_class.SPEC_CLASS(**channels, **values))
    except TypeError as error:
        received = f"{component.name}: {error}"
        raise ComponentError(received, "a channel of the declared type", "wire another output") from error


def execution_properties(component: Component, parameters: Mapping[str, Any]) -> dict[str, object]:
    """Return the execution properties of a step: all of its parameters, and what else an earlier result depends on.

    Raises:
        ComponentError: If the component does not allow a value.
    """
    checked = component.check(parameters)
    code = code_digest.describe(component, checked)
    properties = {  # of other types than int, float and str as JSON, because TFX cannot store them
        name: json.dumps(value) if isinstance(value, bool | list) else value
        for name, value in checked.items()
        if value is not None
    }
    properties |= {COMPONENT: component.path, IMPLEMENTATION: code.digest, CODE_PARTS: json.dumps(asdict(code))}
    if component.cache == "never":  # its effects outside may have been undone, which its inputs do not show
        properties[RUN] = uuid.uuid4().hex
    return properties


def decoded_parameters(component: Component, properties: Mapping[str, Any]) -> dict[str, object]:
    """Return the parameters in the execution properties of a step."""
    return {
        name: json.loads(properties[name]) if parameter.type in (bool, list[str]) else properties[name]
        for name, parameter in component.parameters.items()
        if name in properties
    }


def _node_class(
    component: Component, inputs: Mapping[str, Port], values: Mapping[str, Any], outputs: Mapping[str, Any]
) -> type[base_component.BaseComponent]:
    spec = {
        "PARAMETERS": {name: component_spec.ExecutionParameter(type=type(value)) for name, value in values.items()},
        "INPUTS": {name: component_spec.ChannelParameter(type=TYPES[port.type]) for name, port in inputs.items()},
        "OUTPUTS": {name: component_spec.ChannelParameter(type=tfx_type) for name, tfx_type in outputs.items()},
    }
    spec_class = type(f"{component.name}_spec", (component_spec.ComponentSpec,), spec)
    base = base_beam_component.BaseBeamComponent if component.beam else base_component.BaseComponent
    executor = BeamExecutorSpec(BeamExecutor) if component.beam else ExecutorClassSpec(Executor)
    content = {"SPEC_CLASS": spec_class, "EXECUTOR_SPEC": executor, "__doc__": component.__doc__}
    return type(component.name, (base,), content)


class Executor(base_executor.BaseExecutor):
    """The executor of all components; an execution property holds the component's path.

    TFX stores the path of this class in its metadata. `tfopt.tfx` exports it for metadata of earlier versions.

    Attributes:
        failure: The exception that ended the last component in this process; TFX's runners keep only its text.
    """

    failure: ComponentError | KeyboardInterrupt | None = None

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: Mapping[str, Any]) -> None:  # noqa: N802  (TFX's name)
        """Run the component and publish the metadata of its outputs."""
        component = find(exec_properties[COMPONENT])
        parameters = decoded_parameters(component, exec_properties)
        inputs: dict[str, object] = {}
        for name, port in component.inputs.items():
            if uris := [artifact.uri for key in port.keys(input_dict) for artifact in input_dict[key]]:
                inputs[name] = uris if port.many else uris[0]
        outputs = {name: output_dict[name][0] for name in component.outputs}
        targets = {name: artifact.uri for name, artifact in outputs.items()}
        try:
            written = component(**inputs, **targets, **parameters)
        except (ComponentError, KeyboardInterrupt) as error:
            Executor.failure = error
            raise
        for name, artifact in outputs.items():
            _publish(artifact, written[name])


class BeamExecutor(base_beam_executor.BaseBeamExecutor):
    """The executor of components that run a Beam pipeline."""

    def Do(self, input_dict: Any, output_dict: Any, exec_properties: Mapping[str, Any]) -> None:  # noqa: N802  (TFX's name)
        """Run the component like `Executor`, with the Beam arguments of the TFX pipeline."""
        with beam_runner.runner_arguments(self._beam_pipeline_args):
            Executor.Do(self, input_dict, output_dict, exec_properties)


def split_lists(component: Component, channels: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Port, Any]]]:
    """Yield the TFX inputs with port and channel; a list input becomes one TFX input for each element."""
    for name, wired in channels.items():
        port = component.inputs[name]
        if not port.many:
            yield name, (port, wired)
        else:
            yield from ((f"{name}_{index}", (port, channel)) for index, channel in enumerate(wired, 1))


def _publish(artifact: types.Artifact, written: artifacts.Artifact) -> None:
    if not is_remote(artifact.uri):
        artifact.set_string_custom_property(DIGEST, artifacts.Artifact(artifact.uri).content_digest)
    for key, value in written.metadata.items():
        if key in (artifact.PROPERTIES or {}):
            setattr(artifact, key, value)
        elif isinstance(value, bool | int):
            artifact.set_int_custom_property(key, int(value))
        elif isinstance(value, float):
            artifact.set_float_custom_property(key, value)
        elif value is not None:
            artifact.set_string_custom_property(key, value if isinstance(value, str) else json.dumps(value))
