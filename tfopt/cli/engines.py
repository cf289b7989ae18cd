"""The engines of ``tfopt run``: choice of the default, and import of the one that runs."""

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from tfopt.cli.terminal.log_redirect import redirect_library_logs
from tfopt.dag.dag import Dag
from tfopt.dag.outcome import Outcome
from tfopt.dag.planned_step import PlannedStep
from tfopt.errors import ComponentError
from tfopt.run_records.run_cost import compute_cost
from tfopt.run_records.run_record import add_decision, add_inputs, recorded_run
from tfopt.telemetry.delivery import exported

ENGINES = {
    "beam": "TFX's Beam runner, with ML Metadata",
    "local": "TFX's local runner, with ML Metadata",
    "process": "in this process and its children, without TFX",
}
BLOCKED = ("tensorflow", "tensorflow_model_analysis", "tensorflow_data_validation", "tensorflow_transform", "tfx_bsl")
INCOMPLETE = ("tfx.components.", "tfx_bsl.")  # without TensorFlow, TFX defines these components as None


def default_engine() -> str:
    """Return ``beam`` if TFX is installed, else ``process``."""
    return "beam" if _has_tfx() else "process"


def check_engine(engine: str) -> None:
    """Raise ComponentError if TFX is not installed and the engine needs it."""
    if engine != "process" and not _has_tfx():
        fix = "pass --engine process, which needs no TFX, or pip install 'tfopt[tfx]'"
        raise ComponentError(f"--engine {engine}, and TFX is not installed", "the package tfx", fix)


def load_engine(engine: Literal["beam", "local", "process"]) -> Callable[..., dict[str, Outcome]]:
    """Import an engine, which for those of TFX takes seconds, and return its function ``run``."""
    if engine == "process":
        from tfopt.process_engine import runner  # only the chosen engine

        return runner.run
    with _blocked_imports():
        from tfopt.tfx import runner as tfx_runner  # imports TFX

        tfx_runner.import_runner(engine)
    return partial(tfx_runner.run, engine=engine)


def run_recorded(
    dag: Dag,
    values: Mapping[str, Any],
    root: Path,
    engine: Literal["beam", "local", "process"],
    price: float | None = None,
    **options: Any,
) -> dict[str, Outcome]:
    """Run a DAG with an engine and the options of its ``run``; show the progress, and record the run in its folder.

    The record has the cost of the run, with the ``price`` of an hour of this machine.
    """
    dag = dag.with_sources(values)
    sources, parameters = ({name: values[name] for name in names} for names in (dag.sources, dag.parameters))
    facts = {"engine": engine, "sources": sources, "parameters": parameters}
    with (
        redirect_library_logs(root / "run.log", len(dag.steps)),
        exported(),
        recorded_run(root, dag.name, **facts) as record,
    ):
        run, start = load_engine(engine), time.monotonic()
        outcomes = run(dag, values, root, **options)
        record.cost = compute_cost(dag, values, outcomes, time.monotonic() - start, price)
        artifacts = [output for outcome in outcomes.values() for output in outcome.outputs.values()]
        add_decision(record, root, artifacts)
        add_inputs(record, dag, values, outcomes)
    return outcomes


def load_plan(engine: str) -> Callable[..., dict[str, PlannedStep]]:
    """Import the function ``plan`` of an engine."""
    if engine == "process":
        from tfopt.process_engine import runner  # only the chosen engine

        return runner.plan
    with _blocked_imports():
        from tfopt.tfx import plan as tfx_plan  # imports TFX
    return tfx_plan.plan


@contextlib.contextmanager
def _blocked_imports() -> Iterator[None]:
    """Let TFX be imported as where TensorFlow is not installed.

    TFX imports it for the documentation of its classes, for remote file systems, and for its standard components.
    tfopt's runner uses none of these, and a run that only reuses results would spend half of its time there. All of
    them can be imported as usual afterwards.
    """
    if not {"tensorflow", "tfx"}.isdisjoint(sys.modules):
        yield
        return
    for name in BLOCKED:
        sys.modules[name] = None  # type: ignore[assignment]  # an import raises ModuleNotFoundError
    try:
        yield
    finally:
        for name in [name for name in sys.modules if _is_incomplete(name)]:
            parent, _, child = name.rpartition(".")
            del sys.modules[name]
            if parent in sys.modules:
                vars(sys.modules[parent]).pop(child, None)


def _is_incomplete(name: str) -> bool:
    if name in BLOCKED or f"{name}.".startswith(INCOMPLETE):
        return True
    # Python removes a package whose import fails, such as keras, but not those of its submodules that were imported.
    words = name.split(".")
    return any(".".join(words[:count]) not in sys.modules for count in range(1, len(words)))


def _has_tfx() -> bool:
    spec = importlib.util.find_spec("tfx")
    return spec is not None and spec.origin is not None  # a folder without code that is called tfx has no origin
