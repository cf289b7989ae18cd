"""`profile_training`: settings take turns, each in a process of its own, and are compared by what an example takes."""

import dataclasses
import logging

import pytest

from tests.components.test_profile_training import BASE
from tfopt.components.profile_training.interleaving import Pace, Runner, compare, started
from tfopt.components.profile_training.variations import Variation
from tfopt.errors import ComponentError

PACE = Pace(1.0, 8, 0)
AS_IT_IS = Variation("as it is", dataclasses.replace(BASE, cache="auto"), "plan")


def other(name: str, **settings) -> Variation:
    return Variation(name, dataclasses.replace(AS_IT_IS.setup, **settings), "plan")


@pytest.fixture
def base(tmp_path, monkeypatch):
    """The training as it is, in a process that is ready."""
    monkeypatch.setattr("tfopt.components.profile_training.interleaving.WORKER", "tests.components.steady_worker")
    with started(AS_IT_IS, tmp_path, 0) as process:
        process.ask("build", AS_IT_IS.setup)
        yield Runner(AS_IT_IS, process)


def test_what_an_example_takes_decides_and_each_comparison_stands_for_itself(base, tmp_path):
    base.seconds += [99.0] * 3  # of an earlier one
    others = [other("cached", cache="memory"), other("larger", batch_size=256), other("the same")]
    rows = compare(base, others, PACE, tmp_path, 0.05)
    assert [row["name"] for row in rows] == ["cached", "larger", "the same"]
    assert [row["speedup"]["value"] for row in rows] == pytest.approx([2.0, 4.0, 1.0])
    assert [row["speedup"]["verdict"] for row in rows] == ["faster", "faster", "within noise"]
    assert rows[1]["example_us"] == pytest.approx(0.02 / 256 * 1e6)
    assert [row["memory_bytes"] for row in rows] == [1000] * 3


def test_what_cannot_be_built_or_dies_drops_out_once_and_the_others_go_on(base, tmp_path, caplog):
    caplog.set_level(logging.INFO, "tfopt")
    others = [other("dies", cache="disk"), other("is none", cache="off"), other("cached", cache="memory")]
    died, none, cached = compare(base, others, PACE, tmp_path, 0.05)
    assert (died["speedup"], none["speedup"], died["memory_bytes"]) == (None, None, 0)
    assert none["error"] == "ValueError: no such training"
    assert cached["speedup"]["value"] == pytest.approx(2.0)
    assert caplog.text.count("dies drops out") == caplog.text.count("is none drops out") == 1


def test_without_the_training_as_it_is_there_is_nothing_to_compare_with(base, tmp_path):
    base.process.ask("build", dataclasses.replace(BASE, cache="disk"))
    with pytest.raises(ComponentError, match="a training that runs"):
        compare(base, [other("cached", cache="memory")], PACE, tmp_path, 0.05)
