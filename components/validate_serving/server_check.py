"""In a process of its own: load the model from the layout, ask it, and hold what it says against what it should."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import Examples, Model
from tfopt.artifacts.tensor_spec import fixed_batch
from tfopt.components.validate_serving import servers, triton_config
from tfopt.components.validate_serving.answer_check import differences, signature_faults
from tfopt.components.validate_serving.latency import measure, sweep
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import cut, probe
from tfopt.errors import ComponentError, first_line
from tfopt.runtimes import Runtime
from tfopt.serving import triton_config as triton
from tfopt.serving import warm_up
from tfopt.serving.layouts import lay_out


@dataclass(frozen=True)
class Task:
    """What is asked of which model; plain values, for another process.

    Attributes:
        root: The folder to make, called as the model is by its server.
        own_config: A ``config.pbtxt`` to check in place of ours.
        binary: The server of the layout itself, if that is to serve it.
        until: When it must serve it, by `time.monotonic`.
    """

    model: str
    layout: str
    root: str
    examples: str | None
    requests: int
    batch_size: int
    concurrency: int
    sweep: int
    seconds: float
    tolerance: float
    max_batch_size: int
    own_config: str | None
    binary: str | None
    until: float


def ask(task: Task) -> dict[str, Any] | ComponentError:
    """Return the facts, ``faults`` among them; an error of the examples as it is.

    Raises:
        ComponentError: When the model cannot be loaded or laid out.
    """
    model, root = Model(task.model), Path(task.root)
    examples = Examples(task.examples) if task.examples else None
    expected = runtimes.load(model)
    try:
        size = fixed_batch(expected.inputs) or task.batch_size
        given, source = probe(examples, expected.inputs, records=task.requests * size)
    except ComponentError as error:
        return error
    asked = list(cut(given, expected.inputs, task.batch_size))
    beside = lay_out(model, task.layout, root / "1", examples, task.requests)
    facts: dict[str, Any] = {
        **beside,
        "requests": len(asked),
        "inputs": {name: str(spec) for name, spec in expected.inputs.items()},
        "outputs": {name: str(spec) for name, spec in expected.outputs.items()},
        "source": source,
        "faults": [],
    }
    if task.layout == "triton":
        facts["faults"] += _triton_faults(model, root, expected, task)
    with servers.serve(model, task.layout, root, task.binary, task.until) as server:
        facts["server"] = server.name
        facts["faults"] += signature_faults(expected, server.inputs, server.outputs)
        if facts["faults"]:  # what is called by other names cannot be asked
            return facts
        return facts | _answered(server, expected, asked, root, task)


def _triton_faults(model: Model, root: Path, expected: Runtime, task: Task) -> list[str]:
    if task.own_config is None:
        triton.write_config(model, root, triton.Scheduling(task.max_batch_size))
    else:
        (root / triton.FILE).write_text(task.own_config)
    return triton_config.faults(
        root / triton.FILE,
        model.format,
        expected.inputs,
        expected.outputs,
        task.batch_size,
        triton.largest_batch(model),
    )


def _answered(server: servers.Server, expected: Runtime, asked: list[Batch], root: Path, task: Task) -> dict[str, Any]:
    faults: list[str] = []
    largest = 0.0
    try:
        answer = server.client()
        for batch in asked:
            found, error = differences(expected.run(batch), answer(batch), server.outputs, task.tolerance)
            faults += [fault for fault in found if fault not in faults]
            largest = max(largest, error)
        if (root / "1" / warm_up.FILE).exists():
            for batch in warm_up.read_requests(root / "1"):
                answer(batch)
    except Exception as error:  # whatever its library raises
        said = error.received if isinstance(error, ComponentError) else first_line(error)
        return {"faults": [f"a request fails: {said}"]}
    facts = {"faults": faults[:8], "max_error": largest}
    if faults:
        return facts
    clients = [server.client() for _ in range(max(task.concurrency, task.sweep))]
    facts["latency"] = measure(clients[: task.concurrency], asked, task.seconds)
    if task.sweep:
        facts["sweep"] = sweep(clients[: task.sweep], asked, task.seconds)
    return facts
