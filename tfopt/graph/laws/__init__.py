"""One law per file, found by listing the folder: `README.md` says how a file is made."""

import importlib
import pkgutil
from functools import cache
from typing import Any

from tfopt.graph.law import LocalLaw, SearchLaw, WholeGraphLaw


@cache
def laws() -> dict[str, LocalLaw | SearchLaw[Any] | WholeGraphLaw]:
    """Every law by the name of its file."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}").LAW for name in names}
