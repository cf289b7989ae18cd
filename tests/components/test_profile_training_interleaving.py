"""Test that `profile_training` measures variations interleaved and compares the time per example."""

import dataclasses
import logging
from pathlib import Path

import pytest

from tests.components.test_profile_training import BASE
from tfopt.components.profile_training import profile
from tfopt.components.profile_training.parameters import Pace
from tfopt.components.profile_training.profile import VariationRun, compare_variations, start_process
from tfopt.components.profile_training.training_variant import Variation
from tfopt.errors import ComponentError

PACE = Pace(seconds=1.0, rounds=8)
AS_IT_IS = Variation("as it is", dataclasses.replace(BASE, cache="auto"), "plan")


def other(name: str, **settings) -> Variation:
    return Variation(name, dataclasses.replace(AS_IT_IS.variant, **settings), "plan")


@pytest.fixture
def base(tmp_path, monkeypatch):
    """The unchanged training, in a process that is ready."""
    monkeypatch.setattr(profile, "WORKER", "tests.components.steady_worker")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # workers do not search the working folder
    with start_process(AS_IT_IS, tmp_path, 0) as process:
        process.call("build", AS_IT_IS.variant)
        yield VariationRun(AS_IT_IS, process)


def test_variations_are_compared_by_time_per_example_in_this_comparison_only(base, tmp_path):
    base.seconds += [99.0] * 3  # of an earlier comparison
    others = [other("cached", cache="memory"), other("larger", batch_size=256), other("the same")]
    results = compare_variations(base, others, PACE, tmp_path)
    assert [result.name for result in results] == ["cached", "larger", "the same"]
    assert [result.speedup.value for result in results] == pytest.approx([2.0, 4.0, 1.0])
    assert [result.speedup.verdict for result in results] == ["faster", "faster", "within noise"]
    assert results[1].example_us == pytest.approx(0.02 / 256 * 1e6)
    assert [result.memory_bytes for result in results] == [1000] * 3


def test_a_variation_that_fails_is_reported_once_and_the_others_are_measured(base, tmp_path, caplog):
    caplog.set_level(logging.INFO, "tfopt")
    others = [other("dies", cache="disk"), other("is none", cache="off"), other("cached", cache="memory")]
    died, none, cached = compare_variations(base, others, PACE, tmp_path)
    assert (died.speedup, none.speedup, died.memory_bytes) == (None, None, 0)
    assert none.error == "ValueError: no such training"
    assert cached.speedup.value == pytest.approx(2.0)
    assert caplog.text.count("dies cannot be measured") == caplog.text.count("is none cannot be measured") == 1


def test_a_base_that_fails_is_refused(base, tmp_path):
    base.process.call("build", dataclasses.replace(BASE, cache="disk"))
    with pytest.raises(ComponentError, match="a training that runs"):
        compare_variations(base, [other("cached", cache="memory")], PACE, tmp_path)
