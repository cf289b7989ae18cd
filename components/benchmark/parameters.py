"""Parameters of `benchmark`, and the durations that follow from them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tfopt.component import Between, Names, Reads, SameAs
from tfopt.errors import ComponentError
from tfopt.measurement.goals import Objective
from tfopt.measurement.metric_names import check_load
from tfopt.processes.ssh_worker import SshAddress
from tfopt.serving.load_generator import Arrivals

TURNS = 2  # in a round; the second runs in the reverse order of the first, so that drift cancels
# Objectives for which the closed loop compares as for latency.
NOT_CLOSED_LOOP = ("size", "size_gzipped", "memory", "quality", "capacity", "cost")
SHORTEST_TURN_SECONDS = 0.02  # in a shorter turn, the first calls after another model's turn would dominate


def parse_batch_sizes(texts: Sequence[str]) -> list[int]:
    """Parse batch sizes and return them sorted, without duplicates; ``1-64`` is doubled from 1 up to 64.

    >>> parse_batch_sizes(["32", "1"]), parse_batch_sizes(["1-8", "12"]), parse_batch_sizes(["3-20"])
    ([1, 32], [1, 2, 4, 8, 12], [3, 6, 12])

    Raises:
        ComponentError: If there is none, one is not a whole number from 1, or a range runs backwards.
    """
    if not texts or not all(map(_sizes, texts)):
        expected = "whole numbers from 1, at least one, or a range such as 1-64"
        raise ComponentError(f"batch_sizes={list(texts)}", expected, 'pass batch_sizes=["1", "32"]')
    return sorted({size for text in texts for size in _sizes(text)})


def _sizes(text: str) -> list[int]:
    """Return the batch sizes of one text; empty if it does not have the syntax."""
    match = re.fullmatch(r"([1-9]\d*)(?:-(\d+))?", text, re.ASCII)
    if not match:
        return []
    first = int(match[1])
    doublings = (int(match[2] or first) // first).bit_length()
    return [first << power for power in range(doublings)]


def parse_device(text: str) -> SshAddress | None:
    """Parse the address of a device; None for this machine.

    Raises:
        ComponentError: If it is not one of ssh.
    """
    return SshAddress.parse(text) if text else None


@dataclass(frozen=True)
class Settings:
    """Parameters of a measurement.

    Attributes:
        batch_sizes: Examples in a call; ``1-64`` is 1, 2, 4 and so on up to 64. A model with a fixed batch size is
            measured only at that size, if it is in the list. ``saturation`` reports the batch size from which larger
            ones give no more throughput.
        threads: Threads, and cores, of each model.
        seconds: Longest measuring time of each model, over all batch sizes. Loading and warm-up come on top.
        rounds: Number of processes that each model is measured in, at most: as many as twice the seconds allow. More
            narrow the interval; 8 is the fewest that allow an interval of 99 %. A model stops after 10, 16, 26 or 40
            of them if its comparisons with the baseline and, for the objective, with the fastest model are decided.
        min_effect: Relative difference in speed that counts as noise. If format or settings differ from the
            baseline's, the interval is also widened by 2 %, the difference that two processes of a runtime may show.
        objective: The metric that the selected model shall be best at. Models are compared with the fastest one,
            which may take more rounds, at the largest batch size for throughput, and else at the smallest one. All are
            compared with the baseline at every batch size. For cold_start, every model takes all rounds. Each round
            begins with a new process: the time of loading it (its files are in memory) and of its first call counts.
        max_p99_ms: Also measure the capacity of a node: the most requests per second, of one example each, at which
            99 % of them are answered within so many milliseconds of their arrival (an open loop). Numbers of threads
            and instances that use all cores, and batches of waiting requests up to each of ``batch_sizes``, are tried
            for each model, and the best is measured. This takes up to ten times ``seconds`` for each model. When 0: not
            measured.
        rate: Requests per second. The report says how many nodes they need, and the p99 if one node gets all of them.
            When 0: it is unknown.
        arrivals: Times of the requests: ``poisson`` for the random times of many independent users, ``constant`` for
            equal distances.
        node_cores: Cores of a node; by default all that this process may use.
        price: Price of a node for an hour, in any currency: reports the cost of a million predictions at the capacity.
            When 0: it is unknown.
        device: Another machine to measure on, ``ssh://[USER@]HOST[:PORT]``, such as a board of the kind that will serve
            the model, or ``ssh://[USER@]HOST[:PORT]/PATH/OF/PYTHON``. It needs Linux, Python 3.11 to 3.13, NumPy and
            the runtime of each model (``pip install numpy ai-edge-litert``), and a login by key. Models and inputs are
            copied there once. By default models are measured on this machine.
        split: Split of the examples.
        seed: Seed of the order of the turns and of random inputs.
    """

    batch_sizes: Annotated[tuple[str, ...], Reads(parse_batch_sizes, ("1", "32")), Names()] = ("1", "32")
    threads: Annotated[int, Between(1)] = 1
    seconds: Annotated[float, Between(0.1)] = 6.0
    rounds: Annotated[int, Between(8, 1000)] = 60
    min_effect: Annotated[float, Between(0, 1)] = 0.005
    # A run with another objective than throughput reuses the measurements for latency.
    objective: Annotated[Objective, SameAs("latency", NOT_CLOSED_LOOP)] = "latency"
    max_p99_ms: Annotated[float, Between(0)] = 0.0
    rate: Annotated[float, Between(0)] = 0.0
    arrivals: Arrivals = "poisson"
    node_cores: Annotated[int, Between(1)] | None = None
    price: Annotated[float, Between(0)] = 0.0
    device: Annotated[str, Reads(parse_device, "ssh://pi@board.local")] = ""
    split: str = "eval"
    seed: int = 0

    def check(self) -> None:
        """Raise ComponentError for parameters of the load without its limit."""
        check_load(self.max_p99_ms, rate=self.rate, price=self.price, node_cores=self.node_cores)

    @property
    def sizes(self) -> list[int]:
        """The batch sizes as numbers, ascending."""
        return parse_batch_sizes(self.batch_sizes)

    @property
    def objective_size(self) -> int:
        """The batch size at which models are compared with the fastest one."""
        return self.sizes[-1 if self.objective == "throughput" else 0]

    @property
    def seconds_per_size(self) -> float:
        """Measuring time of one model at one batch size, in seconds."""
        return self.seconds / len(self.sizes)

    @property
    def turn_seconds(self) -> float:
        """Length of one turn, in seconds."""
        return max(SHORTEST_TURN_SECONDS, self.seconds_per_size / self.rounds / TURNS)
