"""The components: one folder each, a typed function in ``component.py`` and its modules next to it.

``from tfopt.components import prune`` gives the component, loaded on first use. A component imports `tfopt`,
and no other component.
"""

import importlib
import sys
from types import ModuleType
from typing import Any


class _Components(ModuleType):
    """Resolves ``tfopt.components.NAME`` to the component, also after Python imported its folder as a package."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and value.__name__ == f"{__name__}.{name}"):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(importlib.import_module(f"{__name__}.{name}.component"), name)
        except ModuleNotFoundError as error:
            if error.name and error.name.startswith(f"{__name__}.{name}"):
                raise AttributeError(f"module {__name__!r} has no component {name!r}") from None
            raise


sys.modules[__name__].__class__ = _Components
