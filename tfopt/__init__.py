"""tfopt: TFX and Kubeflow components that make TensorFlow models smaller and faster, and prove it.

Authors of components and pipelines import from here: ``from tfopt import component, Input, Output, Steps``.
Each name is loaded on first use, so that ``import tfopt`` stays cheap. Drop the first word of an import and you have
the path: ``tfopt.components.train.component`` is ``components/train/component.py`` (``docs/adr/0001-layout.md``).
"""

import importlib
import os
import sys
from typing import Any

__version__ = "0.2.0"

if sys.platform != "linux":  # file locks, the fork server and the death signal of child processes are those of Linux
    raise ImportError(
        f"received: Python on {sys.platform}\nexpected: Python on Linux\n"
        "how to fix: run tfopt in a container (docs/images.md), in a virtual machine, or in WSL 2 on Windows"
    )

# By default, the first process in which TensorFlow sees a GPU reserves nearly all its memory, and the other processes
# of a step fail for lack of it. Children inherit the variable, which TensorFlow reads when it first uses a GPU.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

_OF_COMPONENT = ("Between", "Group", "Input", "Output", "Reads", "SameOutput", "component", "find")
PUBLIC = dict.fromkeys(_OF_COMPONENT, "tfopt.component") | {  # with types in __init__.pyi
    "ComponentError": "tfopt.errors",
    "Steps": "tfopt.dag.tracing",
    "optimize": "tfopt.optimization",
}


def __getattr__(name: str) -> Any:
    """Load a public name, or a TFX artifact type, which TFX's container entry point imports as ``tfopt.NAME``."""
    if name in PUBLIC:
        return getattr(importlib.import_module(PUBLIC[name]), name)
    if name[0].isupper():
        for artifact_type in importlib.import_module("tfopt.tfx.components").TYPES.values():
            if f"tfopt.{name}" == artifact_type.TYPE_NAME:
                return artifact_type
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return sorted([*PUBLIC, "__version__"])
