"""Read recorded requests: request logs of TensorFlow Serving, tf.Example records, and JSON lines.

Source: ``prediction_log.proto`` and ``logging.proto`` of ``tensorflow_serving``.
"""

import gzip
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.artifacts.tensor_spec import TensorSpec, batched_tensors
from tfopt.data.batches import Batch, read_batches
from tfopt.data.feature_schema import label_of, match_features, required_features, stored_features
from tfopt.data.sample_inputs import count_records, split_batches
from tfopt.data.tfrecords import read_records
from tfopt.errors import ComponentError, ExamplesError
from tfopt.runtimes.runtime import check_inputs
from tfopt.serving import warm_up
from tfopt.serving.recordings import json_lines

EVENTS, LINES = "KServe's logger events", "JSON lines"
LOG, EXAMPLES = "TensorFlow Serving's request log", "tf.Example records"
FORMS = f"{LOG} (TFRecord of PredictionLog), TFRecords of tf.Example, {EVENTS} or JSON lines with requests"
OTHER_LOGS = ("classify_log", "regress_log", "multi_inference_log", "session_run_log", "predict_streamed_log")
BLOCK = 256  # records that are parsed at once

Specs = Mapping[str, TensorSpec]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """A recorded request."""

    inputs: Batch
    time: float | None  # seconds; None if it was not recorded
    slices: Mapping[str, NDArray[Any]]  # by name, a value for each record
    records: int
    missing: tuple[str, ...] = ()  # inputs of the model that it does not have


@dataclass(frozen=True)
class Recording:
    """The requests of a recording, in the order of their times."""

    source: str
    requests: list[Request]
    skipped: int  # requests to other signatures

    @property
    def records(self) -> int:
        """Return the number of records."""
        return sum(request.records for request in self.requests)

    @property
    def times(self) -> NDArray[np.float64] | None:
        """Return the times in seconds from the first; None if they were not recorded."""
        if self.requests[0].time is None:
            return None
        times = np.array([request.time for request in self.requests], np.float64)
        return np.asarray(times - times[0])


@dataclass(frozen=True)
class Selection:
    """Selection of the requests that are read: the first ones, up to a limit, with their values of these slices.

    With ``may_lack_inputs`` a request without an input of the model is no error.
    """

    limit: int = 10_000
    slices: tuple[str, ...] = ()
    may_lack_inputs: bool = False


def read_recording(path: Path, specs: Specs, signature: str, selection: Selection) -> Recording:
    """Read a file, or all files of a folder by name.

    Raises:
        ComponentError: If a file is in none of the forms or damaged, there are no requests, a request does not have the
            inputs of the model, a slice is missing, or times are missing or go backwards.
    """
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if _is_data(file))
    if not files:
        raise ComponentError(f"{path}: no files", FORMS, "pass the file, or the folder, of the recording")
    if _is_json(files[0]):
        recording = _read_json(files, specs, selection)
    else:
        try:
            recording = _read_tfrecords(files, specs, signature, selection)
        except ExamplesError as error:  # its advice is about examples
            fix = "check the path, and that the file is complete; a log that is still written may end in a part"
            raise ComponentError(error.received, f"{FORMS}; {error.expected}", fix) from error
    if not recording.requests:
        skipped = f"{recording.skipped} requests to other signatures" if recording.skipped else "no request"
        expected = f"requests to the signature {signature!r}"
        raise ComponentError(f"{path}: {skipped}", expected, "pass signature=NAME, or another recording")
    _check_times(recording.requests, path)
    return recording


def _read_tfrecords(files: Sequence[Path], specs: Specs, signature: str, selection: Selection) -> Recording:
    from google.protobuf.message import DecodeError

    first = next(read_records(files), None)
    try:
        entry = None if first is None else warm_up.parse_log(first)
    except DecodeError as error:
        received = f"{files[0]}: a record that is no protocol buffer of a request"
        raise ComponentError(received, FORMS, "pass a recording of requests") from error
    if entry is not None and not entry.HasField("predict_log") and not any(getattr(entry, kind) for kind in OTHER_LOGS):
        return Recording(EXAMPLES, [*islice(_read_examples(files, specs, selection), selection.limit)], 0)
    requests: list[Request] = []
    skipped = 0
    for number, record in enumerate(read_records(files)):
        if len(requests) == selection.limit:
            break
        entry, where = warm_up.parse_log(record), f"{files[0].name}, record {number}"
        if kind := next((kind for kind in OTHER_LOGS if getattr(entry, kind)), None):
            raise ComponentError(f"{where}: a {kind}", "a predict_log", "log the requests of the Predict API")
        request = entry.predict_log.request
        if (request.model_spec.signature_name or SERVING_DEFAULT) != signature:
            skipped += 1
            continue
        time = entry.log_metadata.timestamp_secs or None
        requests.append(_request(warm_up.request_inputs(request), time, {}, specs, selection, where))
    return Recording(LOG, _spread(requests), skipped)


def _read_examples(files: Sequence[Path], specs: Specs, selection: Selection) -> Iterator[Request]:
    records, stored = read_records(files), stored_features(files)
    required = required_features(match_features(specs, stored, label_of(files)))
    if selection.may_lack_inputs and (missing := sorted(required.keys() - stored.keys())):
        yield from (Request({}, None, {}, 1, tuple(missing)) for _ in records)
        return
    for block in read_batches(files, specs, batch_size=BLOCK):
        for batch in split_batches(block, specs, 1):
            own = [*islice(records, count_records(batch, specs))]
            slices = {name: np.array([_feature(record, name) for record in own], object) for name in selection.slices}
            yield Request(batch, None, slices, len(own))


def _feature(record: bytes, name: str) -> Any:
    """Return the only value of a feature of a serialized tf.Example."""
    from tensorflow.core.example.example_pb2 import Example

    features: Any = Example.FromString(record).features.feature
    kind = features[name].WhichOneof("kind") if name in features else None
    values: Any = getattr(features[name], kind).value if kind else ()
    if len(values) != 1:
        received = f"slice {name!r}: {len(values)} values in a record"
        raise ComponentError(received, f"one value; features are {', '.join(sorted(features))}", "pass another slice")
    return values[0]


def _read_json(files: Sequence[Path], specs: Specs, selection: Selection) -> Recording:
    requests: list[Request] = []
    source = LINES
    for where, text in _lines(files):
        line = json_lines.parse_line(text, where)
        source = EVENTS if json_lines.is_event(line) else source
        if json_lines.is_response(line):
            continue
        if len(requests) == selection.limit:
            break
        time, inputs = json_lines.read_time(line, where), json_lines.read_body(line, specs, where)
        requests.append(_request(inputs, time, line, specs, selection, where))
    return Recording(source, requests, 0)


def _lines(files: Sequence[Path]) -> Iterator[tuple[str, str]]:
    for file in files:
        try:
            with gzip.open(file, "rt", encoding="utf-8") if _is_gzip(file) else file.open(encoding="utf-8") as lines:
                yield from ((f"{file.name}, line {n}", line) for n, line in enumerate(lines, 1) if line.strip())
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise ComponentError(
                f"{file}: {error}", "JSON lines in UTF-8", "check that the file is complete"
            ) from error


def _request(
    inputs: Batch, time: float | None, line: Mapping[str, Any], specs: Specs, selection: Selection, where: str
) -> Request:
    missing = tuple(name for name in specs if name not in inputs) if selection.may_lack_inputs else ()
    specs = {name: spec for name, spec in specs.items() if name not in missing}
    try:
        check_inputs(inputs, specs)
    except ComponentError as error:
        fix = f"{error.fix}; or pass signature=NAME, or the recording of this model"
        raise ComponentError(f"{where}: {error.received}", error.expected, fix) from error
    records = count_records(inputs, specs) if inputs else 1
    batched = {name: inputs[name] for name in batched_tensors(specs)}
    slices = {}
    for name in selection.slices:
        if isinstance(line.get(name), str | int | float):
            slices[name] = np.array([line[name]] * records, object)
        elif name in batched and batched[name].size == records:
            slices[name] = batched[name].reshape(records)
        else:
            expected = f"a key of the line, or an input with one value for each record: {', '.join(batched)}"
            raise ComponentError(f"{where}: no slice {name!r}", expected, "pass other slices")
    return Request(inputs, time, slices, records, missing)


def _spread(requests: list[Request]) -> list[Request]:
    """Return requests whose times were recorded in whole seconds, at random times within each second, in order."""
    times = np.array([math.nan if request.time is None else request.time for request in requests], np.float64)
    draw = np.random.default_rng(0)
    for second in np.unique(times[np.isfinite(times)]):
        same = times == second
        times[same] = second + np.sort(draw.random(int(same.sum())))
    return [
        replace(request, time=None if math.isnan(time) else float(time))
        for request, time in zip(requests, times, strict=True)
    ]


def _check_times(requests: Sequence[Request], path: Path) -> None:
    times = [request.time for request in requests]
    if missing := sum(time is None for time in times):
        if missing == len(times):
            return
        received = f"{path}: {missing} of {len(times)} requests without a time"
        raise ComponentError(received, "a time for each request, or for none", "remove these requests, or all times")
    for number, (before, after) in enumerate(pairwise(times), 1):
        if before is not None and after is not None and after < before:
            received = f"{path}: request {number} is {before - after:.3g} s before request {number - 1}"
            raise ComponentError(received, "requests in the order of their times", "sort the recording by time")


def _is_json(file: Path) -> bool:
    """Return True if a file begins with a JSON object: a TFRecord begins with a length of 8 bytes, most of them 0."""
    try:
        with gzip.open(file) if _is_gzip(file) else file.open("rb") as stream:
            start = stream.read(64)
    except (OSError, EOFError) as error:
        raise ComponentError(f"{file}: {error}", FORMS, "check that the file is complete and readable") from error
    return start.lstrip()[:1] == b"{" and b"\0" not in start[:8]


def _is_gzip(file: Path) -> bool:
    return file.suffix == ".gz"


def _is_data(file: Path) -> bool:
    return file.is_file() and not file.name.startswith((".", "_"))
