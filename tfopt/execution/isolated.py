"""Run a component in a process of its own."""

from typing import Any

from tfopt.declaration.library import find
from tfopt.execution.execute import check_declared
from tfopt.processes.subprocess_call import run_in_child


def run_component(name: str, arguments: dict[str, Any], *, doing: str, limit_s: float | None = None) -> None:
    """Run a component, found by name, in a new process; see `run_in_child`."""
    check_declared(find(name))
    run_in_child(_run, name, arguments, doing=doing, limit_s=limit_s)


def _run(name: str, arguments: dict[str, Any]) -> None:
    find(name)(**arguments)
