"""Test the removal of channels by a table of latencies: order of removals, budget of time, reuse, and a real run."""

import re

import numpy as np
import pytest

from tests.components.test_prune_channels import residual
from tfopt import keras_models
from tfopt.components.prune.channels import latency_table
from tfopt.components.prune.channels.cost import count_cost
from tfopt.components.prune.channels.groups import ChannelGroup, follow_channels
from tfopt.components.prune.channels.latency import LatencyMeter
from tfopt.components.prune.channels.latency_table import (
    GroupLatency,
    LatencyTable,
    Step,
    apply_steps,
    order_steps,
    search_steps,
)
from tfopt.components.prune.channels.selection import remove_channels
from tfopt.components.prune.component import prune
from tfopt.components.prune.parameters import PruningSettings
from tfopt.errors import ComponentError
from tfopt.training.checkpointing.stored_measurements import StoredMeasurements

TABLE = {"runtime": "tflite", "records": 1, "milliseconds": 1.0, "seconds": 0.0, "reused": 0}


def groups_of(*sizes):
    starts = np.cumsum([0, *sizes])
    return [
        ChannelGroup((f"layer{at}",), (f"layer{at}",), np.arange(size) + start, None)
        for at, (size, start) in enumerate(zip(sizes, starts, strict=False))
    ]


def test_steps_are_ordered_by_importance_for_saved_latency():
    """Channels of the first group are worth as much, and save three times as much as those of the second."""
    groups, scores = groups_of(40, 40, 40), np.ones(120)
    rows = [GroupLatency("a", 40, {8: 0.7}), GroupLatency("b", 40, {8: 0.9}), GroupLatency("c", 40)]
    steps = order_steps(groups, scores, LatencyTable(**TABLE, groups=rows), 8)
    assert [(step.group, step.channels) for step in steps] == [(group, n) for group in (0, 1) for n in (32, 24, 16, 8)]
    assert sum(step.saved for step in steps) == pytest.approx(0.4)
    remaining = apply_steps(np.arange(120), groups, np.arange(120.0), steps[:5])
    assert [int(remaining[group.bundles].sum()) for group in groups] == [8, 32, 40]  # c was not measured
    assert remaining[32:40].all() and not remaining[:32].any()  # the most important ones


def test_a_width_that_saves_nothing_is_passed_with_the_next_one_that_does():
    """Kernels work in steps of 16 channels: 24 of 32 are as slow as 32, so both steps have the price of the segment."""
    steps = order_steps(
        groups_of(32, 32),
        np.concatenate([np.ones(32), np.full(32, 1.5)]),
        LatencyTable(
            **TABLE, groups=[GroupLatency("a", 32, {24: 1.02, 16: 0.9, 8: 0.89}), GroupLatency("b", 32, {8: 0.76})]
        ),
        8,
    )
    assert [(step.group, step.channels) for step in steps] == [(1, 24), (1, 16), (1, 8), (0, 24), (0, 16), (0, 8)]
    assert steps[3].saved == 0 and steps[4].saved == pytest.approx(0.1)  # never negative
    assert steps[3].price == steps[4].price == pytest.approx(16 / 0.1)


@pytest.mark.parametrize("budget", [0.8, 0.6, 0.55])
def test_the_whole_model_is_measured_until_it_meets_the_budget(budget):
    """Two groups that share kernels save less than the sum of their savings in the table."""
    steps, measured = [Step(n % 2, 100 - n, 0.01, 1.0) for n in range(80)], []

    def measure(some):
        measured.append(len(some))
        return 1 - 0.01 * len(some) * (1 - len(some) / 200)

    chosen, latency = search_steps(steps, measure, budget)
    assert budget - 0.015 <= latency <= budget
    assert latency == measure(chosen) and len(measured) - 1 <= 1 + latency_table.VERIFIED
    assert search_steps(steps, measure, 0.3) == (steps, pytest.approx(0.52))  # all of them do not suffice


class CountedFlops(LatencyMeter):
    """A meter whose latencies are FLOPs: exact and the same in each run."""

    def __init__(self, parent):
        self.runtime, self.records, self.milliseconds, self.measured = "flops", 1, 1.0, []
        self._whole = _flops(parent)

    def measure(self, model):
        self.measured.append(_flops(model))
        return self.measured[-1] / self._whole


def _flops(model):
    graph = follow_channels(model)
    return count_cost(model, graph, np.ones(len(graph.roots()), bool)).flops


def test_measured_latencies_are_reused_and_without_time_nothing_else_is_measured(tmp_path):
    model, settings = residual(), PruningSettings(0.3, "channel", measure="latency", multiple=2)
    meter = CountedFlops(model)
    removal = remove_channels(model, settings, meter=meter, stored=StoredMeasurements(str(tmp_path), "model"))
    assert 0.6 < removal.ratio <= 0.7
    assert _flops(removal.model) / _flops(model) == removal.ratio
    first = removal.table
    assert [group.channels for group in first.groups] == [16, 24]
    assert [sorted(group.latencies) for group in first.groups] == [[2, 8, 12], [4, 12, 18]]
    assert first.groups[0].latencies[8] == meter.measured[0] / _flops(model)  # most FLOPs first

    again = CountedFlops(model)
    timeless = PruningSettings(0.3, "channel", measure="latency", multiple=2, latency_minutes=0.0)
    stored = StoredMeasurements(str(tmp_path), "model")
    reused = remove_channels(model, timeless, meter=again, stored=stored)
    assert reused.table.reused == 6 and len(again.measured) == len(meter.measured) - 6
    assert reused.table.groups == first.groups
    with pytest.raises(ComponentError, match=r"(?s)sparsity=0\.3 of latency.*2 groups .* raise latency_minutes"):
        remove_channels(model, timeless, meter=CountedFlops(model))


def test_in_group_scope_every_group_loses_the_same_fraction():
    model = residual()
    settings = PruningSettings(0.5, "channel", measure="latency", scope="group", multiple=1)
    removal = remove_channels(model, settings, meter=CountedFlops(model))
    assert removal.ratio <= 0.5 and removal.table is None


def test_the_same_model_has_the_same_latency_in_litert():
    model = residual()
    meter = LatencyMeter(model, "tflite", records=2)
    assert meter.milliseconds > 0
    assert 0.2 < meter.measure(model) < 5  # on any machine


def test_checkpoints_that_cannot_be_written_are_refused_in_the_first_second(digits_model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ComponentError, match=r"(?s)checkpoints=.*a folder that can be written"):
        prune(digits_model, tmp_path / "out", pattern="channel", measure="latency", checkpoints=str(tmp_path / "file"))


@pytest.mark.nightly
def test_a_model_is_pruned_to_a_latency_of_litert_and_a_second_run_reuses_the_table(tmp_path):
    import keras

    image = keras.Input((32, 32, 3), name="image")
    flow = keras.layers.Conv2D(48, 3, padding="same", activation="relu", name="first")(image)
    flow = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(48, 3, activation="relu", name="second")(flow))
    keras_models.save(keras.Model(image, keras.layers.Dense(4)(flow)), tmp_path / "model")
    options = {"pattern": "channel", "measure": "latency", "latency_runtime": "tflite"}
    options |= {"checkpoints": str(tmp_path / "latencies")}
    for name, reused in (("first", 0), ("second", 6)):
        pruned = prune(tmp_path / "model", tmp_path / name, sparsity=0.4, **options)["pruned"]
        report = pruned.card.facts["report"]
        assert report["ratio"] <= 0.6 == report["latency"]["target"]
        assert [len(group["latencies"]) for group in report["latency"]["groups"]] == [3, 3]
        assert report["latency"]["reused"] == reused
        assert {"first", "second"} <= set(re.findall(r"\w+", (tmp_path / name / "latency.html").read_text()))
    (folder,) = (tmp_path / "latencies").iterdir()
    assert len(list(folder.iterdir())) == 6
