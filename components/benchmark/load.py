"""Capacity of a node for each model: open loops at several rates, in rounds in which the models take turns.

Closed loops hide the queue: a client that waits for its answer sends no request meanwhile. Here requests arrive at
random, and latency counts from the arrival. In each round every model runs in a new process, in random order, and gets
the same rates, a ladder around the result of a short search. The share of late requests of each rate is that of all
rounds together: late requests come in bursts, which most short loads lack, so that their own p99 is too low. The
capacity is where this share, made monotone, crosses 1 %. Its interval comes from rounds drawn with replacement, the
same ones for two models that are compared.

Reference: Efron and Tibshirani 1993, "An introduction to the bootstrap", chapters 6 and 12 (intervals of Student's t).
"""

import contextlib
import logging
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import stdtrit

from tfopt.components.benchmark.comparison import EQUIVALENCE
from tfopt.components.benchmark.interleaving import GROUP_BYTES, InputFile
from tfopt.components.benchmark.measured_model import MeasuredModel, RoundLoad
from tfopt.components.benchmark.model_process import RUNTIME_DIFFERENCE, Machine, ModelProcess, Runtimes
from tfopt.components.benchmark.parameters import Settings
from tfopt.errors import ComponentError
from tfopt.measurement.speedup import LEVEL, verdict
from tfopt.reports.benchmark_report import MOST_DISTURBED, UNSTABLE, Measured, NodeLoad, SpeedupEstimate
from tfopt.serving.load_generator import (
    FEWEST,
    LATE_SHARE,
    Times,
    arrival_times,
    cost_per_million,
    find_capacity,
    nodes_needed,
)

ROUNDS, REPLICATES = 16, 400
SEARCH_STEPS, SEARCH_RATIO = 6, 32.0  # of the first search of each setup, from its throughput downwards
LADDER = np.geomspace(0.35, 1.3, 8)  # rates of a round, relative to the capacity of the first search, which is too high
LEAST_LATE = 0.5  # late requests that are added to each rate, so that a share has a logarithm
OVERLOAD = 0.2  # share of late requests from which on a load ends
# A load takes so many times the limit: a queue that grows by a tenth of the time would else end before its p99 does.
WINDOW = 10.0
FILLING = 2.0  # multiple of the limit, from which on a queue that began empty is like any other
ATTEMPTS = 2  # of a round that other processes disturb
MOST_SECONDS = 10.0  # multiple of the seconds; the rounds of a model that takes longer are not run
FASTER = 1.5  # a setup may answer so many times as many requests as its instances in the closed loop

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setup:
    """A way to serve a model on a node."""

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


@dataclass(frozen=True)
class Ladder:
    """The results of a round: for each rate of the ladder, and the latencies at the rate of the settings in seconds."""

    late: Times  # number of requests above the limit
    sent: Times
    answered: Times  # requests per second that were answered
    at_rate: Times | None


@dataclass
class LoadedNode:
    """A model under load, and its results so far."""

    model: MeasuredModel
    setup: Setup | None = None  # the best one; None before the search
    tried: dict[str, float] = field(default_factory=dict)
    rounds: list[Ladder] = field(default_factory=list)
    loads: list[RoundLoad] = field(default_factory=list)
    once: Times | None = None  # latencies at a rate far above the capacity, which is measured once
    delays: list[float] = field(default_factory=list)
    requests: int = 0

    @property
    def guess(self) -> float:
        """Return the highest capacity that the first search found."""
        return max(self.tried.values(), default=0.0)

    @property
    def disturbed(self) -> list[bool]:
        """Return True for each round that other processes disturbed."""
        return [load.is_disturbed for load in self.loads]


@dataclass
class Load:
    """A process that gets requests."""

    node: LoadedNode
    process: ModelProcess
    batch_size: int
    waited: list[float] = field(default_factory=list)  # share of the time that others had its cores
    answered: dict[float, float] = field(default_factory=dict)  # requests per second, by the rate at which they arrived


class LoadMeasurement:
    """Measures the models that the closed loop has measured."""

    def __init__(self, settings: Settings, input_file: InputFile, folder: Path, machine: Machine | None = None) -> None:
        """Use all cores of a node."""
        assert settings.max_p99_ms
        self._machine = machine or Machine()
        self._limit, self._cores = settings.max_p99_ms, count_node_cores(settings, self._machine)
        self._settings, self._input_file, self._folder = settings, input_file, folder
        self._rounds = min(settings.rounds, ROUNDS)
        self._step_seconds = max(settings.seconds / self._rounds / len(LADDER), WINDOW * self._limit / 1e3)
        self._stack, self._runtimes = contextlib.ExitStack(), dict[tuple[int, int], Runtimes]()

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
            searched = [node for node in nodes if node.setup and not node.model.error]
            generator = random.Random(self._settings.seed)
            for attempt in range(ATTEMPTS):
                for number in range(self._rounds if any(node.guess for node in searched) else 0):
                    log.info("load: round %d of %d%s", number + 1, self._rounds, ", again" if attempt else "")
                    for node in generator.sample(searched, len(searched)):
                        if node.guess and not node.model.error and (not attempt or node.loads[number].is_disturbed):
                            with node.model.recording_failure():
                                self._run_round(node, number)
        return summarize([node for node in searched if not node.model.error], self._settings)

    @contextlib.contextmanager
    def _started(self, model: MeasuredModel, threads: int, instances: int) -> Iterator[ModelProcess]:
        """Load the instances of a model in a new process."""
        key = threads, instances
        if key not in self._runtimes:
            folder = self._folder / f"load {threads} {instances}"
            folder.mkdir()
            processes = self._machine.runtimes(self._machine.choose_cores(threads * instances), folder, instances)
            self._runtimes[key] = self._stack.enter_context(processes)
        with self._runtimes[key].process(model.model, self._folder / "load.log") as process:
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
        if not self._is_affordable(node.model, self._rounds * len(LADDER) * max(self._step_seconds, FEWEST / fastest)):
            return
        log.info("load: searching the best instances of %s", node.model.name)
        for threads, instances in dict.fromkeys((setup.threads, setup.instances) for setup in setups):
            with self._started(node.model, threads, instances) as process:
                for setup in [setup for setup in setups if (setup.threads, setup.instances) == (threads, instances)]:
                    most = self._most(node.model, setup)
                    step = Load(node, process, setup.batch_size)
                    highest = self._find_capacity(step, most / SEARCH_RATIO, most)
                    if not node.setup or highest > node.guess:
                        node.setup = setup
                    node.tried[str(setup)] = highest
        rate, best = self._settings.rate, node.setup
        if rate and best and rate > LADDER[-1] * node.guess:  # a single load shows that one node is too few
            with self._started(node.model, best.threads, best.instances) as process:
                node.once = self._send(Load(node, process, best.batch_size), rate, FEWEST)

    def _is_affordable(self, model: MeasuredModel, seconds: float) -> bool:
        """Return False for a model that would take too long, with a note; raise ComponentError if it is the baseline.

        A number of seconds is enough that is a tenth of what its rounds take.
        """
        if seconds <= MOST_SECONDS * self._settings.seconds:
            return True
        what, enough = (
            f"{FEWEST} requests at each rate take {seconds:.0f} s",
            f"seconds={math.ceil(seconds / MOST_SECONDS)}",
        )
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

    def _run_round(self, node: LoadedNode, number: int) -> None:
        setup, rate = node.setup, self._settings.rate
        assert setup
        others = self._machine.other_cores(self._machine.choose_cores(setup.threads * setup.instances))
        with self._started(node.model, setup.threads, setup.instances) as process:
            before, load = others.seconds(), Load(node, process, setup.batch_size)
            steps = [self._send(load, step, limit=self._limit, most_late=OVERLOAD) for step in node.guess * LADDER]
            answered = list(load.answered.values())
            at_rate = self._send(load, rate) if rate and node.once is None else None
            round_load = RoundLoad(max(0.0, float(np.mean(load.waited))), 0.0, others.used_share(before))
        if number < len(node.loads) and round_load.is_disturbed:
            return
        finite = [step[np.isfinite(step)] for step in steps]
        late = np.array([float((step > self._limit / 1e3).sum()) for step in finite])
        ladder = Ladder(late, np.array([float(len(step)) for step in finite]), np.array(answered), at_rate)
        node.rounds[number : number + 1] = [ladder]
        node.loads[number : number + 1] = [round_load]

    def _find_capacity(self, load: Load, low: float, high: float) -> float:
        """Return the requests per second that were answered at the highest rate within the limit; 0 if none is."""
        highest = find_capacity(partial(self._is_met, load), low, high, SEARCH_STEPS)
        return load.answered[highest] if highest else 0.0

    def _is_met(self, load: Load, rate: float) -> bool:
        latencies = self._send(load, rate, limit=self._limit)
        return float(np.mean(latencies > self._limit / 1e3)) <= LATE_SHARE

    def _send(
        self, load: Load, rate: float, count: int = 0, limit: float = math.inf, most_late: float = LATE_SHARE
    ) -> Times:
        """Return the latencies of requests at a rate in seconds; those that were not sent are infinite.

        The first ones, while the queue fills, are left out.
        """
        node, first = load.node, round(rate * FILLING * self._limit / 1e3)
        count = first + (count or max(FEWEST, round(rate * self._step_seconds)))
        node.requests += count
        times = arrival_times(self._settings.arrivals, rate, count, seed=self._settings.seed + node.requests)
        latencies, delays, waited = load.process.call("open_loop", times, load.batch_size, limit / 1e3, most_late)
        if len(delays):
            node.delays.append(1e3 * float(np.percentile(delays, 99)))
        load.waited.append(waited)
        sent = np.isfinite(latencies)
        load.answered[rate] = float(sent.sum() / (np.max((times + latencies)[sent]) - times[0]))
        result: Times = latencies[first:]
        return result


def count_node_cores(settings: Settings, machine: Machine) -> int:
    """Return the number of cores of a node; raise ComponentError if this process may not use as many."""
    available = len(machine.choose_cores(sys.maxsize))
    if settings.node_cores and settings.node_cores > available:
        received = f"benchmark: node_cores={settings.node_cores}"
        expected = f"at most {available}, the cores this process may use"
        raise ComponentError(received, expected, f"pass node_cores={available}, or measure on a larger machine")
    return settings.node_cores or available


def summarize(nodes: Sequence[LoadedNode], settings: Settings) -> dict[str, NodeLoad]:
    """Return the results by the name of the model: intervals, comparisons, nodes and costs."""
    estimates = {node.model.name: CapacityEstimate.of(node, settings.seed) for node in nodes if node.rounds}
    baseline = next((estimates.get(node.model.name) for node in nodes if node.model.is_baseline), None)
    best = max(estimates.values(), key=lambda estimate: estimate.log, default=None)
    results = {}
    for node in nodes:
        assert node.setup
        own = estimates.get(node.model.name)
        capacity = own.interval(own.log, own.logs) if own else Measured(0.0, 0.0, 0.0)
        results[node.model.name] = NodeLoad(
            threads=node.setup.threads,
            instances=node.setup.instances,
            batch_size=node.setup.batch_size,
            tried=node.tried,
            rounds=len(node.rounds),
            disturbed_rounds=sum(load.is_disturbed for load in node.loads),
            stable=not own or own.is_stable,
            requests=node.requests,
            capacity=capacity,
            delay_p99_ms=float(np.median(node.delays)) if node.delays else None,
            p99_at_rate=_p99_at_rate(node, own),
            nodes=_inverse(capacity, lambda rate: float(nodes_needed(settings.rate, rate)), settings.rate),
            cost=_inverse(capacity, lambda rate: cost_per_million(settings.price, rate), settings.price),
            over_baseline=_compare(own, baseline, settings.min_effect),
            over_best=_compare(own, best, max(EQUIVALENCE, settings.min_effect)),
        )
    return results


@dataclass(frozen=True)
class CapacityEstimate:
    """The capacity of a model, from its rounds, and from the same number of rounds drawn with replacement."""

    log: float
    logs: Times  # of each draw
    draws: NDArray[np.int64]  # numbers of rounds; the same for every model with as many rounds
    is_stable: bool

    @classmethod
    def of(cls, node: LoadedNode, seed: int) -> "CapacityEstimate":
        """Estimate it from the rounds that were not disturbed, or from all if they were too many."""
        disturbed = np.array([load.is_disturbed for load in node.loads])
        is_stable = bool(disturbed.sum() <= MOST_DISTURBED * len(disturbed))
        weights = (~disturbed if is_stable else np.ones(len(disturbed))).astype(np.float64)
        draws = np.random.default_rng(seed).integers(len(disturbed), size=(REPLICATES, len(disturbed)))
        counts = np.array([np.bincount(draw, minlength=len(disturbed)) for draw in draws]) * weights
        log, *logs = (_crossing(node, row) for row in (weights, *counts) if row.any())
        return cls(log, np.array(logs), draws, is_stable)

    def interval(self, value: float, draws: Times) -> Measured:
        """Return a value with its interval, from logarithms."""
        half = float(stdtrit(self.draws.shape[1] - 1, (1 + LEVEL) / 2)) * float(np.std(draws))
        return Measured(*(math.exp(end) for end in (value, value - half, value + half)))


def _crossing(node: LoadedNode, weights: Times) -> float:
    """Return the logarithm of the rate at which 1 % of the requests are late, from rounds with these weights.

    It is at most what the node answered: in a short load above this rate the queue may not reach the limit.
    """
    late, sent, answered = (
        weights @ np.array([getattr(ladder, name) for ladder in node.rounds]) for name in ("late", "sent", "answered")
    )
    rates = np.log(node.guess * LADDER)
    sent = np.maximum(sent, LEAST_LATE)  # also a rate at which all loads ended at once
    shares = isotonic_regression((late + LEAST_LATE) / sent, weights=sent).x
    most = math.log(float((answered / weights.sum()).max()))
    above = int(np.searchsorted(shares, LATE_SHARE, side="right"))
    if above in (0, len(rates)):
        return min(float(rates[min(above, len(rates) - 1)]), most)
    ends = np.log(shares[above - 1 : above + 1])
    part = (math.log(LATE_SHARE) - ends[0]) / (ends[1] - ends[0])
    return min(float(rates[above - 1] + part * (rates[above] - rates[above - 1])), most)


def _p99_at_rate(node: LoadedNode, estimate: CapacityEstimate | None) -> Measured | None:
    """Return the p99 in milliseconds of the requests of all rounds; that of the only load without an interval."""
    loads = [ladder.at_rate for ladder in node.rounds if ladder.at_rate is not None]
    if not (estimate and loads):
        value = 1e3 * float(np.percentile(node.once, 99)) if node.once is not None else None
        return None if value is None else Measured(value, value, value)
    latencies = np.array(loads)
    logs = np.log([1e3 * np.percentile(latencies[draw], 99) for draw in estimate.draws])
    return estimate.interval(math.log(1e3 * np.percentile(latencies, 99)), logs)


def _inverse(capacity: Measured, function: Callable[[float], float], setting: float) -> Measured | None:
    """Return what falls with the capacity; None without the setting that it depends on, or without a capacity."""
    if not setting or not capacity.low:
        return None
    return Measured(*(function(rate) for rate in (capacity.value, capacity.high, capacity.low)))


def _compare(own: CapacityEstimate | None, other: CapacityEstimate | None, min_effect: float) -> SpeedupEstimate | None:
    """Return the capacity divided by another one's; None if it is the same model, or one of them has none."""
    if own is None or other is None or own is other:
        return None
    ratio = own.interval(own.log - other.log, own.logs - other.logs)
    low, high = ratio.low / (1 + RUNTIME_DIFFERENCE), ratio.high * (1 + RUNTIME_DIFFERENCE)
    result = verdict(low, high, min_effect) if own.is_stable and other.is_stable else UNSTABLE
    return SpeedupEstimate(ratio.value, low, high, result)
