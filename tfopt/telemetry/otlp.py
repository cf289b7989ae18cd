"""Traces of a run and metrics by OTLP over HTTP, configured by the standard variables of OpenTelemetry."""

import os
from collections.abc import Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import tfopt
from tfopt.dag.run_events import RunEnded, RunEvent, RunStarted, StepEnded, StepStarted
from tfopt.error_messages import first_line
from tfopt.telemetry.delivery import Sample, uses_otlp
from tfopt.telemetry.process_usage import ProcessUsage

PROTOCOL = "http/protobuf"


class NotDeliveredError(Exception):
    """The receiver did not take everything."""


def exporter() -> "OtlpExporter":
    """Return the exporter of events; raise ValueError for a protocol other than the one over HTTP."""
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", PROTOCOL)
    if protocol != PROTOCOL:
        raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}, not {PROTOCOL} (port 4318 of a collector)")
    return OtlpExporter()


class OtlpExporter:
    """Spans of a run and its steps, and metrics about their end."""

    def __init__(self) -> None:
        """Prepare the conversion; variables with wrong values raise what the library raises."""
        self._finished = _Finished()
        provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        provider.add_span_processor(self._finished)
        self._tracer = provider.get_tracer("tfopt", tfopt.__version__)
        self._sender = OTLPSpanExporter() if uses_otlp("TRACES") else None
        # The trace continues that of the caller, such as a CI system, as the variable TRACEPARENT names it.
        carrier = {name.lower(): value for name, value in os.environ.items() if name in ("TRACEPARENT", "TRACESTATE")}
        self._context = TraceContextTextMapPropagator().extract(carrier)
        self._run: tuple[RunStarted, Any] | None = None
        self._steps: dict[str, tuple[StepStarted, Any, ProcessUsage]] = {}
        self._samples: list[Sample] = []

    def add(self, event: RunEvent, usage: ProcessUsage) -> None:
        """Start or end the span of an event, and collect metrics of its end."""
        if isinstance(event, RunStarted):
            facts = {"tfopt.run.id": event.id, "tfopt.pipeline": event.pipeline, "tfopt.engine": event.engine}
            span = self._tracer.start_span(event.pipeline, self._context, attributes=facts, start_time=event.time_ns)
            self._run = event, span
        elif isinstance(event, StepStarted):
            context = trace.set_span_in_context(self._run[1], self._context) if self._run else self._context
            span = self._tracer.start_span(event.step, context, attributes=_facts(event), start_time=event.time_ns)
            self._steps[event.step] = event, span, usage
        elif isinstance(event, StepEnded):
            self._end_step(event, usage)
        elif isinstance(event, RunEnded) and self._run:
            for step in list(self._steps):
                self._end_step(StepEnded(step, error=event.error, time_ns=event.time_ns), usage)
            started, span = self._run
            results = {"tfopt.selected": event.selected, "tfopt.pushed": event.pushed}
            span.set_attributes({name: value for name, value in results.items() if value})
            _end(span, event.error, event.time_ns)
            self._measure("run", event, started, event.error)

    def _end_step(self, event: StepEnded, usage: ProcessUsage) -> None:
        started, span, before = self._steps.pop(event.step)
        span.set_attribute("tfopt.reused", bool(event.outcome and event.outcome.reused))
        span.set_attribute("tfopt.cpu_time", usage.cpu_seconds - before.cpu_seconds)
        span.set_attribute("tfopt.peak_memory", usage.peak_memory)
        _end(span, event.error, event.time_ns)
        self._measure("step", event, started, event.error)

    def _measure(self, what: str, event: RunEvent, started: RunEvent, error: BaseException | None) -> None:
        labels = {"pipeline": self._run[0].pipeline} if self._run else {}
        labels |= {"step": started.step} if isinstance(started, StepStarted) else {}
        seconds = (event.time_ns - started.time_ns) / 1e9
        self._samples += [
            Sample(f"tfopt_{what}_duration_seconds", f"Time of the last execution of the {what}.", seconds, labels),
            Sample(f"tfopt_{what}_succeeded", f"1 if the last execution of the {what} succeeded.", not error, labels),
        ]

    def flush(self, *, is_last: bool) -> None:
        """Send the ended spans, and in the end the metrics."""
        if self._sender and self._finished.spans:
            if self._sender.export(self._finished.spans).name != "SUCCESS":
                raise NotDeliveredError(f"{len(self._finished.spans)} spans; the log has the receiver's answer")
            self._finished.spans = []
        if is_last and self._samples and uses_otlp("METRICS"):
            export_samples(self._samples)
            self._samples = []


def export_samples(samples: Sequence[Sample]) -> None:
    """Send metrics; raise `NotDeliveredError` if they did not arrive within the time of OTEL_EXPORTER_OTLP_TIMEOUT."""
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], _resource(), shutdown_on_exit=False).get_meter("tfopt", tfopt.__version__)
    gauges = {
        sample.name: meter.create_gauge(sample.name, _unit(sample.name), sample.description) for sample in samples
    }
    for sample in samples:
        gauges[sample.name].set(sample.value, sample.labels)
    if OTLPMetricExporter().export(reader.get_metrics_data()).name != "SUCCESS":
        raise NotDeliveredError(f"{len(samples)} metrics; the log has the receiver's answer")


class _Finished(SpanProcessor):
    """The spans that have ended."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


def _unit(name: str) -> str:
    """Return the unit of a metric, which its name ends with for Prometheus."""
    return "s" if name.endswith("_seconds") else ""


def _resource() -> Resource:
    """Return the attributes of the sender: those of the standard variables, and the name tfopt without one."""
    resource = Resource.create({SERVICE_VERSION: tfopt.__version__})
    has_name = not str(resource.attributes[SERVICE_NAME]).startswith("unknown_service")
    return resource if has_name else resource.merge(Resource({SERVICE_NAME: "tfopt"}))


def _facts(event: StepStarted) -> dict[str, str | int]:
    resources = event.component.resources
    facts: dict[str, str | int] = {"tfopt.step": event.step, "tfopt.component": event.component.name}
    return facts | {f"tfopt.resources.{name}": getattr(resources, name) for name in ("cpu", "memory", "gpu")}


def _end(span: trace.Span, error: BaseException | None, time_ns: int) -> None:
    if error:
        span.record_exception(error, timestamp=time_ns)
    span.set_status(
        Status(StatusCode.ERROR, first_line(error).removeprefix("received: ")) if error else Status(StatusCode.OK)
    )
    span.end(time_ns)
