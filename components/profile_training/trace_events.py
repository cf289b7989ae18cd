"""What the TensorFlow profiler recorded, added up by kind of operation and by line of the module."""

import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

PYTHON = ("EagerPyFunc", "PyFunc", "PyFuncStateless")
WAITING = ("IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional")  # for input, which is no work
OPERATION = re.compile(r"(?P<name>.*[^:]):_*(?P<kind>[A-Z]\w*)")  # oneDNN's begin with a line
BACKWARD = "gradient_tape/"
LISTED = 12


def milliseconds(
    folder: Path, steps: int, lines: Mapping[int, Sequence[str]]
) -> tuple[dict[str, float], float, dict[int, float]]:
    """Milliseconds of operations per step, threads added up: by kind, the longest first; all but gradients; by line.

    Gradients are of no line of the module: TensorFlow does not say whose they are. What takes but a few microseconds is
    left out by the profiler.

    Args:
        folder: Where the profiler wrote.
        steps: How many it recorded.
        lines: The names of operations at each line. What is within a loop has its name before its own.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    spent: Counter[str] = Counter()
    at: Counter[int] = Counter()
    forward = 0
    owner = {name: line for line, names in lines.items() for name in names}
    whose = functools.cache(lambda name: line_of(name, owner))
    for file in sorted(folder.rglob("*.xplane.pb"))[-1:]:
        for plane in xplane_pb2.XSpace.FromString(file.read_bytes()).planes:
            for event in [event for line in plane.lines for event in line.events]:
                found = OPERATION.fullmatch(plane.event_metadata[event.metadata_id].name)
                if found and found["kind"] not in WAITING:
                    spent[found["kind"]] += event.duration_ps
                    forward += 0 if BACKWARD in found["name"] else event.duration_ps
                    at[whose(found["name"])] += event.duration_ps
    each = 1e9 * steps
    by_line = {line: at[line] / each for line in lines if line}
    return {kind: time / each for kind, time in spent.most_common()}, forward / each, by_line


def line_of(name: str, owner: Mapping[str, int]) -> int:
    """Whose operation that is, whatever functions it was inlined from; 0 for nobody's."""
    parts = name.split("/")
    for first in range(len(parts)):
        for last in range(len(parts), first, -1):
            line = owner.get("/".join(parts[first:last]))
            if line:
                return line
    return 0
