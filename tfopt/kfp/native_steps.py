"""The shipped components as tasks of a pipeline that is written with Kubeflow's own SDK.

from tfopt.kfp import steps

@dsl.pipeline
def ours(...):
    trained = train_model(...)
    folded = steps.fold_batch_norm(model=trained.outputs["model"])
    evaluated = steps.evaluate(baseline=…, candidates=[folded.outputs["folded"], …], examples=…, label="label")

A list input takes single artifacts, ``dsl.Collected(…)`` of a loop, or a list of both.
"""

from typing import TYPE_CHECKING, Any

from kfp import dsl
from kfp.dsl.pipeline_channel import PipelineChannel

from tfopt.component import Component
from tfopt.declaration.library import ComponentCalls
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.kfp.container_components import add_task, call_in_thread
from tfopt.kfp.images import Images
from tfopt.kfp.placement import declared_values
from tfopt.kfp.pod_options import KUBEFLOW, Target, apply

if TYPE_CHECKING:
    from tfopt.dag.component_nodes import ComponentNodes  # a generated stub
else:
    ComponentNodes = object


class Steps(ComponentCalls, ComponentNodes):
    """Components as functions that add a task: ``steps.NAME(input=artifact, parameter=value)``."""

    def __init__(self, *images: str, local: bool = False, target: Target = KUBEFLOW) -> None:
        """Use images of your registry, or with ``local`` the installed package.

        Args:
            images: References as for ``tfopt compile --image``; none for the project's own, which you build
                (docs/images.md).
            local: Run without Docker, with ``kfp.local.init(kfp.local.SubprocessRunner(use_venv=False))``. A pipeline
                with such steps is for this machine only.
            target: Where the pipeline will run: Vertex AI refuses a file with settings of Kubernetes, such as the time
                limit.
        """
        self._images, self._local, self._target = Images(images), local, target

    def __call__(self, component: Component, /, **arguments: Any) -> Any:
        """Add a task of any component; values that are known now are checked, others when the step runs.

        Its pod gets what `tfopt compile` sets by default: CPU, memory and GPUs of the declaration as requests and
        limits, retries, and a time limit. The methods of the task (``set_memory_limit``, …) change it.

        Raises:
            ComponentError: If a name is unknown, an input is missing, a list input is no list, or a value is not
                allowed.
        """
        for name in arguments:
            names = [*component.inputs, *component.parameters]
            if name not in names:
                raise ComponentError(f"{component.name}: {name}", "an input or a parameter", nearest(name, names))
        passed = {name: value for name, value in arguments.items() if value is not None}
        wires: dict[str, object] = {}
        lengths: dict[str, int] = {}
        for port in component.inputs.values():
            value = passed.pop(port.name, None)
            if port.many and getattr(value, "is_artifact_list", False):
                value = [value]  # of dsl.Collected, or a list of artifacts that the pipeline gets
            is_list = isinstance(value, list | tuple)
            if not port.optional and (value is None or (is_list and not value)):
                raise ComponentError(f"{component.name}: no {port.name}", port.type.__name__, f"pass {port.name}=…")
            if not port.many and (is_list or getattr(value, "is_artifact_list", False)):
                raise ComponentError(f"{component.name}: {port.name} is a list", "one artifact", "pass one of them")
            if port.many and value is not None and not is_list:
                raise ComponentError(f"{component.name}: {port.name} is one artifact", "a list", "add brackets")
            if port.many:
                lengths[port.name] = len(value or ())
                wires |= {f"{port.name}_{index}": _copied(item) for index, item in enumerate(value or (), 1)}
            elif value is not None:
                wires[port.name] = value
        values = dict(passed)
        for name, value in passed.items():
            if not isinstance(value, PipelineChannel):
                values[name] = component.parameters[name].check(value, component.name)
        for parameter in component.parameters.values():
            if parameter.required and parameter.name not in values:
                raise ComponentError(f"{component.name}: no {parameter.name}", parameter.expected, "pass a value")
        task = add_task(component, lengths, wires, values, self._images, self._local)
        if self._local:
            return task
        pod = declared_values(component, self._images)
        call_in_thread(apply, {**pod, "image": self._images.of(pod["image"])}, task, self._target)
        return task


steps = Steps()


def _copied(artifact: Any) -> Any:
    """Return a copy of ``dsl.Collected``, because KFP (2.16) changes the object and cannot compile it a second time."""
    return dsl.Collected(artifact.output) if isinstance(artifact, dsl.Collected) else artifact
