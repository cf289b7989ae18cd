"""Read requests from JSON lines: KServe's logger events, and lines with a time and a body.

Source: kserve.github.io, "Inference logger"; CloudEvents 1.0, "JSON event format"; KServe's V1 protocol, which is the
REST API of TensorFlow Serving; "Open Inference Protocol" (V2).
"""

import base64
import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec, describe_specs
from tfopt.data.batches import Batch
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.value_types import JsonObject, JsonValue

RESPONSE = "inference.response"  # the end of the type of an event
BODY_KEYS = ("instances", "inputs")
FIX = "see docs/operate.md for the forms of a line"

Specs = Mapping[str, TensorSpec]


def parse_line(text: str, where: str) -> JsonObject:
    """Parse a line; raise ComponentError if it is not a JSON object."""
    try:
        line = json.loads(text)
    except ValueError as error:
        raise ComponentError(f"{where}: {first_line(error)}", "a JSON object in each line", FIX) from error
    if not isinstance(line, dict):
        raise ComponentError(f"{where}: {type(line).__name__}", "a JSON object in each line", FIX)
    return line


def is_event(line: JsonObject) -> bool:
    """Return True for a CloudEvent."""
    return "specversion" in line


def is_response(line: JsonObject) -> bool:
    """Return True for the event of a response, which is not sent again."""
    return is_event(line) and str(line.get("type", "")).endswith(RESPONSE)


def read_time(line: JsonObject, where: str) -> float | None:
    """Return the time of a line in seconds; None if it has none."""
    value = line.get("time")
    if value is None:
        return None
    try:
        seconds = float(value) if isinstance(value, int | float) else datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        expected = "seconds, or a time such as 2026-11-28T09:00:00.125Z"
        raise ComponentError(f"{where}: time {value!r}", expected, "correct the line, or remove it")
    return seconds


def read_body(line: JsonObject, specs: Specs, where: str) -> Batch:
    """Return the inputs of the request of a line.

    Raises:
        ComponentError: If it has no body, or the body does not have the model's inputs.
    """
    body = _event_data(line, where) if is_event(line) else line
    if not isinstance(body, dict) or not set(BODY_KEYS) & set(body):
        keys = ", ".join(body) if isinstance(body, dict) else type(body).__name__
        raise ComponentError(f"{where}: a request with {keys or 'no keys'}", "instances or inputs", FIX)
    try:
        return _inputs(body, specs)
    except ComponentError as error:
        raise ComponentError(f"{where}: {error.received}", error.expected, error.fix) from error


def _event_data(line: JsonObject, where: str) -> JsonValue:
    if "data_base64" not in line:
        return line.get("data")
    try:
        return parse_line(base64.b64decode(str(line["data_base64"])).decode(), where)
    except ValueError as error:
        expected = "base64 of a JSON body; binary tensors are not read"
        raise ComponentError(f"{where}: data_base64: {first_line(error)}", expected, FIX) from error


def _inputs(body: JsonObject, specs: Specs) -> Batch:
    inputs = body.get("inputs")
    if isinstance(inputs, list) and inputs and all(isinstance(one, dict) and "datatype" in one for one in inputs):
        return {str(one.get("name")): _tensor(one, specs) for one in inputs if isinstance(one, dict)}
    if "instances" in body:
        return {name: _array(value, specs, name) for name, value in _columns(body["instances"], specs).items()}
    named = inputs if isinstance(inputs, dict) and not _is_bytes(inputs) else {_only(specs): inputs}
    return {name: _array(value, specs, name) for name, value in named.items()}


def _columns(instances: JsonValue, specs: Specs) -> JsonObject:
    if not isinstance(instances, list) or not instances:
        raise ComponentError("instances without a record", "a list of records", FIX)
    if not all(isinstance(row, dict) and not _is_bytes(row) for row in instances):
        return {_only(specs): instances}
    rows: list[Any] = instances
    names = list(dict.fromkeys(name for row in rows for name in row))
    if missing := next((name for name in names for row in rows if name not in row), None):
        raise ComponentError(f"an instance without {missing!r}", "the same inputs in all instances", FIX)
    return {name: [row[name] for row in rows] for name in names}


def _only(specs: Specs) -> str:
    if len(specs) != 1:
        raise ComponentError("values without names", f"inputs {describe_specs(specs)}", "name the inputs")
    return next(iter(specs))


def _is_bytes(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"b64"}


def _tensor(tensor: Mapping[str, Any], specs: Specs) -> NDArray[Any]:
    name, shape = str(tensor.get("name")), tensor.get("shape")
    if "data" not in tensor or not isinstance(shape, list):
        raise ComponentError(f"tensor {name!r} without shape or data", "tensors with data in JSON", FIX)
    array = _array(tensor["data"], specs, name)
    try:
        return array.reshape(shape)
    except (ValueError, TypeError) as error:
        received = f"tensor {name!r}: {array.size} values and shape {shape}"
        raise ComponentError(received, "as many values as the shape has", "correct the line, or remove it") from error


def _array(value: Any, specs: Specs, name: str) -> NDArray[Any]:
    """Convert JSON to the dtype of an input; names that the model does not have are left to `check_inputs`."""
    dtype = specs[name].dtype if name in specs else "float32"
    if dtype == "string":
        return np.array(_encode(value), object)
    try:
        array = np.asarray(value)
        typed = array.astype(dtype)
    except (ValueError, TypeError, OverflowError) as error:
        received = f"input {name!r}: {first_line(error)}"
        raise ComponentError(received, f"an array of {dtype}", "correct the line, or remove it") from error
    if typed.dtype.kind in "iub" and not np.array_equal(typed, array):
        received = f"input {name!r}: {array.ravel()[:3].tolist()} …"
        raise ComponentError(received, f"values of {dtype}", "correct the line, or remove it")
    return typed


def _encode(value: Any) -> Any:
    """Return nested lists of texts as bytes."""
    if isinstance(value, list):
        return [_encode(one) for one in value]
    if _is_bytes(value):
        return base64.b64decode(value["b64"])
    return str(value).encode()
