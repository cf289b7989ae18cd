"""Load tools/distribution.py, which is no package."""

import importlib.util
from pathlib import Path
from types import ModuleType

REPOSITORY = "https://example.org/owner/tfopt"
FILE = Path(__file__).parents[2] / "tools" / "distribution.py"


def distribution() -> ModuleType:
    """Return the module."""
    spec = importlib.util.spec_from_file_location("distribution", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
