"""Test the capacity of a node: queues that theory knows on a simulated clock, intervals, decisions, a real model."""

import contextlib
import math
from dataclasses import replace

import numpy as np
import pytest

from tests.components.workloads import QUICK
from tests.reports import DIGITS, Row, make_models, parsed_reports
from tests.serving.test_load_generator import SimulatedClock
from tfopt.artifacts import Model
from tfopt.components.benchmark import measured_model
from tfopt.components.benchmark.component import benchmark
from tfopt.components.benchmark.load import LADDER, Ladder, LoadedNode, LoadMeasurement, Setup, summarize
from tfopt.components.benchmark.measured_model import MeasuredModel, RoundLoad
from tfopt.components.benchmark.parameters import Settings
from tfopt.components.select_model.decide import decide
from tfopt.components.select_model.parameters import Criteria
from tfopt.errors import ComponentError
from tfopt.measurement.model_measurements import ModelMeasurements
from tfopt.measurement.significance import is_indistinguishable
from tfopt.reports.benchmark_report import LoadSettings, Measured, NodeLoad, SpeedupEstimate
from tfopt.serving import load_generator

LIMIT_MS = 50.0
MOST_WAITED = measured_model.MOST_WAITED  # before a fixture replaces it


@pytest.fixture
def _real_limit(monkeypatch) -> None:
    monkeypatch.setattr(measured_model, "MOST_WAITED", MOST_WAITED)


def waits_at_most(seconds: float, service: float, rate: float) -> float:
    """Return the probability in the queue M/D/1 (Erlang 1909; Crommelin 1932)."""
    terms = [
        (rate * (number * service - seconds)) ** number
        / math.factorial(number)
        * math.exp(-rate * (number * service - seconds))
        for number in range(int(seconds / service + 1e-9) + 1)
    ]
    return (1 - rate * service) * sum(terms)


def capacity_of(service: float) -> float:
    """Return the rate at which 99 % of the requests are answered within the limit."""
    rates = np.linspace(0.3, 0.999, 700) / service
    return float(max(rate for rate in rates if waits_at_most(LIMIT_MS / 1e3 - service, service, rate) >= 0.99))


class SimulatedNodes(LoadMeasurement):
    """Nodes with one instance and one core, whose calls take a given time on a simulated clock."""

    def __init__(self, settings: Settings, services: dict[str, float], clock: SimulatedClock, folder, waited) -> None:
        super().__init__(settings, lambda _: folder, folder)
        self._services, self._clock, self._waited = services, clock, waited

    @contextlib.contextmanager
    def _started(self, model, threads, instances):
        self._service = self._services[model.name]
        yield self

    def call(self, name, times, batch_size, limit, most_late):
        """Send requests, and let others use the cores for a part of the time."""
        work = [lambda _: self._clock.sleep(self._service)]
        result = load_generator.send_batches(work, times, batch_size, limit, most_late)
        return result.latencies, result.delays, self._waited()


def simulate(monkeypatch, tmp_path, services: dict[str, float], waited=lambda: 0.0, **settings) -> dict[str, NodeLoad]:
    """Measure models whose calls take these seconds."""
    clock = SimulatedClock()
    monkeypatch.setattr(load_generator, "time", clock)
    models = [
        MeasuredModel(name, Model(tmp_path), None, is_baseline=not index, is_warm={1: True}, call_seconds={1: service})
        for index, (name, service) in enumerate(services.items())
    ]
    settings = Settings(batch_sizes=("1",), max_p99_ms=LIMIT_MS, node_cores=1, seconds=100.0, **settings)
    return SimulatedNodes(settings, services, clock, tmp_path, waited).measure(models)


def test_the_capacity_is_that_of_the_queue_and_its_interval_holds_it(monkeypatch, tmp_path):
    loads = simulate(monkeypatch, tmp_path, {"slow": 0.01, "fast": 0.005}, price=0.36, rate=150.0)
    for name, service in (("slow", 0.01), ("fast", 0.005)):
        capacity, expected = loads[name].capacity, capacity_of(service)
        assert capacity.value == pytest.approx(expected, rel=0.08)
        assert capacity.low < expected < capacity.high < 1.8 * capacity.low
        assert loads[name].cost.value == pytest.approx(100 / capacity.value)
    fast, slow = loads["fast"], loads["slow"]
    assert fast.over_baseline.verdict == "faster" and fast.over_best is None
    assert fast.over_baseline.low < capacity_of(0.005) / capacity_of(0.01) < fast.over_baseline.high
    assert slow.over_best.verdict == "slower" and slow.over_baseline is None
    assert (slow.nodes.value, fast.nodes.value) == (3, 1)
    assert (
        fast.p99_at_rate.low < fast.p99_at_rate.value < LIMIT_MS < slow.p99_at_rate.value
    )  # 150/s is above what a call of 10 ms can answer


def test_a_limit_that_a_call_exceeds_has_no_capacity_and_no_cost(monkeypatch, tmp_path):
    loads = simulate(monkeypatch, tmp_path, {"slow": 0.06, "fast": 0.01}, price=1.0, rate=5.0)
    assert loads["slow"].capacity == Measured(0.0, 0.0, 0.0)
    assert loads["slow"].cost is loads["slow"].nodes is loads["fast"].over_baseline is None
    assert loads["slow"].p99_at_rate.value >= 60


def test_a_slow_baseline_is_refused_with_the_seconds_that_it_needs(monkeypatch, tmp_path):
    with pytest.raises(ComponentError, match="slow: 100 requests at each rate take") as refusal:
        simulate(monkeypatch, tmp_path, {"slow": 20.0})
    assert "pass seconds=" in refusal.value.fix


def measured(name: str) -> MeasuredModel:
    return MeasuredModel(name, None, None, is_baseline=name == "baseline")


def node(name: str, capacity: float, disturbed=()) -> LoadedNode:
    """Return a node whose share of late requests is 1 % at the capacity, and grows with its eighth power."""
    model, rng = measured(name), np.random.default_rng(1)
    node = LoadedNode(model, Setup(1, 2, 8), {"2 x 1 thread": 1.2 * capacity})
    rates = node.guess * LADDER
    for number in range(16):
        late = rng.binomial(1000, np.minimum(0.01 * (rates / capacity) ** 8, 1)).astype(float)
        node.rounds.append(Ladder(late, np.full(len(rates), 1000.0), rates, None))
        node.loads.append(RoundLoad(waited=0.5 if number in disturbed else 0.0))
    return node


@pytest.mark.usefixtures("_real_limit")
def test_many_disturbed_rounds_compare_nothing_and_few_are_left_out():
    settings = Settings(max_p99_ms=20.0, price=0.36)
    results = {
        count: summarize([node("baseline", 100), node("twice", 200, range(count))], settings)["twice"]
        for count in (0, 2, 8)
    }
    assert [load.stable for load in results.values()] == [True, True, False]
    assert [load.over_baseline.verdict for load in results.values()] == ["faster", "faster", "unstable"]
    assert all(load.capacity.low < 200 < load.capacity.high for load in results.values())
    assert all(load.over_baseline.low < 2 < load.over_baseline.high for load in results.values())
    assert results[0].capacity.high < 1.1 * results[0].capacity.low
    base = ModelMeasurements("twice", "", "tflite", None, None, None)
    row = parsed_reports(DIGITS[:2], ["a", "b"])[1].models[1]
    twice = replace(base, benchmark=replace(row, load=results[8]), baseline=base)
    assert "in 8 of 16 rounds" in twice.disturbance("cost") and not twice.disturbance("latency")


def node_load(capacity: float, ratio: float | None, best: float | None, **others) -> NodeLoad:
    """Return a load with intervals of 4 %."""

    def interval(value):
        return Measured(value, 0.98 * value, 1.02 * value)

    def estimate(value):
        verdict = "faster" if value > 1.03 else "slower" if value < 0.97 else "within noise"
        return SpeedupEstimate(value, 0.98 * value, 1.02 * value, verdict)

    facts = {"threads": 1, "instances": 2, "batch_size": 8, "tried": {}, "rounds": 16, "disturbed_rounds": 0}
    load = NodeLoad(
        **facts, stable=True, requests=9000, capacity=interval(capacity), delay_p99_ms=0.2,
        cost=interval(100 / capacity), nodes=Measured(*[float(-(-300 // capacity))] * 3), p99_at_rate=interval(9.0),
        over_baseline=estimate(ratio) if ratio else None, over_best=estimate(best) if best else None,
    )  # fmt: skip
    return replace(load, **others)


FIVE = DIGITS[:5]  # trained, folded, tflite float32, tflite dynamic, tflite int8
CAPACITIES = [120.0, 130.0, 310.0, 280.0, 900.0]  # int8 is the fastest, and loses accuracy


def decide_on_load(tmp_path, rows: list[Row] = FIVE, load: LoadSettings | None = None, **criteria):
    models = [Model(path) for path in make_models(rows, tmp_path / "models")]
    quality, speed = parsed_reports(rows, [model.digest for model in models])
    best = max(CAPACITIES)
    loaded = [
        replace(
            row,
            load=node_load(capacity, capacity / 120 if index else None, capacity / best if capacity < best else None),
        )
        for index, (row, capacity) in enumerate(zip(speed.models, CAPACITIES, strict=True))
    ]
    speed = replace(speed, models=loaded if load else speed.models, load=load)
    defaults = {"goals": ("accuracy max_degradation 0.005",), "objective": "cost"}
    return decide(models, quality, speed, Criteria(**defaults | criteria), [])[1]


LOAD = LoadSettings(20.0, 300.0, "poisson", 2, 0.36)


def test_the_cheapest_model_within_the_goals_is_selected(tmp_path):
    report = decide_on_load(tmp_path, load=LOAD)
    assert report.selected == "tflite float32"  # int8 loses too much
    assert "cost of a million predictions 0.3226 against 0.8333" in report.reason
    chosen = report.chosen.metrics
    assert chosen["capacity"] == 310 and chosen["nodes"] == 1 and chosen["p99_at_rate"] == 9
    assert "cheaper" in "; ".join(report.models[3].reasons)


@pytest.mark.parametrize(
    ("goal", "passed"),
    [
        ("cost threshold 0.34", ["tflite float32", "tflite int8"]),
        ("capacity threshold 300", ["tflite float32", "tflite int8"]),
        ("capacity threshold 305", ["tflite int8"]),  # float32: 303.8 at the pessimistic bound
        ("nodes threshold 1", ["tflite float32", "tflite int8"]),
        ("cost min_improvement 80%", ["tflite int8"]),
        ("p99_at_rate threshold 9.1", []),
    ],
)
def test_goals_on_a_node_under_load_hold_at_the_pessimistic_bound(tmp_path, goal, passed):
    report = decide_on_load(tmp_path, load=LOAD, goals=(goal,), objective="capacity")
    assert [row.name for row in report.models if row.passed and not row.parent] == passed


@pytest.mark.parametrize(
    ("objective", "fix"), [("capacity", "pass max_p99_ms=20"), ("cost", "max_p99_ms=20 and price")]
)
def test_an_objective_that_was_not_measured_is_refused_with_its_parameters(tmp_path, objective, fix):
    with pytest.raises(ComponentError) as refusal:
        decide_on_load(tmp_path, objective=objective)
    assert fix in refusal.value.fix


def test_a_model_as_good_as_the_best_is_indistinguishable():
    (row,) = parsed_reports(DIGITS[:1], ["a"])[1].models
    base = ModelMeasurements("trained", "", "tflite", None, replace(row, load=node_load(100, None, 0.5)), None)
    best, equal, slower = (
        ModelMeasurements("", "", "tflite", None, replace(row, load=node_load(200, 2.0, ratio)), base)
        for ratio in (None, 0.99, 0.9)
    )
    assert is_indistinguishable(equal, best, "cost") and not is_indistinguishable(slower, best, "cost")


def test_parameters_of_a_load_without_its_limit_are_refused(models, tmp_path):
    settings = QUICK | {"batch_sizes": ["1", "2"], "node_cores": 1, "rate": 1000.0, "price": 0.36}
    with pytest.raises(ComponentError, match=r"rate=1000, price=0\.36, node_cores=1 without max_p99_ms"):
        benchmark(baseline=models["small"], candidates=[models["small"]], benchmark=tmp_path / "none", **settings)


@pytest.mark.nightly
def test_a_real_model_has_a_capacity(models, tmp_path):
    settings = QUICK | {"batch_sizes": ["1", "2"], "node_cores": 1, "rate": 1000.0, "price": 0.36, "max_p99_ms": 20.0}
    settings["seconds"] = 2.0
    report = benchmark(baseline=models["large"], candidates=[models["small"]], benchmark=tmp_path / "out", **settings)
    content = report["benchmark"].load()
    large, small = (model.load for model in content.models)
    assert set(large.tried) == {"1 x 1 thread", "1 x 1 thread, batches of up to 2"}
    assert large.rounds == small.rounds == 8 and large.requests > 8 * len(LADDER) * 100
    for load, model in ((large, content.models[0]), (small, content.models[1])):
        assert 0 < load.capacity.low <= load.capacity.value <= load.capacity.high
        assert load.capacity.value < 2 * model.throughput["2"]  # nothing answers more than it can without a pause
        assert load.cost.value == pytest.approx(100 / load.capacity.value)
    assert small.over_baseline.value > 1
    assert content.load == LoadSettings(20.0, 1000.0, "poisson", 1, 0.36)
