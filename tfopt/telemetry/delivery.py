"""Send the events of a run in threads of their own, without an effect on the run: receivers may be slow, or away."""

import contextlib
import functools
import importlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tfopt.dag.run_events import RunEvent, listening
from tfopt.error_messages import first_line
from tfopt.telemetry.process_usage import ProcessUsage, measure_usage

LIMIT_S = 5.0  # after the run, for all receivers

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sample:
    """A value of a metric."""

    name: str
    description: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


class Exporter(Protocol):
    """Something that sends events; it is used by one thread, and may raise any exception."""

    def add(self, event: RunEvent, usage: ProcessUsage) -> None:
        """Convert an event into what is sent, with the usage of the run's processes until then."""

    def flush(self, *, is_last: bool) -> None:
        """Send what was not sent before; raise an exception if it did not arrive, and send it again next time."""


def uses_otlp(signal: str) -> bool:
    """Return True if the standard variables of OpenTelemetry want a signal, ``TRACES`` or ``METRICS``, to be sent."""
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return not is_off and os.environ.get(f"OTEL_{signal}_EXPORTER") != "none" and any(map(os.environ.get, names))


def uses_openlineage() -> bool:
    """Return True if a variable or a file of OpenLineage's client names a transport."""
    prefixes = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__")
    files = (Path("openlineage.yml"), Path.home() / ".openlineage" / "openlineage.yml")
    is_off = os.environ.get("OPENLINEAGE_DISABLED", "").lower() == "true"
    has_settings = any(name.startswith(prefixes) for name in os.environ) or any(file.is_file() for file in files)
    return has_settings and not is_off


# For each module of this package the condition of its use; the extra with its library has the same name.
EXPORTERS: Mapping[str, Callable[[], bool]] = {
    "otlp": lambda: uses_otlp("TRACES") or uses_otlp("METRICS"),
    "openlineage": uses_openlineage,
}


@contextlib.contextmanager
def exported() -> Iterator[None]:
    """Send the events of the context; wait at its end for `LIMIT_S` at most, and log what did not arrive."""
    with contextlib.ExitStack() as stack:
        threads = []
        for module, is_used in EXPORTERS.items():
            with _logged_errors(module):
                if is_used():
                    threads.append(_Thread(module, importlib.import_module(f"{__package__}.{module}").exporter()))
                    stack.enter_context(listening(threads[-1].put))
        try:
            yield
        finally:
            stack.close()
            deadline = time.monotonic() + LIMIT_S
            for thread in threads:
                thread.end()
            for thread in threads:
                thread.wait(deadline)


def send_samples(samples: Sequence[Sample]) -> None:
    """Send metrics by OTLP if the standard variables want it; log why they did not arrive."""
    with _logged_errors("otlp"):
        if uses_otlp("METRICS"):
            importlib.import_module(f"{__package__}.otlp").export_samples(samples)


@contextlib.contextmanager
def _logged_errors(module: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        log.warning("%s: nothing is sent: %s; pip install 'tfopt[%s]'", module, first_line(error), module)
    except Exception as error:  # whatever a library raises, such as for its settings
        log.warning("%s: nothing is sent: %s", module, first_line(error))


class _Thread(threading.Thread):
    """A thread that sends events; it ends with the process at the latest."""

    def __init__(self, name: str, exporter: Exporter) -> None:
        super().__init__(name=name, daemon=True)
        self._events: queue.SimpleQueue[tuple[RunEvent, ProcessUsage] | None] = queue.SimpleQueue()
        self._exporter = exporter
        self._error: Exception | None = None  # of the last attempt
        self.start()

    def put(self, event: RunEvent) -> None:
        self._events.put((event, measure_usage()))

    def run(self) -> None:
        while entry := self._events.get():
            self._attempt(functools.partial(self._exporter.add, *entry))
            if self._events.empty():
                self._attempt(functools.partial(self._exporter.flush, is_last=False))
        self._attempt(functools.partial(self._exporter.flush, is_last=True))

    def end(self) -> None:
        """Let the thread end after the last event."""
        self._events.put(None)

    def wait(self, deadline: float) -> None:
        """Wait until all events were sent, and log an error."""
        self.join(max(0.0, deadline - time.monotonic()))
        if self.is_alive():
            log.warning("%s: the receiver did not take all events within %g s", self.name, LIMIT_S)
        elif self._error:
            log.warning("%s: events were not sent: %s", self.name, first_line(self._error))

    def _attempt(self, call: Callable[[], None]) -> None:
        try:
            call()
            self._error = None
        except Exception as error:  # whatever a library raises
            self._error = error
