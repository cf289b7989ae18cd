"""Run a replay in a child process, and write its report."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from tfopt.artifacts import Files, InfraBlessing, Model
from tfopt.components.replay.parameters import ReplayTest, Traffic
from tfopt.components.replay.side_by_side import LOADING, Replayed, replay_requests
from tfopt.components.replay.verdict import (
    NOT_MEASURED,
    describe_answers,
    describe_blindness,
    judge_answers,
    judge_latency,
)
from tfopt.error_messages import disk_full_error
from tfopt.errors import ComponentError
from tfopt.measurement.confidence_bounds import LEVEL
from tfopt.processes.subprocess_call import run_in_child
from tfopt.reports.replay_report import GoalResult, ReplayedLatency, ReplayedTraffic, ReplayReport
from tfopt.reports.serving_report import ServedLatency, ServedModel
from tfopt.runtimes import environment
from tfopt.serving.layouts import resolve_layout, version_files
from tfopt.serving.servers import limit_served_models

Side = Literal["model", "served"]
NOISY_DELAY = 0.1  # share of the 99th percentile by which the generator may be late without a note
FEW = 100  # requests: with fewer the 99th percentile is the largest value


def check_tested(tested: InfraBlessing | None, model: Model) -> list[ServedModel]:
    """Return the rows of a serving test, the model's first; raise ComponentError if it is about other models."""
    if tested is None:
        return []
    rows = tested.load().models
    if not rows or rows[0].digest != model.digest:
        digests = ", ".join(row.digest[:12] for row in rows)
        received = f"{tested.uri} is about {digests}, but {model.uri} is {model.digest[:12]}"
        fix = "pass the model to validate_serving that is passed here"
        raise ComponentError(received, "the infra_blessing of this very model", fix)
    return rows


def not_replayed(row: ServedModel) -> ServedModel:
    """Return the row of a fallback, which got none of the recorded requests."""
    return replace(row, blessed=False, reason="the requests were not replayed to it")


def tested_reason(rows: list[ServedModel]) -> str:
    """Return why a serving test did not bless the model; empty if it did, or if there was none."""
    return rows[0].reason if rows and not rows[0].blessed else ""


def measure(
    model: Model, served: Model, recording: Files, test: ReplayTest, traffic: Traffic, refusal: str
) -> ReplayReport:
    """Replay a recording, and return the report; ``refusal`` is why an earlier test did not bless the model.

    Raises:
        ComponentError: As `replay` does.
    """
    rows = [serving_row(one, test) for one in (model, served)]
    for one, row in zip((model, served), rows, strict=True):
        version_files(one, row.layout)
    deadline = time.monotonic() + LOADING * test.max_seconds
    limited = limit_served_models(*((row.layout, row.format) for row in rows))
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder, limited:
        try:
            result = run_in_child(
                replay_requests,
                *(model, served, recording.path, test, traffic, Path(folder), deadline),
                doing="replaying the requests",
                environment=environment.read_variables(model),
                limit_s=test.max_seconds,
                writes=[Path(folder)],
            )
        except ComponentError as error:
            if full := disk_full_error(error):  # not a property of the model
                raise full from error
            return _failed(rows, test, error.received)
    if isinstance(result, ComponentError):
        raise result
    return _report(rows, result, test, refusal)


def serving_row(model: Model, test: ReplayTest) -> ServedModel:
    """Return the row of a model in a serving report before anything was measured."""
    layout = resolve_layout(model, test.layout)
    facts = (model.name, model.digest, model.format, layout)
    return ServedModel(*facts, server="", blessed=False, reason="", latency=None, sweep=None)


def _failed(rows: list[ServedModel], test: ReplayTest, reason: str) -> ReplayReport:
    """Return the report of a replay whose process ended."""
    goals = [GoalResult(text, False, "not measured") for text in test.goals]
    return uncompared(replace(rows[0], reason=reason), rows[1], reason, goals)


def uncompared(
    model: ServedModel, served: ServedModel | None, reason: str, goals: Sequence[GoalResult] = ()
) -> ReplayReport:
    """Return the report of a replay that compared nothing; the model's row says whether it is blessed."""
    traffic, results = ReplayedTraffic("", 0, 0, 0, None, ""), list(goals)
    return ReplayReport(model.blessed, reason, model, served, traffic, results, LEVEL, [], "", [], {}, [], None, [])


def _report(rows: list[ServedModel], result: Replayed, test: ReplayTest, refusal: str) -> ReplayReport:
    counts, latency = result.disagreement, result.latency.percentiles() if result.latency else {}
    goals = [GoalResult(text, False, "not measured") for text in test.goals]
    if counts.looks:
        goals = [*judge_answers(counts, result.error), *judge_latency(result.latency_goals, latency)]
    missed = [goal.reason for goal in goals if not goal.met and goal.reason != NOT_MEASURED]
    if missed and counts.looks:
        missed.append(describe_answers(counts))
    faults = [*filter(None, [refusal, result.fault]), *([] if result.fault else missed)]
    reason = "; ".join(faults) or _summary(result, latency)
    model = _measured(rows[0], result, latency, "model", test)
    served = _measured(rows[1], result, latency, "served", test)
    return ReplayReport(
        blessed=not faults,
        reason=reason,
        model=replace(model, server=result.run_by, blessed=not faults, reason=reason, replayed=True),
        served=replace(served, server=result.served_by, blessed=True, reason="the served version"),
        traffic=_traffic(result),
        goals=goals,
        level=LEVEL,
        looks=counts.looks,
        ended=result.ended,
        slices=counts.slices(result.error),
        latency=latency,
        windows=[window.summary() for window in result.latency.windows] if result.latency else [],
        delay_p99_ms=result.latency.delay_p99_ms if result.latency else None,
        notes=[*result.notes, *_notes(result, latency)],
    )


def _measured(
    row: ServedModel, result: Replayed, latency: Mapping[str, ReplayedLatency], side: Side, test: ReplayTest
) -> ServedModel:
    """Return a row of the serving report with what was measured."""
    row = replace(
        row,
        requests=len(result.recording.requests),
        inputs={name: str(spec) for name, spec in result.inputs.items()},
        outputs={name: str(spec) for name, spec in result.outputs.items()},
        source=result.recording.source,
    )
    if not result.latency:
        return row
    p50, p99 = (getattr(latency[name], side).value for name in ("p50", "p99"))
    calls, records = result.latency.calls, result.recording.requests[0].records
    return replace(row, latency=ServedLatency(test.concurrency, records, calls, p50, p99, result.latency.rate))


def _traffic(result: Replayed) -> ReplayedTraffic:
    recording, times = result.recording, result.recording.times
    seconds = None if times is None else float(times[-1])
    requests, records = len(recording.requests), recording.records
    return ReplayedTraffic(recording.source, requests, records, recording.skipped, seconds, result.arrivals)


def _summary(result: Replayed, latency: Mapping[str, ReplayedLatency]) -> str:
    text = describe_answers(result.disagreement)
    if row := latency.get("p99"):
        text += f"; p99 {row.model.value:.3g} ms, that of the served version is {row.served.value:.3g} ms"
    return text


def _notes(result: Replayed, latency: Mapping[str, ReplayedLatency]) -> list[str]:
    notes = []
    if result.recording.skipped:
        notes.append(f"{result.recording.skipped} requests to other signatures were left out")
    if not result.latency:
        return notes
    if result.latency.calls < FEW:
        notes.append(f"latency of {result.latency.calls} requests: with fewer than {FEW} the p99 is one of the largest")
    notes += describe_blindness(result.latency_goals, latency)
    delay = result.latency.delay_p99_ms
    if delay is not None and delay > NOISY_DELAY * latency["p99"].served.value:
        notes.append(f"this machine was too busy to send requests in time: 1% were {delay:.2g} ms late or more")
    return notes
