"""Test the bottleneck that `profile_training` finds, with made-up times on both sides of each threshold."""

from dataclasses import replace

import pytest
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tfopt.components.profile_training.bottleneck import StepTimes, find_bottleneck
from tfopt.components.profile_training.trace_events import GpuTimes, Scopes, operation_times
from tfopt.reports.training_plan import LoopTime

MAP = LoopTime(
    where="step", kind="map_fn", line=8, code="tf.map_fn(f, x)", independent=True, copies=1, ms=6, runs=0.4, forward=0.8
)
PYTHON = replace(MAP, kind="python", independent=None)
COPIES = replace(MAP, kind="unrolled", copies=64)
TIMES = StepTimes(
    batch_size=64, prefetch=2, step=10, model=10, graph=9.5, larger=38, usual=None, input=1, cached=False, eager=False,
    loops=[], stages={"read": 0.2, "parse": 0.4, "preprocess": 0.1, "batch": 0.3}, forward=12.0, epoch=100, beginning=0,
    spent={"MatMul": 9.0, "Mul": 3.0},
)  # fmt: skip
WAITING = {"step": 30, "input": 28}
SHORT_EPOCHS = WAITING | {"epoch": 2, "beginning": 15.1}


def fixed(ms: float, per_example: float, size: int) -> dict:
    """Return the times of a model with a fixed cost per step and a cost per example."""
    step, larger = ms + per_example * size, ms + per_example * 4 * size
    parts = {"batch_size": size, "step": step, "model": step, "larger": larger}
    return parts | {"graph": None, "usual": ms + per_example * 64 if size < 16 else None}


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        ("model", {}),
        # A quarter of the step is wait, or slightly less.
        ("slow reading", {"step": 13.4, "stages": TIMES.stages | {"read": 9}}),
        ("model", {"step": 13.3, "stages": TIMES.stages | {"read": 9}}),
        # The slowest stage is the bottleneck, whatever the sum of the others; with a cache only batching is left.
        ("slow reading", WAITING | {"stages": {"read": 26, "parse": 20, "preprocess": 20, "batch": 20}}),
        ("slow parsing", WAITING | {"stages": {"read": 20, "parse": 26, "preprocess": 20, "batch": 20}}),
        ("slow preprocessing", WAITING | {"stages": {"read": 20, "parse": 20, "preprocess": 26, "batch": 20}}),
        ("slow batching", WAITING | {"stages": {"read": 20, "parse": 20, "preprocess": 20, "batch": 26}}),
        ("slow batching", WAITING | {"cached": True, "stages": TIMES.stages | {"read": 26}}),
        # Input and model do not overlap: a quarter of the step could be hidden behind the other part.
        ("no overlap", {"step": 19, "input": 9, "prefetch": 0, "cached": True}),
        ("slow batching", {"step": 19, "input": 9, "prefetch": 2, "cached": True}),
        ("slow batching", {"step": 12, "input": 9, "model": 2.9, "larger": 12, "prefetch": 0, "cached": True}),
        ("no overlap", {"step": 12, "input": 9, "model": 3.1, "larger": 12, "prefetch": 0, "cached": True}),
        ("slow batching", {"step": 13.5, "input": 11, "model": 10, "prefetch": 0, "cached": True}),
        # The beginnings of epochs: a quarter of the step, and the stages explain under a third of the wait.
        ("short epochs", SHORT_EPOCHS),
        ("slow parsing", SHORT_EPOCHS | {"beginning": 14.9}),
        ("short epochs", WAITING | {"epoch": 1, "beginning": 30}),
        ("slow reading", SHORT_EPOCHS | {"stages": TIMES.stages | {"read": 5.9}}),
        ("short epochs", SHORT_EPOCHS | {"stages": TIMES.stages | {"read": 5.8}}),
        ("short epochs", SHORT_EPOCHS | {"stages": TIMES.stages | {"read": 26}, "cached": True, "prefetch": 0}),
        ("slow batching", SHORT_EPOCHS | {"stages": TIMES.stages | {"batch": 6.7}, "cached": True}),
        # Without a cache, a stage that takes longer than the part that could be hidden is the bottleneck.
        ("slow reading", {"step": 19, "input": 9, "prefetch": 0, "stages": TIMES.stages | {"read": 11.3}}),
        ("no overlap", {"step": 19, "input": 9, "prefetch": 0, "stages": TIMES.stages | {"read": 11.2}}),
        # Python that the graph calls: a quarter of the step.
        ("python", {"loops": [replace(PYTHON, ms=2.6)]}),
        ("model", {"loops": [replace(PYTHON, ms=2.4)]}),
        ("model", {"loops": [replace(PYTHON, where="preprocess", ms=None)]}),
        # A module that runs eagerly, unless the wait is longer.
        ("python", {"eager": True, "graph": None}),
        ("slow reading", {"eager": True, "graph": None, "stages": TIMES.stages | {"read": 26}} | WAITING),
        # Loops: a quarter of the step, by their share of the operations' time, with independent rounds.
        ("loop", {"loops": [replace(MAP, ms=3.2)]}),
        ("model", {"loops": [replace(MAP, ms=3.1)]}),
        ("loop", {"loops": [COPIES]}),
        ("model", {"loops": [replace(MAP, kind="while", independent=False)]}),
        # Time missing in the trace is divided among all operations: 8 ms here, 3.2 of them the loop's.
        ("loop", {"loops": [replace(MAP, ms=0)], "spent": {"MatMul": 1.5}, "forward": 1.0}),
        ("model", {"loops": [replace(MAP, ms=0)], "spent": {"MatMul": 7.5}, "forward": 6.0}),
        ("loop", {"graph": 6.1, "loops": [replace(MAP, ms=8)]}),  # longer or shorter than the part of Python
        ("model", {"graph": 5.9, "loops": [replace(MAP, ms=8)]}),
        # The optimizer takes half of the operations' time and of the step, whatever the batch.
        ("optimizer", {"parts": {"optimizer": 6.4, "conv": 5.6}}),
        ("model", {"parts": {"optimizer": 5.9, "conv": 6.1}}),
        ("model", {"parts": {"optimizer": 6.4, "conv": 5.6}, "graph": 9.0}),
        ("optimizer", fixed(1.0, 0.0, 64) | {"parts": {"optimizer": 6.4, "conv": 5.6}}),
        ("slow reading", WAITING | {"parts": {"optimizer": 12.0}, "stages": TIMES.stages | {"read": 26}}),
        # The fixed cost is half of a step; and half of a step with a usual batch.
        ("small batch", fixed(1.1, 0.5, 2)),
        ("model", fixed(0.9, 0.5, 2)),
        ("small batch", fixed(1.0, 1.01 / 64, 32)),
        ("tiny model", fixed(1.0, 0.99 / 64, 32)),
        ("small batch", fixed(1.0, 1.01 / 64, 2)),
        ("tiny model", fixed(1.0, 0.99 / 64, 2)),
        ("tiny model", fixed(1.0, 0.99 / 256, 256)),
        ("model", fixed(1.0, 1.01 / 256, 256)),
        # Two small batches take the same time on an idle machine: the time of a usual batch counts.
        ("small batch", fixed(4.0, 0.01, 2) | {"usual": 12.0}),
        # On a GPU: exposed copies, or the time in which it waits for launches, take a quarter of the step.
        ("model", {"gpu": GpuTimes(kernels=9.0, copies=0.1, launches=300)}),
        ("copies", {"gpu": GpuTimes(kernels=5.0, copies=2.6, launches=300)}),
        ("model", {"gpu": GpuTimes(kernels=6.9, copies=2.4, launches=300)}),
        ("kernel launches", {"gpu": GpuTimes(kernels=4.0, copies=2.6, launches=2000)}),
        ("kernel launches", {"gpu": GpuTimes(kernels=6.9, copies=0.0, launches=2000)}),
        ("kernel launches", fixed(1.0, 0.0, 64) | {"gpu": GpuTimes(kernels=0.2, copies=0.0, launches=200)}),
        ("small batch", fixed(1.1, 0.5, 2) | {"gpu": GpuTimes(kernels=2.0, copies=0.1, launches=20)}),
        ("python", {"eager": True, "graph": None, "gpu": GpuTimes(kernels=2.0, copies=0.0, launches=900)}),
        ("python", {"loops": [replace(PYTHON, ms=2.6)], "gpu": GpuTimes(kernels=5.0, copies=0.0, launches=90)}),
        ("slow parsing", WAITING | {"stages": TIMES.stages | {"parse": 26}, "gpu": GpuTimes(5.0, 2.6, 300)}),
        # The longest part is the bottleneck.
        ("tiny model", fixed(1.0, 0.002, 64) | {"step": 1.7, "stages": TIMES.stages | {"batch": 1}}),
        ("slow batching", fixed(1.0, 0.002, 64) | {"step": 2.3, "stages": TIMES.stages | {"batch": 1}}),
    ],
)  # fmt: skip
def test_find_bottleneck_returns_the_longest_part(name, measured):
    bottleneck = find_bottleneck(replace(TIMES, **measured))
    assert bottleneck.name == name
    assert 0 <= bottleneck.share <= 1
    assert any(letter.isdigit() for letter in bottleneck.sentence)


def test_a_step_is_the_sum_of_input_python_and_model():
    times = replace(TIMES, step=30)
    assert (times.wait, times.host, times.device) == (20, 0.5, 9.5)
    assert times.fixed == pytest.approx(10 - 28 / 3)
    uneven = replace(TIMES, model=14, graph=2)  # steps were faster in one turn than in another
    assert (uneven.wait, uneven.host, uneven.device) == (0, 10, 0)


def test_the_beginnings_of_epochs_are_part_of_the_wait_and_not_of_a_stage():
    times = replace(TIMES, **SHORT_EPOCHS)
    assert times.epoch_start == 7.55
    assert replace(times, beginning=90).epoch_start == times.wait == 20
    sentence = find_bottleneck(times).sentence
    assert "each epoch, of 2 steps, begins with a wait of 15.1 ms" in sentence
    assert "all stages of the input together take 1 ms a batch" in sentence


def test_a_sentence_names_the_line_and_its_share():
    sentence = find_bottleneck(replace(TIMES, loops=[MAP])).sentence
    assert "line 8 of the module is a map over slices" in sentence
    assert "50% of what the operations of a step of 10 ms take" in sentence
    calls = [replace(PYTHON, ms=1), replace(PYTHON, line=9, ms=5)]
    sentence = find_bottleneck(replace(TIMES, loops=calls)).sentence
    assert "6 ms of a step of 10 ms, at line 9" in sentence


def test_a_sentence_names_the_updated_weights_and_the_longest_layer():
    weights = {"words": 12_800_000, "dense": 64}
    sentence = find_bottleneck(replace(TIMES, parts={"optimizer": 9.6, "dense": 1.2}, weights=weights)).sentence
    assert "80% of what the operations of a step of 10 ms take updates 12.8 million weights" in sentence
    assert "100% of them in words" in sentence
    even = find_bottleneck(replace(TIMES, parts={"optimizer": 9.6}, weights={"a": 5000, "b": 5000})).sentence
    assert "updates 10,000 weights, at each step" in even
    augmented = find_bottleneck(replace(TIMES, parts={"augment": 9.0, "conv": 3.0})).sentence
    assert augmented.endswith("; 75% of their time is the layer augment")


def test_times_of_a_gpu_are_those_of_its_kernels_by_the_operation_that_launched_them(tmp_path):
    """A trace as CUPTI's collector in XLA writes it: streams are lines, and the stat ``tf_op`` refers to a name."""
    space = xplane_pb2.XSpace()
    host = space.planes.add(name="/host:CPU")
    add_events(host, "tf_Compute", [("model/dense/MatMul:MatMul", 0, 900, "")])  # a launch
    for device, longer in (("/device:GPU:0", 0), ("/device:GPU:1", 100)):
        plane = space.planes.add(name=device)
        add_events(
            plane,
            "Stream #13(Compute,MemcpyD2D)",
            [
                ("void gemm<float>()", 1000, 400 + longer, "model/dense/MatMul:MatMul"),
                ("void gemm<float>()", 2000, 200, "gradient_tape/model/dense/MatMul:MatMul"),
                ("MemcpyD2D", 2300, 100, "model/copy/Identity:Identity"),
            ],
        )
        copies = [("MemcpyH2D", 900, 300, ""), ("MemcpyD2H", 3000, 50, ""), ("MemcpyH2D", 3025, 50, "")]
        add_events(plane, "Stream #14(MemcpyH2D,MemcpyD2H)", copies)
        add_events(plane, "CUPTI overhead", [("Buffer", 0, 9000, "")])
    (tmp_path / "host.xplane.pb").write_bytes(space.SerializeToString())
    times = operation_times(tmp_path, 2, {8: ["model/dense/MatMul"]}, Scopes("model", {"dense"}, {"Adam"}))
    assert times.by_kind == {"MatMul": pytest.approx(0.65), "Identity": pytest.approx(0.1)}  # both GPUs, two steps
    assert (times.forward, times.by_line[8], times.by_part["dense"]) == (0.55, 0.65, 0.65)
    # The kernels of the second GPU run from 1,000 to 1,500 µs, from 2,000 to 2,200 and from 2,300 to 2,400; nothing but
    # copies from 900 to 1,000 and from 3,000 to 3,075.
    assert times.gpu == GpuTimes(kernels=0.4, copies=pytest.approx(0.0875), launches=1.5)


def add_events(plane, line: str, events: list[tuple[str, int, int, str]]) -> None:
    """Add a line of events to a plane: names, their beginning and duration in µs, and operations."""
    added = plane.lines.add(name=line, timestamp_ns=5_000)
    for name, start, duration, operation in events:
        event = added.events.add(
            metadata_id=number_of(plane.event_metadata, name), offset_ps=start * 10**6, duration_ps=duration * 10**6
        )
        if operation:
            key, reference = (number_of(plane.stat_metadata, text) for text in ("tf_op", operation))
            event.stats.add(metadata_id=key, ref_value=reference)


def number_of(metadata, name: str) -> int:
    """Return the number of a name in the metadata of a plane, which are extended if it is new."""
    number = next((key for key, value in metadata.items() if value.name == name), len(metadata) + 1)
    metadata[number].id, metadata[number].name = number, name
    return number
