"""The engines of ``tfopt run``: choice of the default, and import of the one that runs."""

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Literal

from tfopt.dag.outcome import Outcome
from tfopt.errors import ComponentError

ENGINES = {
    "beam": "TFX's Beam runner, with ML Metadata",
    "local": "TFX's local runner, with ML Metadata",
    "process": "one step after another in this process, without TFX",
}


def default_engine() -> str:
    """Return ``beam`` if TFX is installed, else ``process``."""
    return "beam" if _has_tfx() else "process"


def check_engine(engine: str) -> None:
    """Raise ComponentError if TFX is not installed and the engine needs it."""
    if engine != "process" and not _has_tfx():
        raise ComponentError(
            f"--engine {engine}, and TFX is not installed",
            "the package tfx",
            "pass --engine process, which needs no TFX, or install tfopt[tfx]",
        )


def load_engine(engine: Literal["beam", "local", "process"]) -> Callable[..., dict[str, Outcome]]:
    """Import an engine, which for those of TFX takes seconds, and return its function ``run``."""
    if engine == "process":
        from tfopt.process_engine import runner

        return runner.run
    from tfopt.tfx import runner as tfx_runner

    return partial(tfx_runner.run, engine=engine)


def _has_tfx() -> bool:
    spec = importlib.util.find_spec("tfx")
    return spec is not None and spec.origin is not None  # a folder without code that is called tfx has no origin
