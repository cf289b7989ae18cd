"""Receivers of telemetry: web servers that decode requests of OTLP with its own messages, and events of OpenLineage.

python -m tests.telemetry.receivers   # a process of its own, which prints its port and then what it receives
"""

import gzip
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


@dataclass
class Receiver:
    """A web server that records what it takes."""

    delay: float = 0.0  # seconds before an answer
    status: int = 200
    requests: list[tuple[str, Any]] = field(default_factory=list)  # path, and decoded body
    headers: dict[str, str] = field(default_factory=dict)  # of the last request

    def __enter__(self) -> "Receiver":
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
                kind = KINDS.get(self.path)
                receiver.headers = dict(self.headers)
                time.sleep(receiver.delay)
                if receiver.status == 200:
                    receiver.requests.append((self.path, kind.FromString(body) if kind else json.loads(body)))
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.http.shutdown()
        self.http.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"

    def spans(self) -> dict[str, Any]:
        """Return all spans by name."""
        traces = [body for path, body in self.requests if path == "/v1/traces"]
        scopes = [scope for body in traces for resource in body.resource_spans for scope in resource.scope_spans]
        spans = {span.name: span for scope in scopes for span in scope.spans}
        assert len(spans) == sum(len(scope.spans) for scope in scopes)  # each came once
        return spans

    def samples(self) -> dict[tuple[str, tuple[str, ...]], float]:
        """Return the values of all gauges by name and values of labels."""
        bodies = [body for path, body in self.requests if path == "/v1/metrics"]
        scopes = [scope for body in bodies for resource in body.resource_metrics for scope in resource.scope_metrics]
        return {
            (metric.name, tuple(attributes(point).values())): getattr(point, point.WhichOneof("value"))
            for scope in scopes
            for metric in scope.metrics
            for point in metric.gauge.data_points
        }

    def lineage(self) -> list[dict[str, Any]]:
        """Return the events of OpenLineage in the order in which they came."""
        return [body for path, body in self.requests if path == "/api/v1/lineage"]


def attributes(item: Any) -> dict[str, Any]:
    """Return the attributes of a span, a resource or a value as a dictionary."""
    return {entry.key: getattr(entry.value, entry.value.WhichOneof("value")) for entry in item.attributes}


if __name__ == "__main__":
    with Receiver() as server:
        print(server.url, flush=True)
        printed = 0
        while True:
            time.sleep(0.05)
            for path, content in server.requests[printed:]:
                print(path, content, flush=True)
            printed = len(server.requests)
