"""Components and pipelines on Kubeflow Pipelines v2: compiler, client, schedules, and the step in the container.

The compiler's names are loaded on first use, because a container of a step has no kfp.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfopt.kfp.native_steps import Steps as Steps
    from tfopt.kfp.native_steps import steps as steps


def __getattr__(name: str) -> Any:
    """Load ``steps``, or a public name of `tfopt.kfp.compiler`."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "native_steps" if name in ("steps", "Steps") else "compiler"
    return getattr(importlib.import_module(f"tfopt.kfp.{module}"), name)
