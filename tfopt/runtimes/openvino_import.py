"""Import OpenVINO without its telemetry, which sends a report over the network at import."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

TELEMETRY = "openvino_telemetry"


@contextmanager
def without_telemetry() -> Iterator[None]:
    """Hide the telemetry package from imports of OpenVINO or NNCF, which work without it.

    If the process has already imported the telemetry, nothing changes.
    """
    if TELEMETRY in sys.modules:
        yield
        return
    sys.modules[TELEMETRY] = None  # type: ignore[assignment]  # makes `import` raise ModuleNotFoundError
    try:
        yield
    finally:
        del sys.modules[TELEMETRY]


with without_telemetry():
    import openvino as openvino
