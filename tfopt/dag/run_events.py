"""Events of a run, the same for every engine: the source of log lines, traces, lineage and metrics.

An engine reports its steps here; `tfopt.run_records` reports the run. The log records have the step as the attribute
``step_started`` or ``step_ended``, for handlers that show the progress.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tfopt.artifacts import Artifact
from tfopt.component import Component
from tfopt.dag.dag import Dag, Step
from tfopt.dag.outcome import Outcome

log = logging.getLogger(__name__)

Inputs = Mapping[str, Sequence[Artifact]]


@dataclass(frozen=True, kw_only=True)
class RunEvent:
    """Something that happened in a run."""

    time_ns: int = field(default_factory=time.time_ns)  # since 1970, UTC


@dataclass(frozen=True)
class RunStarted(RunEvent):
    """The start of a run of a DAG."""

    id: str  # UUID
    pipeline: str
    engine: str


@dataclass(frozen=True)
class StepStarted(RunEvent):
    """The start of a step; outside of a run of a DAG its name is that of its component."""

    step: str
    component: Component
    parameters: Mapping[str, Any]
    inputs: Inputs


@dataclass(frozen=True)
class StepEnded(RunEvent):
    """The end of a step: with an outcome, or with an error."""

    step: str
    outcome: Outcome | None = None
    error: BaseException | None = None


@dataclass(frozen=True)
class RunEnded(RunEvent):
    """The end of a run; steps that have not ended before failed with its error."""

    error: BaseException | None = None
    selected: str | None = None
    pushed: str | None = None  # folder or address


Listener = Callable[[RunEvent], None]
_listeners: list[Listener] = []


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call a function with each event until the context ends, in the thread in which it happens."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def publish(event: RunEvent) -> None:
    """Pass an event to all listeners."""
    for listener in _listeners:
        listener(event)


def report_start(dag: Dag, step: Step, values: Mapping[str, Any], inputs: Inputs) -> None:
    """Report and log that a step starts, with its number in the DAG."""
    publish(StepStarted(step.id, step.component, step.resolve(values), inputs))
    log.info("%s %s …", _number(dag, step.id), step.id, extra={"step_started": step.id})


def report_end(dag: Dag, step: str, outcome: Outcome) -> None:
    """Report and log that a step has ended, with its time unless the outputs of an earlier run are reused."""
    publish(StepEnded(step, outcome))
    facts = {"step_ended": step, "step_reused": outcome.reused}
    result = "reused" if outcome.reused else f"done in {outcome.seconds:.1f} s"
    log.info("%s %s: %s", _number(dag, step), step, result, extra=facts)


@contextlib.contextmanager
def reporting_failure(step: str) -> Iterator[None]:
    """Report the exception that ends a step."""
    try:
        yield
    except BaseException as error:
        publish(StepEnded(step, error=error))
        raise


def run_reported(
    component: Component, arguments: Mapping[str, Any], addresses: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Artifact]:
    """Call a component outside of a DAG, and report it as a step, with addresses in place of paths."""

    def located(kind: type[Artifact], path: Any) -> Artifact:
        return kind(addresses.get(os.fspath(path), os.fspath(path)))

    parameters = {name: value for name, value in arguments.items() if name in component.parameters}
    paths = {name: arguments[name] for name in component.inputs if arguments.get(name)}
    listed = {name: path if isinstance(path, list | tuple) else [path] for name, path in paths.items()}
    inputs = {name: [located(component.inputs[name].type, path) for path in each] for name, each in listed.items()}
    start = time.monotonic()
    publish(StepStarted(component.name, component, parameters, inputs))
    with reporting_failure(component.name):
        outputs = component(**arguments)
    reported = {name: located(type(output), output.uri) for name, output in outputs.items()}
    publish(StepEnded(component.name, Outcome(False, time.monotonic() - start, reported)))
    return outputs


def _number(dag: Dag, step: str) -> str:
    return f"[{list(dag.steps).index(step) + 1}/{len(dag.steps)}]"
