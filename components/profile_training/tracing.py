"""What the TensorFlow profiler recorded, added up by kind of operation."""

import re
from collections import Counter
from pathlib import Path

PYTHON = ("EagerPyFunc", "PyFunc", "PyFuncStateless")
IN_LOOPS = "in loops"  # of whatever kind
LOOP = re.compile(r"(^|/)while(_\d+)?/")
LISTED = 12


def milliseconds(folder: Path, steps: int) -> dict[str, float]:
    """Milliseconds of operations per step, threads added up: by kind, the largest first, and those in loops.

    Args:
        folder: Where the profiler wrote.
        steps: How many it recorded.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    spent: Counter[str] = Counter()
    for file in sorted(folder.rglob("*.xplane.pb"))[-1:]:
        for plane in xplane_pb2.XSpace.FromString(file.read_bytes()).planes:
            for line in plane.lines:
                for event in line.events:
                    name, _, kind = plane.event_metadata[event.metadata_id].name.rpartition(":")
                    if name and name[-1] != ":" and kind.isidentifier() and kind[0].isupper():  # ops are NAME:KIND
                        spent[kind] += event.duration_ps
                        spent[IN_LOOPS] += event.duration_ps if LOOP.search(name) else 0
    looping = spent.pop(IN_LOOPS, 0)
    listed = dict(spent.most_common(LISTED)) | {IN_LOOPS: looping}
    return {kind: time / 1e9 / steps for kind, time in listed.items()}
