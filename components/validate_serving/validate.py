"""Serving test of one model: layout, check in a separate process, result."""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tfopt.artifacts import Examples, Model
from tfopt.components.validate_serving.parameters import ServingTest
from tfopt.components.validate_serving.server_check import check_server
from tfopt.error_messages import disk_full_error
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child
from tfopt.reports.serving_report import ServedModel
from tfopt.runtimes import environment
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
    row = ServedModel(
        *(model.name, model.digest, model.format, layout), server="", blessed=False, reason="", latency=None, sweep=None
    )
    try:
        version_files(model, layout)
    except ComponentError as error:
        if not is_fallback:
            raise
        return replace(row, reason=error.received)
    if test.destination:
        test = replace(test, destination=str(Path(test.destination).expanduser().absolute()))
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        root = Path(folder, Path(test.destination or NAME).name)
        try:
            result = run_in_child(
                check_server,
                *(model, examples, test, row, root, time.monotonic() + LOADING * test.max_seconds),
                doing="serving the model",
                environment=environment.read_variables(model),
                limit_s=test.max_seconds,
            )
        except ComponentError as error:
            if full := disk_full_error(error):  # not a property of the model
                raise full from error
            return replace(row, reason=error.received)
    if isinstance(result, ComponentError):
        raise result
    served, faults = result
    limit = test.max_p99_ms
    if limit is not None and served.latency and served.latency.p99_ms > limit:
        p99 = served.latency.p99_ms
        faults.append(f"99% of the requests take up to {p99:.3g} ms with {test.concurrency} clients, not {limit:g} ms")
    return replace(served, blessed=not faults, reason="; ".join(faults) or _summary(served))


def _summary(served: ServedModel) -> str:
    latency, sweep = served.latency, served.sweep
    assert latency  # measured, unless there are faults
    text = (
        f"served by {served.server}: {served.requests} requests with the expected outputs; "
        f"p50 {latency.p50_ms:.3g} ms, p99 {latency.p99_ms:.3g} ms with {latency.concurrency} clients"
    )
    return f"{text}; by the number of clients {sweep.saturation.summary}" if sweep and sweep.saturation else text
