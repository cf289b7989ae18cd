"""Declare a typed Python function as a component; its signature is the only declaration.

    @component(image="tf")
    def prune(model: Input[KerasModel], pruned: Output[KerasModel], *, sparsity: float = 0.5) -> None: ...

The TFX and KFP components, the command line, the JSON schema and ``component.yaml`` are generated from it. A component
can still be called with paths, without an engine: ``prune(model="a/", pruned="b/", sparsity=0.8)``.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tfopt.declaration.component import (
    Component,
    Declaration,
    Effect,
    Group,
    Input,
    Output,
    Port,
    Resources,
    SameOutput,
)
from tfopt.declaration.library import components, find
from tfopt.declaration.parameters import Between, Names, Reads, SameAs
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
    "SameAs",
    "SameOutput",
    "component",
    "components",
    "find",
]


class Decorator(Declaration):
    """Declare a function as a component: ``@component(image="tf")``. The arguments are those of `Declaration`."""

    def __call__(self, function: Callable[..., None]) -> Component:
        """Return the component."""
        return Component(function, execute, **vars(self))


component = Decorator


class _CallableModule(ModuleType):
    """Makes ``from tfopt import component`` usable as the decorator: Python binds this module to that name."""

    def __call__(self, **options: Any) -> Decorator:
        return component(**options)


sys.modules[__name__].__class__ = _CallableModule
