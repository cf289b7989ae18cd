"""Read and write the environment variables of a SavedModel: ``assets.extra/environment.json`` in its folder.

TensorFlow reads such variables once, at import, so a model cannot set them itself. They are stored in the model's
folder, where TensorFlow Serving ignores them; they are part of its digest and are pushed with it. `benchmark` and
`validate_serving` start their processes with them, and `tfopt.runtimes.load` starts a process that has them. A model
server must be started with them, as `push_model` reports.
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
# CPU flags for which TensorFlow enables oneDNN by default (port.cc of 2.21).
HAS_ONEDNN = re.compile(r"\b(avx512_vnni|avx512_bf16|avx_vnni|amx_tile|amx_int8|amx_bf16)\b")


def read_variables(model: Model) -> dict[str, str]:
    """Return the environment variables of a model; empty for formats other than SavedModel.

    Raises:
        ComponentError: If the file is damaged.
    """
    if model.failure or model.format != "saved_model" or not model.saved_model:
        return {}
    file = model.saved_model / FILE
    return _read(file) if file.is_file() else {}


def missing_variables(model: Model) -> dict[str, str]:
    """Return the variables of a model that this process lacks, so that the model needs another process."""
    return {name: value for name, value in read_variables(model).items() if os.environ.get(name) != value}


def add_variables(saved_model: Path, variables: Mapping[str, str]) -> None:
    """Add environment variables to a SavedModel."""
    file = saved_model / FILE
    stored = _read(file) if file.is_file() else {}
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)  # it may be a hard link to the file of another artifact
    file.write_text(json.dumps(stored | dict(variables), indent=1) + "\n")


def _read(file: Path) -> dict[str, str]:
    try:
        variables = json.loads(file.read_text())
    except (ValueError, RecursionError):
        variables = None
    if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
        received = f"{file}: {file.read_text(errors='replace')[:100]!r}"
        expected = "a JSON object with strings by variable names, as configure_runtime writes it"
        raise ComponentError(received, expected, "configure the model again")
    return variables


def format_variables(variables: Mapping[str, str]) -> str:
    """Format variables as a prefix of a shell command.

    >>> format_variables({"TF_ENABLE_ONEDNN_OPTS": "0"})
    'TF_ENABLE_ONEDNN_OPTS=0'
    """
    return " ".join(f"{name}={value}" for name, value in variables.items())


def has_onednn(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return True if TensorFlow uses oneDNN on this machine in a process with this environment."""
    setting = os.environ.get(ONEDNN)
    if setting:
        return setting.lower() not in ("0", "false")
    return cpuinfo.is_file() and bool(HAS_ONEDNN.search(cpuinfo.read_text()))
