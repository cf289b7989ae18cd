"""Test what the benchmark of a month plans, and that it finds each broken promise; a short month is run nightly."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import month

SIZES = {"runs": 100, "metadata": 100, "served": 100, "history": 4}
SEEN = {"looks": 50, "lacks": 0}


def good(number: int, **changes) -> month.Day:
    day = month.Day(number, "good", [], version=number, whole="whole", reason="blessed", done=True, bytes=SIZES)
    return replace(day, **changes)


@pytest.mark.parametrize("count", [11, 23, 24, 30])
@pytest.mark.parametrize("seed", range(5))
def test_each_fault_is_planned_on_days_that_can_show_it(count, seed):
    days = month.plan_month(count, seed)
    assert days == month.plan_month(count, seed)
    assert [day.number for day in days] == list(range(1, count + 1))
    exports = [day.export for day in days if day.export != "good"]
    faults = [fault for day in days for fault in day.faults]
    expected = {"missing", "class", "empty", "duplicate"} | ({"labels"} if count >= 24 else set())
    assert sorted(exports) == sorted(expected)
    assert {fault: faults.count(fault) for fault in ("full", "overlap", "clock")} == {
        "full": 2, "overlap": 1, "clock": 1,
    }  # fmt: skip
    assert {"kill run", "kill step"} <= set(faults)
    assert days[0].export == "good" and "full" not in days[0].faults  # a first version
    full = [day.number for day in days if "full" in day.faults]
    assert full[1] == full[0] + 1
    (withdrawn,) = [day for day in days if "withdraw" in day.faults]
    assert (withdrawn.export, days[withdrawn.number].export) == ("good", "duplicate")
    assert "receiver" in withdrawn.faults  # so that there is something to report while it is down
    assert (faults.count("kill withdraw"), faults.count("receiver"), faults.count("policy")) == (1, 1, 1)
    assert sum(map(month.can_be_canary, days)) >= len(month.CANARIES)


def test_a_month_that_held_its_promises_has_no_line():
    days = [good(1), replace(good(2), export="class", version=None, done=False), good(3), good(4), good(5), good(6)]
    assert month.broken_promises(days, [SEEN] * 6) == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"whole": "model.tflite: changed"}, "day 5: version 5 is not whole: model.tflite: changed"),
        ({"export": "missing"}, "day 5: missing, and pushed"),
        ({"version": 4}, "version 4 was pushed twice"),
        ({"broken": "version 5 is served"}, "day 5: version 5 is served"),
        ({"done": False, "reason": "Killed"}, "day 5: a good day was lost: Killed"),
        ({"bytes": SIZES | {"metadata": 151}}, "metadata grew from 100 B to 151 B"),
    ],
)
def test_each_broken_promise_is_found(changes, line):
    days = [good(number) for number in range(1, 7)]
    days[4] = replace(days[4], **changes)
    assert month.broken_promises(days, [SEEN] * 6) == [line]


def test_a_withdrawn_version_that_comes_back_is_found():
    days = [good(1, withdrawn=1), good(2, export="duplicate", version=2)]
    assert month.broken_promises(days, [SEEN] * 2) == ["day 2: the withdrawn version 1 was pushed again"]
    assert month.broken_promises([days[0], replace(days[1], version=None)], [SEEN] * 2) == []


def test_a_moment_without_a_version_is_found():
    watched = [SEEN, {"looks": 50, "lacks": 1}]
    (line,) = month.broken_promises([good(1), good(2)], watched)
    assert line == "day 2: the served folder lacked a version in 1 of 50 looks"


def test_the_reader_counts_moments_without_a_version(tmp_path):
    with month.Watch(tmp_path) as watch:
        version = tmp_path / "1"
        version.mkdir()
        (version / "model.tflite").write_bytes(b"m")
        (tmp_path / "latest").symlink_to("1")
        wait_for(watch, looks=3)
        assert watch.take()["lacks"] == 0
        (version / "model.tflite").unlink()
        assert wait_for(watch, looks=3)["lacks"] > 0


def wait_for(watch: month.Watch, looks: int) -> dict[str, int]:
    """Return the sums of counts as soon as the reader has looked so often."""
    sums = {"looks": 0, "lacks": 0}
    while sums["looks"] < looks:
        for name, count in watch.take().items():
            sums[name] += count
    return sums
