"""OpenVINO, imported without its telemetry: the import alone would report itself to its maker over the network."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

TELEMETRY = "openvino_telemetry"


@contextmanager
def untracked() -> Iterator[None]:
    """Let what is imported here, OpenVINO or NNCF, find no telemetry, for which both have a stand-in.

    A process that has imported the telemetry itself keeps it.
    """
    if TELEMETRY in sys.modules:
        yield
        return
    sys.modules[TELEMETRY] = None  # type: ignore[assignment]  # what `import` takes for "there is none"
    try:
        yield
    finally:
        del sys.modules[TELEMETRY]


with untracked():
    import openvino as openvino
