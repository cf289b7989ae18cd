"""Serving test of a model, in a process of its own: load it from the layout, send requests, compare the outputs."""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import runtimes
from tfopt.artifacts import Examples, Model
from tfopt.artifacts.saved_model_proto import read_meta_graph
from tfopt.artifacts.tensor_spec import TensorSpec, are_compatible, fixed_batch
from tfopt.components.validate_serving.latency import Traffic, measure, measure_rate, sweep
from tfopt.components.validate_serving.parameters import ServingTest
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import draw_inputs, split_batches
from tfopt.error_messages import disk_full_error, first_line
from tfopt.errors import ComponentError
from tfopt.graph_checks.comparison import tolerance_of
from tfopt.processes.subprocess_call import run_in_child
from tfopt.reports.serving_report import RateLatency, ServedModel
from tfopt.runtimes import Runtime, environment
from tfopt.serving import warm_up
from tfopt.serving.layouts import resolve_layout, version_files, write_version
from tfopt.serving.recordings.recorded_requests import Selection, read_recording
from tfopt.serving.servers import Server, compare_signatures, find_server, limit_served_models, serve
from tfopt.storage.remote_files import local_path

Outputs = Mapping[str, NDArray[Any]]

MAX_FAULTS = 8  # in the report
NAME = "model"  # the served name if there is no destination
LOADING = 0.9  # of the time limit: the log of a server that is still loading then can be reported before the limit


def validate(
    model: Model, examples: Examples | None, recording: Path | None, test: ServingTest, *, is_fallback: bool = False
) -> ServedModel:
    """Return the entry of a model in the report.

    Raises:
        ComponentError: If the test cannot be made: examples or a recording that do not fit, a full disk, or a layout
            that cannot hold the format. The latter is a reason in the row of a fallback, which may never be needed.
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
        test = replace(test, destination=str(local_path(test.destination).absolute()))
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        root = Path(folder, Path(test.destination or NAME).name)
        try:
            with limit_served_models((layout, model.format)):
                result = run_in_child(
                    check_server,
                    *(model, examples, recording, test, row, root, time.monotonic() + LOADING * test.max_seconds),
                    doing="serving the model",
                    environment=environment.read_variables(model),
                    limit_s=test.max_seconds,
                    writes=[Path(folder)],
                )
        except ComponentError as error:
            if full := disk_full_error(error):  # not a property of the model
                raise full from error
            return replace(row, reason=error.received)
    if isinstance(result, ComponentError):
        raise result
    served, faults = result
    if fault := _latency_fault(served, test.max_p99_ms):
        faults.append(fault)
    return replace(served, blessed=not faults, reason="; ".join(faults) or _summary(served))


def _latency_fault(served: ServedModel, limit: float | None) -> str | None:
    """Return by how much the latency exceeds a limit, at the rate if there is one; None if it does not."""
    measured = served.at_rate or served.latency
    if limit is None or measured is None or measured.p99_ms <= limit:
        return None
    where = (
        describe_rate(served.at_rate)
        if served.at_rate
        else f"with {served.latency and served.latency.concurrency} clients"
    )
    return f"99% of the requests take up to {measured.p99_ms:.3g} ms {where}, not {limit:g} ms"


def describe_rate(measured: RateLatency) -> str:
    """Return the rate of a measurement, and how many replicas it needs, in words."""
    replicas = f"{measured.replicas} replica{'s' if measured.replicas > 1 else ''}"
    needed = measured.replicas_needed
    times = " at recorded times" if measured.arrivals == "recorded" else ""
    return f"at {measured.rate:.4g}/s{times} by {replicas}{f' ({needed} needed)' if needed else ''}"


def _summary(served: ServedModel) -> str:
    latency, sweep = served.latency, served.sweep
    assert latency  # measured, unless there are faults
    text = (
        f"served by {served.server}: {served.requests} requests with the expected outputs; "
        f"p50 {latency.p50_ms:.3g} ms, p99 {latency.p99_ms:.3g} ms with {latency.concurrency} clients"
    )
    if measured := served.at_rate:
        text += f"; p99 {measured.p99_ms:.3g} ms {describe_rate(measured)}"
    return f"{text}; by the number of clients {sweep.saturation.summary}" if sweep and sweep.saturation else text


def check_server(
    model: Model,
    examples: Examples | None,
    recording: Path | None,
    test: ServingTest,
    row: ServedModel,
    root: Path,
    deadline: float,
) -> tuple[ServedModel, list[str]] | ComponentError:
    """Test a model, and return its row of the report, with results, and the faults.

    The model is laid out below ``root``, whose name is the one by which it is served. At the ``deadline``, a time of
    `time.monotonic`, it must be loaded. An error of the examples or the recording is returned, not raised.

    Raises:
        ComponentError: If the model cannot be loaded or laid out.
    """
    if model.format == "saved_model" and model.saved_model:
        # Servers load what TensorFlow's Python loader refuses, such as foreign assets.
        read_meta_graph(model.saved_model)
    expected = runtimes.load(model)
    try:
        size = fixed_batch(expected.inputs) or test.batch_size
        inputs, source = draw_inputs(examples, expected.inputs, records=test.requests * size)
        requests = list(split_batches(inputs, expected.inputs, test.batch_size))
        traffic = Traffic.at_rate(requests, test)
        if recording:
            recorded = read_recording(recording, expected.inputs, model.signature, Selection())
            traffic = Traffic.recorded(recorded, test)
    except ComponentError as error:
        return error
    row = replace(
        row,
        requests=len(requests),
        inputs={name: str(spec) for name, spec in expected.inputs.items()},
        outputs={name: str(spec) for name, spec in expected.outputs.items()},
        source=source,
        **write_version(model, row.layout, root / "1", examples, test.requests),
    )
    program = find_server(row.layout, model.format)
    faults = program.check_folder(model, root, expected, test) if program else []
    with serve(model, row.layout, root, deadline) as server:
        row = replace(row, server=server.name)
        faults += compare_signatures(expected, server.inputs, server.outputs)
        if faults:  # requests need the right names
            return row, faults
        served, faults = _check_responses(row, server, expected, requests, root / "1", test)
        if faults:
            return served, faults
        return _measure_latency(served, server, requests, traffic, test), []


def _check_responses(
    row: ServedModel, server: Server, expected: Runtime, requests: list[Batch], version: Path, test: ServingTest
) -> tuple[ServedModel, list[str]]:
    faults: list[str] = []
    largest = 0.0
    try:
        call = server.client()
        allowed = tolerance_of(Model(expected.name)) if test.tolerance is None else test.tolerance
        for batch in requests:
            differences, error = compare_outputs(expected.run(batch), call(batch), server.outputs, allowed)
            faults += [fault for fault in differences if fault not in faults]
            largest = max(largest, error)
        if (version / warm_up.FILE).exists():
            for batch in warm_up.read_requests(version):
                call(batch)
    except Exception as error:  # any exception of the server's library
        message = error.received if isinstance(error, ComponentError) else first_line(error)
        return row, [f"a request fails: {message}"]
    row = replace(row, max_error=largest)
    return row, faults[:MAX_FAULTS]


def _measure_latency(
    row: ServedModel, server: Server, requests: list[Batch], traffic: Traffic | None, test: ServingTest
) -> ServedModel:
    clients = [server.client() for _ in range(max(test.concurrency, test.sweep or 0))]
    latency = measure(clients[: test.concurrency], requests, test.seconds)
    row = replace(row, latency=latency)
    if traffic:
        at_rate = measure_rate(clients[: test.concurrency], traffic, test, latency.requests_per_second)
        row = replace(row, at_rate=at_rate)
    if test.sweep:
        row = replace(row, sweep=sweep(clients[: test.sweep], requests, test.seconds))
    return row


def compare_outputs(
    expected: Outputs, served: Outputs, specs: Mapping[str, TensorSpec], tolerance: float
) -> tuple[list[str], float]:
    """Return the faults of a response, one line for each output, and the largest difference.

    The difference is a fraction of the output's range (at least of its largest absolute value).
    """
    faults, largest = [], 0.0
    for name, array in expected.items():
        if name not in served:
            faults.append(f"output {name!r} is not in the response")
            continue
        fault, error = _compare(array, np.asarray(served[name]), specs[name], tolerance)
        largest = max(largest, error)
        if fault:
            faults.append(f"output {name!r}: {fault}")
    return faults, largest


def _compare(expected: NDArray[Any], served: NDArray[Any], spec: TensorSpec, tolerance: float) -> tuple[str, float]:
    dtype = "string" if served.dtype.kind in "OSU" else served.dtype.name
    if dtype != spec.dtype:
        return f"{dtype}, not {spec.dtype}", 0.0
    if not are_compatible(spec, TensorSpec(dtype, served.shape)):
        return f"of shape {list(served.shape)}, not {spec}", 0.0
    if served.shape != expected.shape:
        return f"of shape {list(served.shape)}, not {list(expected.shape)}", 0.0
    if dtype in ("string", "bool"):
        return ("" if np.array_equal(served, expected) else "differs from the model's own output"), 0.0
    values, reference = served.astype(np.float64), expected.astype(np.float64)
    if not np.isfinite(values).all():
        return f"NaN or infinity in {int((~np.isfinite(values)).sum())} of {values.size} values", 0.0
    if not values.size:
        return "", 0.0
    spread = max(float(np.ptp(reference)), float(np.abs(reference).max()), 1e-12)
    error = float(np.abs(values - reference).max()) / spread
    matches = error <= tolerance  # False for NaN, if the model's own output has it
    return ("" if matches else f"differs by {error:.2g} of its range from the model's own output"), error
