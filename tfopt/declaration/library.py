"""Find components: those in ``tfopt.components``, and any other by its import path."""

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tfopt.components
from tfopt.declaration.component import Component
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError


def components() -> dict[str, Component]:
    """Return every component of ``tfopt.components`` by name."""
    return {name: find(name) for name in component_names()}


def find(path: str) -> Component:
    """Return the component at ``module:name``, or the component of ``tfopt.components`` with that name.

    Raises:
        ComponentError: If there is none; the message suggests the nearest names.
    """
    if ":" not in path and path not in component_names():
        raise ComponentError(f"component {path!r}", "the name of a component", nearest(path, component_names()))
    module, _, name = path.partition(":") if ":" in path else (f"tfopt.components.{path}.component", "", path)
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise ComponentError(
            f"component {path!r}", "MODULE:NAME, as Python imports it", "write it as in my_steps:clean"
        )
    component = getattr(importlib.import_module(module), name, None)
    if not isinstance(component, Component):
        raise ComponentError(path, "a function decorated with @component", "check the module and the name")
    return component


@functools.cache
def component_names() -> tuple[str, ...]:
    """List the names of the components in ``tfopt.components``."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(tfopt.components.__path__) if module.ispkg))


class ComponentCalls:
    """A base of callable classes: ``steps.NAME(…)`` calls the object with the component of that name."""

    if not TYPE_CHECKING:  # stubs declare every component: type checkers refuse other names

        def __getattr__(self, name: str) -> Callable[..., Any]:
            """Return the call with the component of this name."""
            if name.startswith("__"):
                raise AttributeError(name)
            return functools.partial(self, find(name))

    def __dir__(self) -> list[str]:
        """List the components, which notebooks complete."""
        return sorted([*super().__dir__(), *component_names()])
