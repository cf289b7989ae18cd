"""Run the served version and a model side by side on recorded requests, in a process of their own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.replay.answers import FIRST, AnswerComparison, Disagreement, Outputs, schedule_looks
from tfopt.components.replay.latency import LatencyComparison, Load, compare_latency
from tfopt.components.replay.parameters import ReplayTest, Traffic
from tfopt.components.replay.verdict import resolve
from tfopt.data.batches import Batch
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.measurement.goals import Goal
from tfopt.serving.layouts import resolve_layout, write_version
from tfopt.serving.load_generator import OpenLoop, Times, arrival_times, send_open_loop
from tfopt.serving.recordings.recorded_requests import Recording, Request, Selection, read_recording
from tfopt.serving.servers import Client, Server, compare_signatures, serve

LOADING = 0.9  # of the time limit, as in `validate_serving`


class ServedVersionError(ComponentError):
    """The served version cannot answer: nothing can be compared with it."""


@dataclass
class Replayed:
    """Results of a replay."""

    recording: Recording
    disagreement: Disagreement
    latency_goals: Sequence[Goal]
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec] = field(default_factory=dict)
    served_by: str = ""
    run_by: str = ""
    error: float = 1.0  # that the intervals of the last look have
    ended: str = ""
    fault: str = ""  # why the model cannot be served; empty if it can
    latency: LatencyComparison | None = None
    arrivals: str = ""
    notes: list[str] = field(default_factory=list)


def replay_requests(
    model: Model,
    served: Model,
    recording: Path,
    test: ReplayTest,
    traffic: Traffic,
    folder: Path,
    deadline: float,
) -> Replayed | ComponentError:
    """Compare answers and latency; an error of the recording, the goals or the served version is returned.

    Both are laid out below the folder. At the deadline, a time of `time.monotonic`, they must be loaded.
    """
    try:
        with _blaming_served("cannot be loaded"), runtimes.load(served) as loaded:
            inputs = loaded.inputs
        selection = Selection(traffic.limit, traffic.slices)
        requests = read_recording(recording, inputs, served.signature, selection)
        answer_goals, latency_goals = resolve(test.goals, requests, traffic)
    except ComponentError as error:
        return error
    schedule = schedule_looks(requests.records)
    result = Replayed(requests, Disagreement(answer_goals, schedule), latency_goals, inputs)
    try:
        with _running(served, test, folder / "served", deadline, is_served=True) as baseline:
            result.served_by, result.outputs = baseline.name, baseline.outputs
            _compare(result, baseline, partial(_running, model, test, folder / "model", deadline), test, traffic)
    except ServedVersionError as error:
        return error
    except Exception as error:  # any exception of the model's library
        result.fault = error.received if isinstance(error, ComponentError) else first_line(error)
    return result


@contextmanager
def _blaming_served(doing: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # any exception of its library
        reason = error.received if isinstance(error, ComponentError) else first_line(error)
        fix = "pass the version that is served now, and the recording of its requests"
        raise ServedVersionError(f"the served version {doing}: {reason}", "a version that answers", fix) from error


@contextmanager
def _running(
    model: Model, test: ReplayTest, root: Path, deadline: float, *, is_served: bool = False
) -> Iterator[Server]:
    layout = resolve_layout(model, test.layout)
    with ExitStack() as stack:
        with _blaming_served("cannot be loaded") if is_served else nullcontext():
            write_version(model, layout, root / "1", None, 0)
            server = stack.enter_context(serve(model, layout, root, deadline))
        yield server


def _compare(result: Replayed, baseline: Server, run_model: Any, test: ReplayTest, traffic: Traffic) -> None:
    with run_model() as server:
        result.run_by = server.name
        if faults := compare_signatures(baseline, server.inputs, server.outputs):
            result.fault = f"another signature than the served version: {'; '.join(faults)}"
            return
        is_decided = _compare_answers(result, baseline, server, test)
        if result.fault or is_decided == "missed":
            return
        arrivals, result.arrivals = _arrivals(result.recording, test, traffic)
        if arrivals is not None:
            loads = {
                "served": _load(baseline, result.recording.requests, test.concurrency, is_served=True),
                "model": _load(server, result.recording.requests, test.concurrency),
            }
            result.latency = compare_latency(loads, arrivals)


def _compare_answers(result: Replayed, baseline: Server, server: Server, test: ReplayTest) -> str | None:
    """Compare the answers until the goals are decided; return "met", "missed", or None at the end of the recording."""
    requests, counts = result.recording.requests, result.disagreement
    served, answer = _as_served(baseline.client()), server.client()
    comparison = AnswerComparison(test.answers, test.tolerance)
    first, records = list[Outputs](), 0
    for request in requests:
        first.append(served(request.inputs))
        if (records := records + request.records) >= FIRST:
            break
    try:
        comparison.fit(first)
    except ComponentError as error:
        raise ServedVersionError(error.received, error.expected, error.fix) from error
    looks = sorted(counts.schedule.errors.items())
    decided = None
    for number, request in enumerate(requests):
        expected = first[number] if number < len(first) else served(request.inputs)
        try:
            differs = comparison.disagreeing(expected, answer(request.inputs), request.records)
        except ComponentError as error:
            result.fault = f"request {number}: {error.received}"
            return None
        counts.add(differs, request.slices)
        reached = [error for records, error in looks if records <= counts.records]
        if reached:
            looks, result.error = looks[len(reached) :], reached[-1]
            if decided := counts.look(result.error):
                break
    if comparison.not_finite:
        result.notes.append(f"both models return NaN or infinity for {comparison.not_finite} records")
    total = result.recording.records
    how = {"met": "the goals are met", "missed": "a goal is missed", None: "the end of the recording"}[decided]
    result.ended = f"after {counts.records:,} of {total:,} records: {how}"
    return decided


def _as_served(client: Client) -> Client:
    """Return a client whose failures are errors of the served version."""

    def send(batch: Any) -> Mapping[str, NDArray[Any]]:
        with _blaming_served("fails on a recorded request"):
            return client(batch)

    return send


def _arrivals(recording: Recording, test: ReplayTest, traffic: Traffic) -> tuple[Times | None, str]:
    """Return the arrival times of a measurement in seconds, and how they came about; None if there are none."""
    if traffic.rate:
        count = max(1, round(traffic.rate * test.seconds))
        kind = {"poisson": "at random", "constant": "at equal distances"}[traffic.arrivals]
        return arrival_times(traffic.arrivals, traffic.rate, count), f"{traffic.rate:g} requests per second {kind}"
    times = recording.times
    if times is None:
        return None, ""
    played = times / traffic.speed
    played = played[played <= test.seconds]
    text = "as recorded" if traffic.speed == 1 else f"as recorded, {traffic.speed:g} times as fast"
    return played, f"{text}, {len(played) / max(float(played[-1]), 1e-3):.3g} requests per second"


def _load(server: Server, requests: Sequence[Request], concurrency: int, *, is_served: bool = False) -> Load:
    clients = [_as_served(server.client()) if is_served else server.client() for _ in range(concurrency)]
    for client in clients:
        client(requests[0].inputs)

    def send(client: Client, numbers: NDArray[np.int64], position: int) -> None:
        batch: Batch = requests[int(numbers[position]) % len(requests)].inputs
        client(batch)

    def load(numbers: NDArray[np.int64], times: Times) -> OpenLoop:
        return send_open_loop([partial(send, client, numbers) for client in clients], times)

    return load
