"""Resolve the image, GPU and node of each step of a DAG; see docs/adr/0034-gpu-steps.md.

They are declared by the component and changed by ``--kfp-option``. A step that runs TensorRT engines gets those of
the step that built the engines, because an engine runs only on such a machine.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tfopt.artifacts import TensorRTModel
from tfopt.component import Component
from tfopt.dag.dag import Dag, Step
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.kfp.images import CUDA_KINDS, KINDS, Images, is_reference
from tfopt.kfp.pod_options import IMAGE_USER, NON_ROOT, Options

PLACEMENT = ("image", "gpu", "gpu_type", "node", "toleration")


def place_steps(dag: Dag, images: Images, options: Options) -> dict[str, dict[str, str]]:
    """Return the options of each step by its id, complete with image reference, CPU, memory and GPUs.

    Raises:
        ComponentError: If a kind of image is unknown, unused or lacks packages that the step needs, a step has a GPU
            and an image without CUDA, or the engines of a step were built on different machines.
    """
    builders = _engine_builders(dag)
    own_kinds = {step.component.image for step in dag.steps.values()}
    placed: dict[str, Mapping[str, Any]] = {}
    for step in dag.steps.values():
        component = step.component
        sources = {id: placed[id] for id in builders[step.id] if component.model_signature and placed[id]["gpu"] != "0"}
        placement = _engine_placement(step.id, sources, options)
        placed[step.id] = values = declared_values(component, images, options.of(step.id, placement))
        _check_image(step, values, images, [*images.kinds, *own_kinds])
    unused = set(images.kinds) - {*KINDS, *own_kinds, *(values["image"] for values in placed.values())}
    for kind in unused:
        received = f"--image {kind}=…"
        raise ComponentError(received, "a kind of image that a step has", nearest(kind, [*KINDS, *own_kinds]))
    return {id: {**values, "image": images.of(values["image"])} for id, values in placed.items()}


def declared_values(
    component: Component, images: Images, options: Mapping[str, Any] = MappingProxyType({})
) -> Mapping[str, Any]:
    """Return the options of a step: those given, and the declaration of its component for image, resources and user."""
    resources = component.resources
    declared = {"image": component.image, "cpu": str(resources.cpu), "memory": resources.memory}
    values = {**declared, "gpu": str(resources.gpu), **options}
    # our images name a user by number, and clusters such as OpenShift choose another; others may need root
    return {"user": NON_ROOT if images.is_shipped(values["image"]) else IMAGE_USER, **values}


def _engine_builders(dag: Dag) -> dict[str, list[str]]:
    """Return for each step the steps that built the engines among its inputs, directly or through other steps."""
    held: dict[tuple[str, str], list[str]] = {}  # for each output the builders of the engines that it may be
    builders: dict[str, list[str]] = {}
    for step in dag.steps.values():
        read = [id for used in step.used_outputs for id in held.get((used.step, used.output), ())]
        builders[step.id] = list(dict.fromkeys(read))
        for name, output in step.outputs.items():
            if issubclass(output.type, TensorRTModel):
                held[step.id, name] = [step.id]
            elif issubclass(TensorRTModel, output.type):
                held[step.id, name] = builders[step.id]
    return builders


def _engine_placement(step: str, builders: Mapping[str, Mapping[str, Any]], options: Options) -> dict[str, object]:
    placement: dict[str, object] = {}
    for key in PLACEMENT:
        settings = {id: values.get(key) for id, values in builders.items()}
        first = next(iter(settings.values()), None)
        if all(value == first for value in settings.values()):
            placement |= {} if first is None else {key: first}
        elif key not in options.keys_of(step):
            machines = ", ".join(f"{id} ({_option_text(key, value)})" for id, value in settings.items())
            expected = "engines built on the same kind of machine, because one machine runs them here"
            fix = f"give these steps the same {key}, or choose for the step: --kfp-option {step}:{key}…"
            raise ComponentError(f"{step} runs engines of {machines}", expected, fix)
    return placement


def _option_text(key: str, value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}.{name}={text}" for name, text in value.items())
    return f"{key}={', '.join(value) if isinstance(value, list) else value}" if value else f"no {key}"


def _check_image(step: Step, values: Mapping[str, Any], images: Images, kinds: list[str]) -> None:
    image, needed = values["image"], step.component.image
    if not is_reference(image) and image not in kinds:
        expected = f"a kind of image ({', '.join(dict.fromkeys(kinds))}), or a reference with a registry or tag"
        raise ComponentError(f"--kfp-option {step.id}:image={image}", expected, nearest(image, kinds))
    if not images.is_shipped(image):
        return  # an image of the user may contain everything
    if values["gpu"] != "0" and image not in CUDA_KINDS:
        expected = f"an image with CUDA ({', '.join(CUDA_KINDS)}, or one of yours) for a step with a GPU"
        fix = f"add --kfp-option {step.id}:image={CUDA_KINDS[0]}, or set gpu=0 for this step"
        raise ComponentError(f"{step.id}: gpu={values['gpu']} with the image {image}, which has no CUDA", expected, fix)
    if needed in KINDS and needed not in KINDS[image]:
        kinds = [kind for kind, contained in KINDS.items() if needed in contained]
        received = f"{step.id}: the image {image}"
        fix = f"write --kfp-option {step.id}:image={kinds[0]}, or leave the option out"
        raise ComponentError(received, f"an image with the packages of {needed}: {', '.join(kinds)}", fix)
