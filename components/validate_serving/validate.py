"""Serving test of one model: layout, check in a separate process, result."""

import tempfile
import time
from pathlib import Path
from typing import Any

from tfopt.artifacts import Examples, Model
from tfopt.components.validate_serving import model_server, triton_server
from tfopt.components.validate_serving.parameters import ServingTest
from tfopt.components.validate_serving.server_check import Task, check_server
from tfopt.errors import ComponentError, disk_full_error
from tfopt.processes.subprocess_call import run_in_child
from tfopt.runtimes import environment
from tfopt.serving import triton_config
from tfopt.serving.layouts import resolve_layout, version_files

NAME = "model"  # the served name if there is no destination
LOADING = 0.9  # of the time limit: the log of a server that is still loading then can be reported before the limit


def validate(
    model: Model, examples: Examples | None, test: ServingTest, *, is_fallback: bool = False
) -> dict[str, Any]:
    """Return the row of a model in the report: ``blessed``, ``reason``, and all measurements.

    Raises:
        ComponentError: If the test cannot be made: examples that do not fit, a full disk, or a layout that cannot hold
            the format. The latter is a reason in the row of a fallback, which may never be needed.
    """
    layout = resolve_layout(model, test.layout)
    row: dict[str, Any] = {
        "name": model.name,
        "digest": model.digest,
        "format": model.format,
        "layout": layout,
        "server": "",
        "blessed": False,
        "reason": "",
        "latency": None,
        "sweep": None,
    }
    try:
        version_files(model, layout)
    except ComponentError as error:
        if not is_fallback:
            raise
        return row | {"reason": error.received}
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        destination = Path(test.destination).expanduser().absolute() if test.destination else None
        task = Task(
            model=model.uri,
            layout=layout,
            root=str(Path(folder, destination.name if destination else NAME)),
            examples=examples.uri if examples else None,
            test=test,
            user_config=_user_config(destination) if layout == "triton" else None,
            server_program=_server_program(layout, model.format),
            deadline=time.monotonic() + LOADING * test.max_seconds,
        )
        try:
            facts = run_in_child(
                check_server,
                task,
                doing="serving the model",
                environment=environment.read_variables(model),
                limit_s=test.max_seconds,
            )
        except ComponentError as error:
            if full := disk_full_error(error):  # not a property of the model
                raise full from error
            return row | {"reason": error.received}
    if isinstance(facts, ComponentError):
        raise facts
    faults = list(facts.pop("faults"))
    row |= facts
    p99, limit = (row["latency"] or {}).get("p99_ms"), test.max_p99_ms
    if limit is not None and p99 is not None and p99 > limit:
        faults.append(f"99% of the requests take up to {p99:.3g} ms with {test.concurrency} clients, not {limit:g} ms")
    return row | {"blessed": not faults, "reason": "; ".join(faults) or _summary(row)}


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


def _summary(row: dict[str, Any]) -> str:
    latency, sweep = row["latency"], row["sweep"]
    return (
        f"served by {row['server']}: {row['requests']} requests with the expected outputs; "
        f"p50 {latency['p50_ms']:.3g} ms, p99 {latency['p99_ms']:.3g} ms with {latency['concurrency']} clients"
    ) + (f"; by the number of clients {sweep['saturation']['said']}" if sweep else "")
