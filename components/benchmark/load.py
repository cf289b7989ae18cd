"""Capacity of a node for each model: open loops at several rates, in rounds in which the models take turns.

Closed loops hide the queue: a client that waits for its answer sends no request meanwhile. Here requests arrive at
random, and latency counts from the arrival. In each round every model runs in a new process, in random order, and the
highest rate is searched at which its p99 stays within the limit. The bracket is shifted at random, so that the steps of
the search average out. The rounds of two models are compared as in the closed loop (`tfopt.measurement.speedup`).
"""

import contextlib
import logging
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from tfopt.components.benchmark.comparison import EQUIVALENCE
from tfopt.components.benchmark.interleaving import GROUP_BYTES, InputFile
from tfopt.components.benchmark.machine_conditions import OtherCores, choose_cores
from tfopt.components.benchmark.measured_model import MeasuredModel, RoundLoad
from tfopt.components.benchmark.model_process import RUNTIME_DIFFERENCE, ModelProcess, RuntimeProcesses
from tfopt.components.benchmark.parameters import Settings
from tfopt.errors import ComponentError
from tfopt.measurement.speedup import FEWEST_ROUNDS, LEVEL, hodges_lehmann, pessimistic_interval, speedup
from tfopt.reports.benchmark_report import Measured, NodeLoad, SpeedupEstimate
from tfopt.serving.load_generator import FEWEST, arrival_times, cost_per_million, find_capacity, nodes_needed

ROUNDS, STEPS = 16, 5  # with 16 rounds, one disturbed round leaves an interval of 99 %
SEARCH_STEPS, SEARCH_RATIO = 6, 32.0  # of the first search of each setup, from its throughput downwards
BELOW, ABOVE = 1 / 4, 2.0  # bracket of a round, relative to the first search
ATTEMPTS = 2  # of a round that other processes disturb
MOST_SECONDS = 10.0  # multiple of the seconds; the rounds of a model that takes longer are not run
FASTER = 1.5  # a setup may answer so many times as many requests as its instances in the closed loop

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setup:
    """How a node serves a model."""

    threads: int  # of each instance
    instances: int
    batch_size: int  # the largest number of waiting requests that one call answers

    def __str__(self) -> str:
        """Describe it.

        >>> str(Setup(2, 1, 32)), str(Setup(1, 2, 1))
        ('1 x 2 threads, batches of up to 32', '2 x 1 thread')
        """
        batches = f", batches of up to {self.batch_size}" if self.batch_size > 1 else ""
        return f"{self.instances} x {self.threads} thread{'s' if self.threads > 1 else ''}{batches}"


@dataclass
class LoadedNode:
    """A model under load, and its results so far."""

    model: MeasuredModel
    setup: Setup | None = None  # the best one; None before the search
    tried: dict[str, float] = field(default_factory=dict)
    capacities: list[float] = field(default_factory=list)  # of each round
    p99s: list[float] = field(default_factory=list)  # at the rate, of each round, or a single one
    loads: list[RoundLoad] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    requests: int = 0

    @property
    def guess(self) -> float:
        """Return the capacity that the first search found."""
        return max(self.tried.values(), default=0.0)

    @property
    def disturbed(self) -> list[bool]:
        """Return True for each round that other processes disturbed."""
        return [load.is_disturbed for load in self.loads]


class LoadMeasurement:
    """Measures the models that the closed loop has measured."""

    def __init__(self, settings: Settings, input_file: InputFile, folder: Path) -> None:
        """Use all cores of a node."""
        assert settings.max_p99_ms
        self._limit, self._cores = settings.max_p99_ms, count_node_cores(settings)
        self._settings, self._input_file, self._folder = settings, input_file, folder
        self._rounds = min(settings.rounds, ROUNDS)
        self._step_seconds = settings.seconds / self._rounds / STEPS
        self._stack, self._runtimes = contextlib.ExitStack(), dict[tuple[int, int], RuntimeProcesses]()

    def measure(self, models: Sequence[MeasuredModel]) -> dict[str, NodeLoad]:
        """Return the measurements by the name of the model.

        Raises:
            ComponentError: If the baseline fails, or is too slow to be measured.
        """
        nodes = [LoadedNode(model) for model in models if not model.error]
        with self._stack:
            for node in nodes:
                with node.model.recording_failure():
                    self._search_setup(node)
            found = [node for node in nodes if node.setup and not node.model.error]
            generator = random.Random(self._settings.seed)
            for attempt in range(ATTEMPTS):
                for number in range(self._rounds if any(node.guess for node in found) else 0):
                    log.info("load: round %d of %d%s", number + 1, self._rounds, ", again" if attempt else "")
                    for node in generator.sample(found, len(found)):
                        if node.guess and not node.model.error and (not attempt or node.loads[number].is_disturbed):
                            with node.model.recording_failure():
                                self._run_round(node, number, generator.random())
        return summarize([node for node in found if not node.model.error], self._settings)

    @contextlib.contextmanager
    def _started(self, model: MeasuredModel, threads: int, instances: int) -> Iterator[ModelProcess]:
        """Load the instances of a model in a new process."""
        key = threads, instances
        if key not in self._runtimes:
            folder = self._folder / f"load {threads} {instances}"
            folder.mkdir()
            processes = RuntimeProcesses(choose_cores(threads * instances), folder, instances)
            self._runtimes[key] = self._stack.enter_context(processes)
        with ModelProcess(model.model, self._runtimes[key], self._folder / "load.log") as process:
            process.renew()
            facts = process.call("load", model.model.uri, model.model.signature, threads)
            process.call("feed", str(self._input_file(facts.pop("inputs"))))
            process.call(
                "start_instances", model.model.uri, model.model.signature, threads, instances, [*model.is_warm]
            )
            yield process

    def _search_setup(self, node: LoadedNode) -> None:
        """Find the threads, instances and batch size with the largest capacity."""
        setups = self._setups(node.model)
        fastest = max(self._most(node.model, setup) for setup in setups) / FASTER
        if not self._is_affordable(node.model, self._rounds * STEPS * FEWEST / fastest):
            return
        log.info("load: searching the best instances of %s", node.model.name)
        for threads, instances in dict.fromkeys((setup.threads, setup.instances) for setup in setups):
            with self._started(node.model, threads, instances) as process:
                for setup in [setup for setup in setups if (setup.threads, setup.instances) == (threads, instances)]:
                    most = self._most(node.model, setup)
                    is_met = partial(self._is_met, node, process, setup.batch_size, [])
                    found = find_capacity(is_met, most / SEARCH_RATIO, most, SEARCH_STEPS)
                    if not node.setup or found > node.guess:
                        node.setup = setup
                    node.tried[str(setup)] = found
        rate, best = self._settings.rate, node.setup
        if rate and best and rate > ABOVE * node.guess:  # a single measurement shows that one node is too few
            with self._started(node.model, best.threads, best.instances) as process:
                node.p99s = [self._p99(node, process, best.batch_size, [], rate, count=FEWEST)]

    def _is_affordable(self, model: MeasuredModel, seconds: float) -> bool:
        """Return False for a model that would take too long, with a note; raise ComponentError if it is the baseline.

        A number of seconds is enough that is a tenth of what its rounds take.
        """
        if seconds <= MOST_SECONDS * self._settings.seconds:
            return True
        what, enough = f"{FEWEST} requests at each rate take {seconds:.0f} s", f"seconds={seconds / MOST_SECONDS:.0f}"
        if model.is_baseline:
            expected = f"at most {MOST_SECONDS:g} times seconds={self._settings.seconds:g} for the rounds of a model"
            received = f"the capacity of the baseline {model.name}: {what}"
            raise ComponentError(received, expected, f"pass {enough}, or no max_p99_ms")
        model.notes.append(f"the capacity is not measured: {what}; pass {enough}")
        return False

    def _setups(self, model: MeasuredModel) -> list[Setup]:
        counts = sorted({1 << power for power in range(self._cores.bit_length())} | {self._cores})
        pairs = [(threads, self._cores // threads) for threads in counts]
        fitting = [pair for pair in pairs if pair[1] == 1 or pair[1] * model.loaded_bytes <= GROUP_BYTES]
        return [Setup(threads, instances, size) for threads, instances in fitting for size in sorted(model.is_warm)]

    def _most(self, model: MeasuredModel, setup: Setup) -> float:
        """Return requests per second that a setup cannot reach, from the calls in the closed loop."""
        rates = [size / seconds for size, seconds in model.call_seconds.items() if size <= setup.batch_size]
        return FASTER * setup.instances * max(1.0, setup.threads / self._settings.threads) * max(rates)

    def _run_round(self, node: LoadedNode, number: int, shift: float) -> None:
        setup, rate, waits = node.setup, self._settings.rate, list[float]()
        assert setup
        low, high = node.guess * BELOW, node.guess * ABOVE
        factor = (high / low) ** (shift / (1 << STEPS))
        others = OtherCores(choose_cores(setup.threads * setup.instances))
        with self._started(node.model, setup.threads, setup.instances) as process:
            before = others.seconds()
            is_met = partial(self._is_met, node, process, setup.batch_size, waits)
            capacity = find_capacity(is_met, low / factor, high / factor, STEPS)
            at_rate = self._p99(node, process, setup.batch_size, waits, rate) if rate and rate <= high else None
            load = RoundLoad(max(0.0, float(np.mean(waits))), 0.0, others.used_share(before))
        if number < len(node.loads) and load.is_disturbed:
            return
        node.capacities[number : number + 1] = [capacity or low]  # a round in which no rate met the limit
        node.loads[number : number + 1] = [load]
        if at_rate is not None:
            node.p99s[number : number + 1] = [at_rate]

    def _is_met(
        self, node: LoadedNode, process: ModelProcess, batch_size: int, waits: list[float], rate: float
    ) -> bool:
        return self._p99(node, process, batch_size, waits, rate) <= self._limit

    def _p99(
        self, node: LoadedNode, process: ModelProcess, batch_size: int, waits: list[float], rate: float, count: int = 0
    ) -> float:
        """Return the p99 in milliseconds of requests at a rate; append the share of time that others had its cores."""
        count = count or max(FEWEST, round(rate * self._step_seconds))
        node.requests += count
        times = arrival_times(self._settings.arrivals, rate, count, seed=self._settings.seed + node.requests)
        latencies, delays, waited = process.call("open_loop", times, batch_size)
        if len(delays):
            node.delays.append(1e3 * float(np.percentile(delays, 99)))
        waits.append(waited)
        return 1e3 * float(np.percentile(latencies, 99))


def count_node_cores(settings: Settings) -> int:
    """Return the number of cores of a node; raise ComponentError if this process may not use as many."""
    available = len(os.sched_getaffinity(0))
    if settings.node_cores and settings.node_cores > available:
        received = f"benchmark: node_cores={settings.node_cores}"
        expected = f"at most {available}, the cores this process may use"
        raise ComponentError(received, expected, f"pass node_cores={available}, or measure on a larger machine")
    return settings.node_cores or available


def summarize(nodes: Sequence[LoadedNode], settings: Settings) -> dict[str, NodeLoad]:
    """Return the results by the name of the model: intervals, comparisons, nodes and costs."""
    measured = [node for node in nodes if node.capacities]
    baseline = next((node for node in measured if node.model.is_baseline), None)
    best = max(measured, key=lambda node: float(np.median(node.capacities)), default=None)
    results = {}
    for node in nodes:
        assert node.setup
        capacity, is_stable = _measured(node.capacities or [0.0], node.disturbed)
        results[node.model.name] = NodeLoad(
            threads=node.setup.threads,
            instances=node.setup.instances,
            batch_size=node.setup.batch_size,
            tried=node.tried,
            rounds=len(node.capacities),
            disturbed_rounds=sum(node.disturbed),
            stable=is_stable,
            requests=node.requests,
            capacity=capacity,
            delay_p99_ms=float(np.median(node.delays)) if node.delays else None,
            p99_at_rate=_measured(node.p99s, node.disturbed)[0] if node.p99s else None,
            nodes=_inverse(capacity, lambda rate: float(nodes_needed(settings.rate or 0.0, rate)), settings.rate),
            cost=_inverse(capacity, lambda rate: cost_per_million(settings.price or 0.0, rate), settings.price),
            over_baseline=_compare(node, baseline, settings.min_effect),
            over_best=_compare(node, best, max(EQUIVALENCE, settings.min_effect)),
        )
    return results


def _measured(values: Sequence[float], disturbed: Sequence[bool]) -> tuple[Measured, bool]:
    """Return an estimate from the rounds, and False if other processes disturbed too many of them."""
    if len(values) < FEWEST_ROUNDS:
        value = float(np.median(values))
        return Measured(value, value, value), True
    logs = np.log(values)
    interval = pessimistic_interval(logs, np.array(disturbed), 1 - LEVEL)
    is_stable = bool(np.isfinite(interval).all())
    value, low, high = np.exp(interval if is_stable else hodges_lehmann(logs)).tolist()
    return Measured(value, low, high), is_stable


def _inverse(capacity: Measured, function: Callable[[float], float], setting: float | None) -> Measured | None:
    """Return what falls with the capacity; None without the setting that it depends on, or without a capacity."""
    if setting is None or not capacity.low:
        return None
    return Measured(*(function(rate) for rate in (capacity.value, capacity.high, capacity.low)))


def _compare(node: LoadedNode, other: LoadedNode | None, min_effect: float) -> SpeedupEstimate | None:
    """Return the capacity divided by another one's; None if it is the same model, or one of them has none."""
    if other is None or node is other or not node.capacities:
        return None
    times = [1 / np.array(each.capacities) for each in (other, node)]
    disturbed = np.array(other.disturbed) | np.array(node.disturbed)
    return speedup(*times, min_effect=min_effect, systematic_error=RUNTIME_DIFFERENCE, disturbed=disturbed)
