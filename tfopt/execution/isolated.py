"""Run a component in a process of its own."""

from tfopt.declaration.component import TRUST_MODEL_CODE
from tfopt.declaration.library import find
from tfopt.execution.execute import check_declared
from tfopt.keras_models.model_code import is_trusted
from tfopt.processes.subprocess_call import calls_in_this_process, run_in_child


def run_component(name: str, arguments: dict[str, object], *, doing: str, limit_s: float | None = None) -> None:
    """Run a component, found by name, in a new process that also does its conversions; see `run_in_child`."""
    component = find(name)
    check_declared(component)
    if component.model_signature and is_trusted():
        arguments = {**arguments, TRUST_MODEL_CODE.name: True}
    run_in_child(_run, name, arguments, doing=doing, limit_s=limit_s)


def _run(name: str, arguments: dict[str, object]) -> None:
    with calls_in_this_process():
        find(name)(**arguments)
