"""Check of a served model, in a process of its own: load it from the layout, send requests, compare the outputs."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tfopt import runtimes
from tfopt.artifacts import Examples, Model
from tfopt.artifacts.saved_model_proto import read_meta_graph
from tfopt.artifacts.tensor_spec import fixed_batch
from tfopt.components.validate_serving import servers, triton_check
from tfopt.components.validate_serving.latency import measure, sweep
from tfopt.components.validate_serving.output_check import compare_outputs, compare_signatures
from tfopt.components.validate_serving.parameters import ServingTest
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import draw_inputs, split_batches
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.reports.serving_report import ClientSweep, ServedLatency
from tfopt.runtimes import Runtime
from tfopt.serving import triton_config, warm_up
from tfopt.serving.layouts import VersionFacts, write_version
from tfopt.serving.triton_scheduler import Scheduling

MAX_FAULTS = 8  # in the report


@dataclass(frozen=True)
class Task:
    """The arguments of `check_server`: plain values, for another process.

    Attributes:
        model: The model's path.
        layout: A layout other than ``auto``.
        root: The folder to write, with the name by which the server serves the model.
        examples: The examples' path.
        test: Requests and limits.
        user_config: A ``config.pbtxt`` to check instead of a generated one.
        server_program: The server of the layout, if it is to serve the model.
        deadline: The time, by `time.monotonic`, when the server must serve the model.
    """

    model: str
    signature: str
    layout: str
    root: str
    examples: str | None
    test: ServingTest
    user_config: str | None
    server_program: str | None
    deadline: float


class ServedFields(VersionFacts, total=False):
    """Fields of `ServedModel`."""

    requests: int
    inputs: dict[str, str]
    outputs: dict[str, str]
    source: str
    server: str
    max_error: float
    latency: ServedLatency
    sweep: ClientSweep


def check_server(task: Task) -> tuple[ServedFields, list[str]] | ComponentError:
    """Return fields of `ServedModel`, and the faults found. An error of the examples is returned, not raised.

    Raises:
        ComponentError: If the model cannot be loaded or laid out.
    """
    model, root, test = Model(task.model), Path(task.root), task.test
    model.signature = task.signature
    examples = Examples(task.examples) if task.examples else None
    if model.format == "saved_model" and model.saved_model:
        read_meta_graph(
            model.saved_model
        )  # servers load what TensorFlow's Python loader refuses, such as foreign assets
    expected = runtimes.load(model)
    try:
        size = fixed_batch(expected.inputs) or test.batch_size
        inputs, source = draw_inputs(examples, expected.inputs, records=test.requests * size)
    except ComponentError as error:
        return error
    requests = list(split_batches(inputs, expected.inputs, test.batch_size))
    facts: ServedFields = {
        "requests": len(requests),
        "inputs": {name: str(spec) for name, spec in expected.inputs.items()},
        "outputs": {name: str(spec) for name, spec in expected.outputs.items()},
        "source": source,
    }
    facts |= cast(ServedFields, write_version(model, task.layout, root / "1", examples, test.requests))
    faults = _check_triton_config(model, root, expected, task) if task.layout == "triton" else []
    with servers.serve(model, task.layout, root, task.server_program, task.deadline) as server:
        facts["server"] = server.name
        faults += compare_signatures(expected, server.inputs, server.outputs)
        if faults:  # requests need the right names
            return facts, faults
        measured, faults = _check_responses(server, expected, requests, root, test)
        return facts | measured, faults


def _check_triton_config(model: Model, root: Path, expected: Runtime, task: Task) -> list[str]:
    file = root / triton_config.FILE
    if task.user_config is None:
        triton_config.write_config(model, root, Scheduling(task.test.max_batch_size))
    else:
        file.write_text(task.user_config)
    return triton_check.check_config(
        file,
        model.format,
        expected.inputs,
        expected.outputs,
        task.test.batch_size,
        triton_config.largest_batch(model),
    )


def _check_responses(
    server: servers.Server, expected: Runtime, requests: list[Batch], root: Path, test: ServingTest
) -> tuple[ServedFields, list[str]]:
    faults: list[str] = []
    largest = 0.0
    try:
        call = server.client()
        for batch in requests:
            differences, error = compare_outputs(expected.run(batch), call(batch), server.outputs, test.tolerance)
            faults += [fault for fault in differences if fault not in faults]
            largest = max(largest, error)
        if (root / "1" / warm_up.FILE).exists():
            for batch in warm_up.read_requests(root / "1"):
                call(batch)
    except Exception as error:  # any exception of the server's library
        message = error.received if isinstance(error, ComponentError) else first_line(error)
        return {}, [f"a request fails: {message}"]
    facts: ServedFields = {"max_error": largest}
    if faults:
        return facts, faults[:MAX_FAULTS]
    clients = [server.client() for _ in range(max(test.concurrency, test.sweep or 0))]
    facts["latency"] = measure(clients[: test.concurrency], requests, test.seconds)
    if test.sweep:
        facts["sweep"] = sweep(clients[: test.sweep], requests, test.seconds)
    return facts, []
