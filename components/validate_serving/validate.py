"""From a model to a verdict: laid out, loaded in a process of its own, asked, and judged."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfopt.artifacts import Examples, Model
from tfopt.components.validate_serving import model_server, triton_server
from tfopt.components.validate_serving.server_check import Task, ask
from tfopt.errors import ComponentError, no_room
from tfopt.processes.subprocess_call import run_in_child
from tfopt.runtimes import environment
from tfopt.serving import triton_config as triton
from tfopt.serving.layouts import contents, layout_of

NAME = "model"  # what it is called by its server, where the destination does not say
LOADING = 0.9  # of all the time: a server that is still loading then can be quoted before that is up


@dataclass(frozen=True)
class Trial:
    """How a model is tried; see `validate_serving`."""

    layout: str
    destination: str | None
    requests: int
    batch_size: int
    concurrency: int
    sweep: int
    seconds: float
    max_p99_ms: float | None
    max_seconds: float
    tolerance: float
    max_batch_size: int


def validate(model: Model, examples: Examples | None, trial: Trial, *, spare: bool = False) -> dict[str, Any]:
    """Return the row of a model: ``blessed``, ``reason``, and what was found.

    Raises:
        ComponentError: When the trial itself cannot be made: examples that do not fit, a full disk, or a layout that
            cannot hold the format; of a spare model, which may never be needed, the latter is the reason in its row.
    """
    layout = layout_of(model, trial.layout)
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
        contents(model, layout)
    except ComponentError as error:
        if not spare:
            raise
        return row | {"reason": error.received}
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        place = Path(trial.destination).expanduser().absolute() if trial.destination else None
        root = Path(folder, place.name if place else NAME)
        task = Task(
            model.uri, layout, str(root), examples.uri if examples else None, trial.requests, trial.batch_size,
            trial.concurrency, trial.sweep, trial.seconds, trial.tolerance, trial.max_batch_size,
            _own_config(place) if layout == "triton" else None, _binary(layout, model.format),
            time.monotonic() + LOADING * trial.max_seconds,
        )  # fmt: skip
        try:
            found = run_in_child(
                *(ask, task),
                doing="serving the model",
                environment=environment.read(model),
                limit_s=trial.max_seconds,
            )
        except ComponentError as error:
            if full := no_room(error):  # which says nothing about the model
                raise full from error
            return row | {"reason": error.received}
    if isinstance(found, ComponentError):
        raise found
    faults = list(found.pop("faults"))
    row |= found
    p99, limit = (row["latency"] or {}).get("p99_ms"), trial.max_p99_ms
    if limit is not None and p99 is not None and p99 > limit:
        faults.append(f"99% of the answers take up to {p99:.3g} ms with {trial.concurrency} clients, not {limit:g} ms")
    return row | {"blessed": not faults, "reason": "; ".join(faults) or _in_words(row)}


def _binary(layout: str, format: str) -> str | None:
    """The server itself, where the machine has one that serves such a model."""
    if layout == "triton":
        return triton_server.binary(format)
    return model_server.binary() if layout == "tf_serving" and format == "saved_model" else None


def _own_config(destination: Path | None) -> str | None:
    """A configuration at the destination that push_model would leave as it is."""
    file = destination and destination / triton.FILE
    text = file.read_text() if file and file.is_file() else triton.OURS
    return None if text.startswith(triton.OURS) else text


def _in_words(row: dict[str, Any]) -> str:
    latency, sweep = row["latency"], row["sweep"]
    return (
        f"served by {row['server']}: {row['requests']} requests answered as expected; p50 {latency['p50_ms']:.3g} ms, "
        f"p99 {latency['p99_ms']:.3g} ms with {latency['concurrency']} clients"
    ) + (f"; by the number of clients {sweep['saturation']['said']}" if sweep else "")
