"""Metrics of a fleet: for OTLP, and as a file for the textfile collector of Prometheus's node exporter."""

import datetime
import importlib
from collections.abc import Sequence
from pathlib import Path

from tfopt.error_messages import first_line
from tfopt.errors import MachineError
from tfopt.fleet.destination_state import DestinationState
from tfopt.fleet.fleet_report import FleetReport
from tfopt.telemetry.delivery import Sample

LABEL = "destination"
GAUGES = {
    "tfopt_last_run_timestamp_seconds": "When the last run of the destination was recorded.",
    "tfopt_last_push_timestamp_seconds": "When the served version was pushed.",
    "tfopt_served_version": "Number of the newest version that is served.",
    "tfopt_last_run_pushed": "1 if the last run pushed its model, else 0.",
    "tfopt_version_signed": "1 if the served version is signed, else 0.",
    "tfopt_problems": "Number of reasons for which the destination needs attention.",
    "tfopt_cost_per_million": "Cost of a million predictions at the measured throughput.",
}
METRIC = "Main metric and latency (ms) of the served model."
REGRESSED = "1 if it is worse than in earlier runs."


def write_metrics(samples: Sequence[Sample], file: Path) -> None:
    """Write metrics; the file appears complete, and replaces an earlier one.

    Raises:
        MachineError: If the package prometheus-client is not installed.
    """
    try:
        prometheus = importlib.import_module("prometheus_client")
    except ModuleNotFoundError as error:
        fix = "pip install 'tfopt[metrics]'"
        raise MachineError(first_line(error), "the package that writes metrics of Prometheus", fix) from error
    registry = prometheus.CollectorRegistry()
    labels = {sample.name: list(sample.labels) for sample in samples}
    texts = {sample.name: sample.description for sample in samples}
    gauges = {name: prometheus.Gauge(name, text, labels[name], registry=registry) for name, text in texts.items()}
    for sample in samples:
        gauge = gauges[sample.name]
        (gauge.labels(**sample.labels) if sample.labels else gauge).set(sample.value)
    file.parent.mkdir(parents=True, exist_ok=True)
    prometheus.write_to_textfile(str(file), registry)


def fleet_samples(report: FleetReport) -> list[Sample]:
    """Return the metrics of a fleet."""
    samples = [Sample("tfopt_fleet_timestamp_seconds", "When the fleet was read.", _seconds(report.time) or 0.0)]
    for state in report.destinations:
        label = {LABEL: state.name}
        values = _values(state).items()
        samples += [Sample(name, GAUGES[name], value, label) for name, value in values if value is not None]
        for metric in state.metrics:
            if (value := metric.values[-1]) is not None:
                labels = {**label, "metric": metric.metric}
                samples.append(Sample("tfopt_metric", METRIC, value, labels))
                samples.append(Sample("tfopt_metric_regressed", REGRESSED, bool(metric.regression), labels))
    return samples


def _values(state: DestinationState) -> dict[str, float | None]:
    has_runs = state.last_run is not None
    return {
        "tfopt_last_run_timestamp_seconds": _seconds(state.last_run),
        "tfopt_last_push_timestamp_seconds": _seconds(state.pushed),
        "tfopt_served_version": state.version,
        "tfopt_last_run_pushed": state.verdict == "pushed" if has_runs else None,
        "tfopt_version_signed": state.signed if state.version is not None else None,
        "tfopt_problems": len(state.problems),
        "tfopt_cost_per_million": state.cost.per_million if state.cost else None,
    }


def _seconds(time: str | None) -> float | None:
    return datetime.datetime.fromisoformat(time).timestamp() if time else None
