"""Test in which order backbones are built and measured, with small and large budgets, on a clock of the test."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tfopt.components.compare_backbones import candidate as candidate_module
from tfopt.components.compare_backbones import cost
from tfopt.components.compare_backbones.candidate import Budget, Candidate
from tfopt.errors import ComponentError

BUILD_S, MEASURE_S = 40.0, 20.0
FORMATS = ("saved_model", "tflite")


@pytest.fixture
def events(monkeypatch) -> list[tuple[str, ...]]:
    """Record what `measure_costs` does, in order; building takes 40 seconds, a measurement of a group 20."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(cost, "time", clock)
    monkeypatch.setattr(candidate_module, "time", clock)
    log: list[tuple[str, ...]] = []

    def build(module: Path, resolved, examples, folder: Path, budget: Budget):
        budget.remaining_seconds()
        if module.name == "broken":
            raise ComponentError("broken", "a backbone that can be built", "leave it out")
        clock.now += BUILD_S
        log.append(("build", folder.name))

    def measure(group, format_name, resolved, examples, budget: Budget):
        names = tuple(candidate.name for candidate in group)
        if budget.is_spent:
            return {}
        clock.now += MEASURE_S
        log.append(("measure", format_name, *names))
        return {"cpu": format_name}

    monkeypatch.setattr(cost, "build_model", build)
    monkeypatch.setattr(cost, "export_model", lambda folder, format_name, examples, budget: folder / format_name)
    monkeypatch.setattr(cost, "_benchmark", measure)
    return log


def measure_costs(count: int, minutes: float, broken: int | None = None) -> dict:
    candidates = [
        Candidate(f"b{n}", Path("broken" if n == broken else "module"), Path(f"b{n}"), error="") for n in range(count)
    ]
    return cost.measure_costs(candidates, SimpleNamespace(formats=list(FORMATS)), "examples", Budget(minutes))


def test_a_small_budget_measures_some_backbones_before_it_builds_the_others(events):
    assert measure_costs(8, 5) == {"cpu": "tflite"}
    measured = [event for event in events if event[0] == "measure"]
    assert measured[0] == ("measure", "saved_model", "b0", "b1")  # after 80 of 300 seconds
    assert measured[1] == ("measure", "tflite", "b0", "b1")
    assert events.index(measured[1]) < events.index(("build", "b2"))
    assert len({name for event in measured for name in event[2:]}) >= 3


def test_a_large_budget_measures_groups_of_six_together(events):
    measure_costs(8, 120)
    measured = [event[2:] for event in events if event[:2] == ("measure", "tflite")]
    assert measured == [tuple(f"b{n}" for n in range(6)), ("b6", "b7")]


def test_a_backbone_that_cannot_be_built_is_not_measured(events):
    measure_costs(3, 120, broken=1)
    assert [event[2:] for event in events if event[0] == "measure"] == [("b0", "b2")] * len(FORMATS)


def test_a_budget_that_ends_while_building_measures_nothing(events):
    measure_costs(2, 0.5)
    assert events == [("build", "b0")]
