"""Sum the operation times in a trace of the TensorFlow profiler, by kind, by line of the module and by layer."""

import functools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfopt.reports.training_plan import LoopTime

PYTHON_OPS = ("EagerPyFunc", "PyFunc", "PyFuncStateless")
WAITING_OPS = ("IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional")  # they only wait for input
OPERATION = re.compile(r"(?P<name>.*[^:]):_*(?P<kind>[A-Z]\w*)")  # kinds of oneDNN begin with an underscore
BACKWARD = "gradient_tape/"
OPTIMIZER = "optimizer"  # the part of a step that updates the weights
MAX_LISTED = 12
GPU_PLANE, STREAM = "/device:GPU:", "Stream #"  # names of planes and of their lines (xplane.proto, cupti_collector.cc)
HOST_COPIES = ("MemcpyH2D", "MemcpyD2H")  # the other copies stay on the GPU


@dataclass(frozen=True)
class Loop(LoopTime):
    """A loop or a Python call whose time is not known yet, with the names of its operations in the graph.

    A Python loop that added the same operations to the graph several times is ``unrolled``.
    """

    operations: Sequence[str] = ()


@dataclass(frozen=True)
class Scopes:
    """The names that a step's operations have in front of their own.

    They are those of the layers, also of models inside the model, of the optimizer and of one that it wraps.
    """

    model: str
    layers: Collection[str]
    optimizers: Collection[str]


@dataclass(frozen=True)
class GpuTimes:
    """Milliseconds of a step on a GPU."""

    kernels: float  # in which a kernel runs
    copies: float  # in which nothing but copies from or to the host run
    launches: float  # number of kernels


@dataclass(frozen=True)
class OperationTimes:
    """Milliseconds of operations per step, summed over threads or, with GPUs, over their kernels."""

    by_kind: dict[str, float]  # by kind of operation, the longest first
    forward: float  # of all operations except gradients
    by_line: dict[int, float]  # by line of the module
    # by layer, with its gradient, and of `OPTIMIZER`, the longest first; the rest, such as the loss, is left out
    by_part: dict[str, float]
    gpu: GpuTimes | None = None  # the GPU whose kernels take longest; None without one


def operation_times(folder: Path, steps: int, lines: Mapping[int, Sequence[str]], scopes: Scopes) -> OperationTimes:
    """Return the times of a step's operations.

    Gradients belong to no line of the module: TensorFlow does not record it. The profiler leaves out operations of a
    few microseconds. It recorded a number of steps and wrote to the folder. The names of operations are given by line;
    an operation inside a loop has the loop's name before its own.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    by_kind: Counter[str] = Counter()
    by_line: Counter[int] = Counter()
    by_part: Counter[str] = Counter()
    forward = 0
    gpus: list[GpuTimes] = []
    line_of_name = {name: line for line, names in lines.items() for name in names}
    cached_line = functools.cache(lambda name: find_line(name, line_of_name))
    cached_part = functools.cache(lambda name: find_part(name, scopes))
    for file in sorted(folder.rglob("*.xplane.pb"))[-1:]:
        planes = xplane_pb2.XSpace.FromString(file.read_bytes()).planes
        devices = [plane for plane in planes if plane.name.startswith(GPU_PLANE)]
        gpus = [_gpu_times(plane, steps) for plane in devices]
        for plane in devices or planes:  # with a GPU, the events of the host are launches
            for name, event in _named_events(plane):
                match = OPERATION.fullmatch(name)
                if match and match["kind"] not in WAITING_OPS:
                    by_kind[match["kind"]] += event.duration_ps
                    forward += 0 if BACKWARD in match["name"] else event.duration_ps
                    by_line[cached_line(match["name"])] += event.duration_ps
                    by_part[cached_part(match["name"])] += event.duration_ps
    scale = 1e9 * steps  # picoseconds of all steps to milliseconds of one
    return OperationTimes(
        {kind: time / scale for kind, time in by_kind.most_common()},
        forward / scale,
        {line: by_line[line] / scale for line in lines if line},
        {part: time / scale for part, time in by_part.most_common() if part},
        max(gpus, key=lambda gpu: gpu.kernels, default=None),
    )


def _named_events(plane: Any) -> Iterator[tuple[str, Any]]:
    """Yield the events of a plane, each with its operation: on a GPU the one that launched the kernel."""
    for line in plane.lines:
        for event in line.events:
            name = plane.event_metadata[event.metadata_id].name
            for stat in event.stats if plane.name.startswith(GPU_PLANE) else ():
                if plane.stat_metadata[stat.metadata_id].name == "tf_op":
                    name = plane.stat_metadata[stat.ref_value].name or stat.str_value
            yield name, event


def _gpu_times(plane: Any, steps: int) -> GpuTimes:
    kernels, everything = [], []
    for line in plane.lines:
        for event in line.events if line.name.startswith(STREAM) else ():
            start = 1000 * line.timestamp_ns + event.offset_ps
            span = (start, start + event.duration_ps)
            everything.append(span)
            if not plane.event_metadata[event.metadata_id].name.startswith(HOST_COPIES):
                kernels.append(span)
    scale = 1e9 * steps
    covered = _covered(kernels)
    return GpuTimes(covered / scale, (_covered(everything) - covered) / scale, len(kernels) / steps)


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """Return the length of the union of intervals.

    >>> _covered([(0, 4), (10, 12), (2, 5)])
    7
    """
    total = end = 0
    for first, last in sorted(spans):
        total += max(0, last - max(first, end))
        end = max(end, last)
    return total


def find_part(name: str, scopes: Scopes) -> str:
    """Return the layer of an operation or of its gradient, or `OPTIMIZER`; an empty text if it belongs to neither.

    Keras enters a scope for the model and for each layer. TensorFlow adds the same number to both if a graph has them
    a second time, so the number of the model tells ``conv2d_1``, the first layer's second scope, from another layer.

    >>> scopes = Scopes("model", {"conv2d", "conv2d_1"}, {"Adam"})
    >>> [find_part(name, scopes) for name in ("model_1/conv2d_1/add", "gradient_tape/model/conv2d_1/mul", "adam/Sub")]
    ['conv2d', 'conv2d_1', 'optimizer']
    """
    number = ""
    optimizers = {optimizer.lower() for optimizer in scopes.optimizers}
    for scope in name.split("/")[:-1]:
        if re.fullmatch(re.escape(scopes.model) + r"(_\d+)?", scope):
            number = scope.removeprefix(scopes.model)
        elif scope.removesuffix(number) in scopes.layers:
            return scope.removesuffix(number)
        elif scope in scopes.layers:
            return scope
        elif re.sub(r"_\d+$", "", scope).lower() in optimizers or scope.lower() in optimizers:
            return OPTIMIZER
    return ""


def find_line(name: str, line_of_name: Mapping[str, int]) -> int:
    """Return the line of an operation, whatever functions it was inlined from; 0 if it has none."""
    parts = name.split("/")
    inner = ("/".join(parts[first:last]) for first in range(len(parts)) for last in range(len(parts), first, -1))
    return next((line_of_name[name] for name in inner if line_of_name.get(name)), 0)
