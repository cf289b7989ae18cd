"""Serving test of one model: layout, check in a separate process, result."""

import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from tfopt.artifacts import Examples, Model
from tfopt.components.validate_serving import model_server, triton_server
from tfopt.components.validate_serving.parameters import ServingTest
from tfopt.components.validate_serving.server_check import Task, check_server
from tfopt.error_messages import disk_full_error
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child
from tfopt.reports.serving_report import ServedModel
from tfopt.runtimes import environment
from tfopt.serving import triton_config
from tfopt.serving.layouts import resolve_layout, version_files

NAME = "model"  # the served name if there is no destination
LOADING = 0.9  # of the time limit: the log of a server that is still loading then can be reported before the limit


def validate(model: Model, examples: Examples | None, test: ServingTest, *, is_fallback: bool = False) -> ServedModel:
    """Return the entry of a model in the report.

    Raises:
        ComponentError: If the test cannot be made: examples that do not fit, a full disk, or a layout that cannot hold
            the format. The latter is a reason in the row of a fallback, which may never be needed.
    """
    layout = resolve_layout(model, test.layout)
    failed = partial(
        ServedModel, model.name, model.digest, model.format, layout, server="", blessed=False, latency=None, sweep=None
    )
    try:
        version_files(model, layout)
    except ComponentError as error:
        if not is_fallback:
            raise
        return failed(reason=error.received)
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        destination = Path(test.destination).expanduser().absolute() if test.destination else None
        task = Task(
            model=model.uri,
            signature=model.signature,
            layout=layout,
            root=str(Path(folder, destination.name if destination else NAME)),
            examples=examples.uri if examples else None,
            test=test,
            user_config=_user_config(destination) if layout == "triton" else None,
            server_program=_server_program(layout, model.format),
            deadline=time.monotonic() + LOADING * test.max_seconds,
        )
        try:
            result = run_in_child(
                check_server,
                task,
                doing="serving the model",
                environment=environment.read_variables(model),
                limit_s=test.max_seconds,
            )
        except ComponentError as error:
            if full := disk_full_error(error):  # not a property of the model
                raise full from error
            return failed(reason=error.received)
    if isinstance(result, ComponentError):
        raise result
    facts, faults = result
    served = replace(failed(reason=""), **facts)
    limit = test.max_p99_ms
    if limit is not None and served.latency and served.latency.p99_ms > limit:
        p99 = served.latency.p99_ms
        faults.append(f"99% of the requests take up to {p99:.3g} ms with {test.concurrency} clients, not {limit:g} ms")
    return replace(served, blessed=not faults, reason="; ".join(faults) or _summary(served))


def _server_program(layout: str, format: str) -> str | None:
    """Return the path of the server itself, if the machine has one that serves the format."""
    if layout == "triton":
        return triton_server.find_program(format)
    return model_server.find_program() if layout == "tf_serving" and format == "saved_model" else None


def _user_config(destination: Path | None) -> str | None:
    """Return a configuration at the destination that push_model would not overwrite."""
    file = destination and destination / triton_config.FILE
    text = file.read_text() if file and file.is_file() else triton_config.HEADER
    return None if text.startswith(triton_config.HEADER) else text


def _summary(served: ServedModel) -> str:
    latency, sweep = served.latency, served.sweep
    assert latency  # measured, unless there are faults
    text = (
        f"served by {served.server}: {served.requests} requests with the expected outputs; "
        f"p50 {latency.p50_ms:.3g} ms, p99 {latency.p99_ms:.3g} ms with {latency.concurrency} clients"
    )
    return f"{text}; by the number of clients {sweep.saturation.summary}" if sweep and sweep.saturation else text
