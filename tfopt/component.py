"""Declare a typed Python function as a component; its signature is the only declaration.

    @component(image="tf")
    def prune(model: Input[KerasModel], pruned: Output[KerasModel], *, sparsity: float = 0.5) -> None: ...

The TFX and KFP components, the command line, the JSON schema and ``component.yaml`` are generated from it. A component
can still be called with paths, without an engine: ``prune(model="a/", pruned="b/", sparsity=0.8)``.
"""

import sys
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from tfopt.declaration.component import (
    TOLERANCE,
    Cache,
    Component,
    Effect,
    Group,
    Input,
    Output,
    Port,
    Purpose,
    Resources,
    SameOutput,
)
from tfopt.declaration.library import components, find
from tfopt.declaration.parameters import Between, Names, Reads
from tfopt.execution.execute import execute

__all__ = [
    "Between",
    "Component",
    "Effect",
    "Group",
    "Input",
    "Names",
    "Output",
    "Port",
    "Reads",
    "Resources",
    "SameOutput",
    "component",
    "components",
    "find",
]


def component(
    *,
    image: str,
    purpose: Purpose | None = None,
    cache: Cache = "always",
    beam: bool = False,
    runs: Collection[str] = (),
    tolerance: float | None = TOLERANCE,
    model_signature: bool = False,
    on_failure: bool = False,
    effect: Effect | None = None,
    not_after: Mapping[str, str] = MappingProxyType({}),
    idempotent: bool = False,
    cpu: float = 1,
    memory: str = "4Gi",
    gpu: int = 0,
    concurrent: bool = False,
) -> Callable[[Callable[..., None]], Component]:
    """Declare a function as a component.

    Args:
        image: The container image it needs: a folder of ``deploy/images``.
        purpose: The group of ``tfopt list`` that shows it.
        cache: Where the result of an earlier run may be reused: ``always``; ``local``: not on Kubeflow, whose machines
            differ (a measurement, a decision); ``never``: the step changes something outside its outputs (a push).
        beam: True if the work is a Beam pipeline; the component then takes the arguments of a Beam runner.
        runs: Names of the components that it runs itself; a cached result is not reused after their code changed.
        tolerance: A model output is compared with the first input, if that is a model: names, dtypes and shapes of
            inputs and outputs must be the same, and outputs may differ by at most this fraction of their range. None:
            they may differ (after training, say), but be neither NaN nor constant. See `tfopt.execution.parity_check`.
        model_signature: Add the parameters of components that load models: ``signature``, the name of the signature
            that is run or converted, which the function finds as ``model.signature`` and `tfopt.runtimes.load` uses;
            and ``trust_model_code``, without which `tfopt.keras_models.load` refuses files that contain code.
        on_failure: Add the parameter ``on_failure``, for components that make a model: with ``row``, one that cannot
            be made becomes a failed model, so that one candidate does not end a run (`tfopt.execution.failed_models`).
        effect: What it leaves in the weights of a model that a later step could undo, such as ``Effect("zeros")``.
        not_after: The effects of earlier steps that it would undo, each with the reason. A model with such a step in
            its lineage is refused, and so is a DAG. See `tfopt.declaration.step_order`.
        idempotent: True if a second run finds nothing more to do, so that it undoes no effect that followed the first.
        cpu: Number of cores that Kubeflow requests for a step; ``--kfp-option`` changes it, memory and gpu.
        memory: Requested memory as a Kubernetes quantity, such as ``4Gi``.
        gpu: Number of GPUs.
        concurrent: True if ``tfopt run --engine process`` may run it at the same time as other such steps: its work is
            done in child processes, and it measures no time.
    """
    resources = Resources(cpu, memory, gpu)
    return lambda function: Component(
        function,
        execute,
        image=image,
        purpose=purpose,
        cache=cache,
        beam=beam,
        runs=runs,
        tolerance=tolerance,
        model_signature=model_signature,
        on_failure=on_failure,
        effect=effect,
        not_after=not_after,
        idempotent=idempotent,
        resources=resources,
        concurrent=concurrent,
    )


class _CallableModule(ModuleType):
    """Makes ``from tfopt import component`` usable as the decorator: Python binds this module to that name."""

    def __call__(self, **options: Any) -> Callable[[Callable[..., None]], Component]:
        return component(**options)


sys.modules[__name__].__class__ = _CallableModule
