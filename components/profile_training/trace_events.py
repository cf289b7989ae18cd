"""Sum the operation times in a trace of the TensorFlow profiler, by kind and by line of the module."""

import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

PYTHON_OPS = ("EagerPyFunc", "PyFunc", "PyFuncStateless")
WAITING_OPS = ("IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional")  # they only wait for input
OPERATION = re.compile(r"(?P<name>.*[^:]):_*(?P<kind>[A-Z]\w*)")  # kinds of oneDNN begin with an underscore
BACKWARD = "gradient_tape/"
MAX_LISTED = 12


def operation_times(
    folder: Path, steps: int, lines: Mapping[int, Sequence[str]]
) -> tuple[dict[str, float], float, dict[int, float]]:
    """Return the milliseconds of operations per step, summed over threads.

    Gradients belong to no line of the module: TensorFlow does not record it. The profiler leaves out operations of a
    few microseconds.

    Args:
        folder: The folder that the profiler wrote to.
        steps: The number of recorded steps.
        lines: Names of operations by line. An operation inside a loop has the loop's name before its own.

    Returns:
        Milliseconds by kind of operation, the longest first; of all operations except gradients; by line.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    by_kind: Counter[str] = Counter()
    by_line: Counter[int] = Counter()
    forward = 0
    line_of_name = {name: line for line, names in lines.items() for name in names}
    cached_line = functools.cache(lambda name: find_line(name, line_of_name))
    for file in sorted(folder.rglob("*.xplane.pb"))[-1:]:
        for plane in xplane_pb2.XSpace.FromString(file.read_bytes()).planes:
            for event in [event for line in plane.lines for event in line.events]:
                match = OPERATION.fullmatch(plane.event_metadata[event.metadata_id].name)
                if match and match["kind"] not in WAITING_OPS:
                    by_kind[match["kind"]] += event.duration_ps
                    forward += 0 if BACKWARD in match["name"] else event.duration_ps
                    by_line[cached_line(match["name"])] += event.duration_ps
    scale = 1e9 * steps  # picoseconds of all steps to milliseconds of one
    line_ms = {line: by_line[line] / scale for line in lines if line}
    return {kind: time / scale for kind, time in by_kind.most_common()}, forward / scale, line_ms


def find_line(name: str, line_of_name: Mapping[str, int]) -> int:
    """Return the line of an operation, whatever functions it was inlined from; 0 if it has none."""
    parts = name.split("/")
    for first in range(len(parts)):
        for last in range(len(parts), first, -1):
            line = line_of_name.get("/".join(parts[first:last]))
            if line:
                return line
    return 0
