"""`profile_training`: which name a training's bottleneck is given, from made-up numbers on both sides of each rule."""

import dataclasses

import pytest

from tfopt.components.profile_training.bottleneck import Measured, bottleneck

MAP = {
    "where": "step", "kind": "map_fn", "line": 8, "code": "tf.map_fn(f, x)", "independent": True, "copies": 1, "ms": 6,
    "runs": 0.4, "forward": 0.8,
}  # fmt: skip
PYTHON = MAP | {"kind": "python", "independent": None}
COPIES = MAP | {"kind": "unrolled", "copies": 64}
USUAL = Measured(
    batch_size=64, prefetch=2, step=10, model=10, graph=9.5, larger=38, usual=None, input=1, cached=False, eager=False,
    loops=[], stages={"read": 0.2, "parse": 0.4, "preprocess": 0.1, "batch": 0.3}, forward=12.0, epoch=100, beginning=0,
    spent={"MatMul": 9.0, "Mul": 3.0},
)  # fmt: skip
LATE = {"step": 30, "input": 28}
SHORT = LATE | {"epoch": 2, "beginning": 15.1}


def fixed(ms: float, each: float, size: int) -> dict:
    """A model alone, whose step takes so long with no example in it, and so much more with each."""
    parts = {"batch_size": size, "step": ms + each * size, "model": ms + each * size, "larger": ms + each * 4 * size}
    return parts | {"graph": None, "usual": ms + each * 64 if size < 16 else None}


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        ("model", {}),
        # Of a step, a quarter waits or does not.
        ("slow reading", {"step": 13.4, "stages": USUAL.stages | {"read": 9}}),
        ("model", {"step": 13.3, "stages": USUAL.stages | {"read": 9}}),
        # The slowest stage has the name, whatever the others add up to; with a cache only batching is left.
        ("slow reading", LATE | {"stages": {"read": 26, "parse": 20, "preprocess": 20, "batch": 20}}),
        ("slow parsing", LATE | {"stages": {"read": 20, "parse": 26, "preprocess": 20, "batch": 20}}),
        ("slow preprocessing", LATE | {"stages": {"read": 20, "parse": 20, "preprocess": 26, "batch": 20}}),
        ("slow batching", LATE | {"stages": {"read": 20, "parse": 20, "preprocess": 20, "batch": 26}}),
        ("slow batching", LATE | {"cached": True, "stages": USUAL.stages | {"read": 26}}),
        # One after the other: where a quarter of the step would hide behind the other part, and did not.
        ("no overlap", {"step": 19, "input": 9, "prefetch": 0, "cached": True}),
        ("slow batching", {"step": 19, "input": 9, "prefetch": 2, "cached": True}),
        ("slow batching", {"step": 12, "input": 9, "model": 2.9, "larger": 12, "prefetch": 0, "cached": True}),
        ("no overlap", {"step": 12, "input": 9, "model": 3.1, "larger": 12, "prefetch": 0, "cached": True}),
        ("slow batching", {"step": 13.5, "input": 11, "model": 10, "prefetch": 0, "cached": True}),
        # The beginnings of epochs: a quarter of the step, and no more than a third of the wait is of any stage.
        ("short epochs", SHORT),
        ("slow parsing", SHORT | {"beginning": 14.9}),
        ("short epochs", LATE | {"epoch": 1, "beginning": 30}),
        ("slow reading", SHORT | {"stages": USUAL.stages | {"read": 5.9}}),
        ("short epochs", SHORT | {"stages": USUAL.stages | {"read": 5.8}}),
        ("short epochs", SHORT | {"stages": USUAL.stages | {"read": 26}, "cached": True, "prefetch": 0}),
        ("slow batching", SHORT | {"stages": USUAL.stages | {"batch": 6.7}, "cached": True}),
        # Without a cache, a stage that takes longer than what would hide is worth more.
        ("slow reading", {"step": 19, "input": 9, "prefetch": 0, "stages": USUAL.stages | {"read": 11.3}}),
        ("no overlap", {"step": 19, "input": 9, "prefetch": 0, "stages": USUAL.stages | {"read": 11.2}}),
        # Python that the graph calls: a quarter of the step.
        ("python", {"loops": [PYTHON | {"ms": 2.6}]}),
        ("model", {"loops": [PYTHON | {"ms": 2.4}]}),
        ("model", {"loops": [PYTHON | {"where": "preprocess", "ms": None}]}),
        # A module that runs eagerly, unless it waits for longer.
        ("python", {"eager": True, "graph": None}),
        ("slow reading", {"eager": True, "graph": None, "stages": USUAL.stages | {"read": 26}} | LATE),
        # Loops: a quarter of the step, as of the operations' time, and rounds that need nothing of each other.
        ("loop", {"loops": [MAP | {"ms": 3.2}]}),
        ("model", {"loops": [MAP | {"ms": 3.1}]}),
        ("loop", {"loops": [COPIES]}),
        ("model", {"loops": [MAP | {"kind": "while", "independent": False}]}),
        # What the profiler did not see is divided among all that runs: 8 ms here, of which 3.2 are the loop's.
        ("loop", {"loops": [MAP | {"ms": 0}], "spent": {"MatMul": 1.5}, "forward": 1.0}),
        ("model", {"loops": [MAP | {"ms": 0}], "spent": {"MatMul": 7.5}, "forward": 6.0}),
        ("loop", {"graph": 6.1, "loops": [MAP | {"ms": 8}]}),  # longer than what Python adds to the step, or shorter
        ("model", {"graph": 5.9, "loops": [MAP | {"ms": 8}]}),
        # What a step costs whatever is in it: half of it; and half of one with a usual batch.
        ("small batch", fixed(1.1, 0.5, 2)),
        ("model", fixed(0.9, 0.5, 2)),
        ("small batch", fixed(1.0, 1.01 / 64, 32)),
        ("tiny model", fixed(1.0, 0.99 / 64, 32)),
        ("small batch", fixed(1.0, 1.01 / 64, 2)),
        ("tiny model", fixed(1.0, 0.99 / 64, 2)),
        ("tiny model", fixed(1.0, 0.99 / 256, 256)),
        ("model", fixed(1.0, 1.01 / 256, 256)),
        # Between two batches that both leave the machine idle nothing seems to be added: what a usual one takes counts.
        ("small batch", fixed(4.0, 0.01, 2) | {"usual": 12.0}),
        # The longest of all has the name.
        ("tiny model", fixed(1.0, 0.002, 64) | {"step": 1.7, "stages": USUAL.stages | {"batch": 1}}),
        ("slow batching", fixed(1.0, 0.002, 64) | {"step": 2.3, "stages": USUAL.stages | {"batch": 1}}),
    ],
)  # fmt: skip
def test_the_longest_part_of_a_step_gets_its_name(name, measured):
    found = bottleneck(dataclasses.replace(USUAL, **measured))
    assert found.name == name
    assert 0 <= found.share <= 1
    assert any(letter.isdigit() for letter in found.sentence)


def test_a_step_is_what_input_python_and_the_model_add():
    found = dataclasses.replace(USUAL, step=30)
    assert (found.wait, found.host, found.device) == (20, 0.5, 9.5)
    assert found.fixed == pytest.approx(10 - 28 / 3)
    uneven = dataclasses.replace(USUAL, model=14, graph=2)  # steps that were faster in one turn than in another
    assert (uneven.wait, uneven.host, uneven.device) == (0, 10, 0)


def test_the_beginnings_of_epochs_are_part_of_the_wait_and_of_no_stage():
    found = dataclasses.replace(USUAL, **SHORT)
    assert found.begun == 7.55
    assert dataclasses.replace(found, beginning=90).begun == found.wait == 20
    said = bottleneck(found).sentence
    assert "each epoch, of 2 steps, begins with a wait of 15.1 ms" in said
    assert "all stages of the input together take 1 ms a batch" in said


def test_a_sentence_names_the_line_and_its_share():
    said = bottleneck(dataclasses.replace(USUAL, loops=[MAP])).sentence
    assert "line 8 of the module is a map over slices" in said
    assert "50% of what the operations of a step of 10 ms take" in said
    said = bottleneck(dataclasses.replace(USUAL, loops=[PYTHON | {"ms": 1}, PYTHON | {"line": 9, "ms": 5}])).sentence
    assert "6 ms of a step of 10 ms, at line 9" in said
