"""Latency of two models under the same load, window by window in turns, with intervals of percentiles.

Both models get the requests of a window of time, one model after the other, in the order that changes from window to
window. Windows are drawn again with random weights (Bayesian bootstrap): requests within one depend on each other,
because they wait in one queue.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tfopt.measurement.confidence_bounds import LEVEL, SMALLEST_SAMPLE, replicate_interval
from tfopt.reports.evaluation_report import Difference, Estimate
from tfopt.reports.replay_report import LatencyWindow, ReplayedLatency
from tfopt.serving.load_generator import OpenLoop, Times

WINDOWS = 20
REPLICATES = 400
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0}

Load = Callable[[NDArray[np.int64], Times], OpenLoop]  # sends the requests of these numbers at these times


@dataclass(frozen=True)
class WindowLatencies:
    """The latencies of both models in a window, in milliseconds."""

    start: float
    served: Times
    model: Times

    def summary(self) -> LatencyWindow:
        """Return the 99th percentiles."""
        served, model = (float(np.percentile(values, 99)) for values in (self.served, self.model))
        return LatencyWindow(self.start, len(self.served), served, model)


@dataclass(frozen=True)
class LatencyComparison:
    """The latencies of both models."""

    windows: Sequence[WindowLatencies]
    delays: Times  # by which the generator sent requests late, in milliseconds
    rate: float  # requests per second that were sent to each of them

    @property
    def calls(self) -> int:
        """Return the number of requests to each model."""
        return sum(len(window.served) for window in self.windows)

    @property
    def delay_p99_ms(self) -> float | None:
        """Return the 99th percentile of the delays; None if no client was free at any arrival."""
        return float(np.percentile(self.delays, 99)) if len(self.delays) else None

    def percentiles(self) -> dict[str, ReplayedLatency]:
        """Return percentiles over all windows, with their differences and intervals."""
        both = [[window.served for window in self.windows], [window.model for window in self.windows]]
        draw = np.random.default_rng(0)
        weights = np.vstack([np.ones(len(self.windows)), draw.exponential(size=(REPLICATES, len(self.windows)))])
        served, model = (_weighted_percentiles(values, weights) for values in both)
        return {
            name: ReplayedLatency(
                self._estimate(served[:, column]),
                self._estimate(model[:, column]),
                Difference(**vars(self._estimate(model[:, column] - served[:, column]))),
            )
            for column, name in enumerate(PERCENTILES)
        }

    def _estimate(self, values: Times) -> Estimate:
        """Return the first value, with an interval from the others."""
        value, replicates = float(values[0]), values[1:]
        if len(self.windows) < SMALLEST_SAMPLE:
            reason = f"{len(self.windows)} windows with requests, and it is used from {SMALLEST_SAMPLE} on"
            return Estimate(value, value, value, no_bound=f"it is a bootstrap of {reason}")
        interval = replicate_interval(replicates, replicates, 1 - LEVEL)
        assert interval  # of finite values
        return Estimate(value, min(interval[0], value), max(interval[1], value))


def compare_latency(loads: Mapping[str, Load], arrivals: Times) -> LatencyComparison:
    """Send requests 0, 1, … at their arrival times to ``served`` and ``model``, in turns of a window."""
    edges = np.linspace(0, float(arrivals[-1]) + 1e-9, WINDOWS + 1)
    windows, delays = list[WindowLatencies](), [np.zeros(0)]
    for number, (start, end) in enumerate(pairwise(edges.tolist())):
        inside = np.flatnonzero((arrivals >= start) & (arrivals < end))
        if not len(inside):
            continue
        latencies = {}
        for name in sorted(loads, reverse=number % 2 == 1):
            result = loads[name](inside, arrivals[inside] - start)
            latencies[name] = result.latencies * 1e3
            delays.append(result.delays * 1e3)
        windows.append(WindowLatencies(float(start), **latencies))
    rate = len(arrivals) / max(float(arrivals[-1]), 1e-3)
    return LatencyComparison(windows, np.concatenate(delays), rate)


def _weighted_percentiles(windows: Sequence[Times], weights: Times) -> Times:
    """Return the percentiles of values whose windows have weights, ``[rows of weights, percentiles]``."""
    values, window = np.concatenate(windows), np.repeat(np.arange(len(windows)), [*map(len, windows)])
    order = np.argsort(values, kind="stable")
    values, window = values[order], window[order]
    shares = np.array([*PERCENTILES.values()]) / 100
    rows = []
    for row in weights:
        reached = np.cumsum(row[window])
        rows.append(values[np.minimum(np.searchsorted(reached, shares * reached[-1]), len(values) - 1)])
    return np.array(rows)
