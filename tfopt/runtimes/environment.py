"""What the process of a SavedModel needs in its environment: ``assets.extra/environment.json`` in its folder.

TensorFlow reads such variables once, when it is imported, so that no model can set them for itself. They travel in its
folder, where TensorFlow Serving leaves them alone, count in its digest, and are pushed with it. `benchmark` and
`validate_serving` start their processes with them, and wherever else such a model is run `tfopt.runtimes.load` gives it
a process that has them; whoever runs a server starts it so, as `push_model` says.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from tfopt.artifacts import Model
from tfopt.errors import ComponentError

FILE = Path("assets.extra", "environment.json")
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
# TensorFlow's own rule for when oneDNN is on unless somebody says (port.cc of 2.21).
HAS_ONEDNN = re.compile(r"\b(avx512_vnni|avx512_bf16|avx_vnni|amx_tile|amx_int8|amx_bf16)\b")


def read(model: Model) -> dict[str, str]:
    """The variables of a model, nothing where it says none; only a SavedModel has such.

    Raises:
        ComponentError: When its file is damaged.
    """
    if model.failure or model.format != "saved_model" or not model.saved_model:
        return {}
    file = model.saved_model / FILE
    return _read(file) if file.is_file() else {}


def lacking(model: Model) -> dict[str, str]:
    """The variables of a model that this process was not started with, so that it must run in another one."""
    return {name: value for name, value in read(model).items() if os.environ.get(name) != value}


def write(saved_model: Path, variables: Mapping[str, str]) -> None:
    """Add variables to those of a SavedModel."""
    file = saved_model / FILE
    known = _read(file) if file.is_file() else {}
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)  # it may be a link to another artifact's
    file.write_text(json.dumps(known | dict(variables), indent=1) + "\n")


def _read(file: Path) -> dict[str, str]:
    try:
        found = json.loads(file.read_text())
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ComponentError(
            f"{file}: {file.read_text(errors='replace')[:100]!r}",
            "an object of texts by the names of variables, as configure_runtime writes it",
            "configure the model again",
        )
    return found


def in_words(variables: Mapping[str, str]) -> str:
    """As they are written before a command.

    >>> in_words({"TF_ENABLE_ONEDNN_OPTS": "0"})
    'TF_ENABLE_ONEDNN_OPTS=0'
    """
    return " ".join(f"{name}={value}" for name, value in variables.items())


def has_onednn(described: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether TensorFlow uses oneDNN in a process that inherits this one's environment, on this machine.

    Args:
        described: What Linux says of the CPU.
    """
    said = os.environ.get(ONEDNN)
    if said:
        return said.lower() not in ("0", "false")
    return described.is_file() and bool(HAS_ONEDNN.search(described.read_text()))
