"""Who runs when: every model is loaded and warmed up by itself, then all take turns, one short burst at a time."""

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfopt.components.benchmark.contender import Contender
from tfopt.components.benchmark.process import ModelDied, ModelFailed
from tfopt.components.benchmark.ratio import FEWEST_ROUNDS
from tfopt.runtimes import TensorSpec

log = logging.getLogger("tfopt")

WARM_BURSTS, WARM_TOLERANCE = 3, 0.05  # a model is warm when so many bursts in a row are within this of each other
SETTLING = 0.15  # the part of a turn that is not recorded
OVERTIME = 2.0  # how many times the planned seconds may be used before rounds are dropped

Feed = Callable[[dict[str, TensorSpec]], Path]


@dataclass(frozen=True)
class Plan:
    """What is measured, and for how long.

    Attributes:
        batch_sizes: In the order they are measured.
        threads: Of each model.
        seconds: Of each model, over all batch sizes, warm-up apart.
        rounds: How many turns each model gets at each batch size.
        seed: Of the order of the turns.
    """

    batch_sizes: Sequence[int]
    threads: int
    seconds: float
    rounds: int
    seed: int

    @property
    def share(self) -> float:
        """The seconds of one model at one batch size."""
        return self.seconds / len(self.batch_sizes)

    @property
    def burst(self) -> float:
        """The seconds of one turn."""
        return self.share / self.rounds


def measure(contenders: Sequence[Contender], plan: Plan, feed: Feed) -> None:
    """Load every model and measure it at every batch size it can do. Only one process is ever at work.

    Args:
        contenders: Filled in as they go.
        plan: What to measure.
        feed: Gives the file of inputs for a signature.

    Raises:
        ComponentError: When the baseline fails.
    """
    for contender in contenders:
        with contender.dropping_out():
            _load(contender, plan.threads, feed)
    for batch_size in plan.batch_sizes:
        ready = []
        for contender in contenders:
            with contender.dropping_out():
                if not contender.error and _warm_up(contender, batch_size, plan):
                    ready.append(contender)
        _take_turns(ready, batch_size, plan)
    for contender in contenders:
        with contender.dropping_out():
            _finish(contender)


def _load(contender: Contender, threads: int, feed: Feed) -> None:
    log.info("loading %s", contender.name)
    found = contender.process.ask("load", contender.model.uri, threads)
    contender.process.ask("feed", str(feed(found.pop("inputs"))))
    contender.facts |= found


def _warm_up(contender: Contender, batch_size: int, plan: Plan) -> bool:
    """Call it until bursts agree or half its time has gone; False when it does not do this batch size."""
    try:
        first = contender.process.ask("prepare", batch_size)
    except ModelDied:
        raise
    except ModelFailed as refusal:
        contender.notes.append(f"batch size {batch_size} is not measured: {refusal}")
        return False
    contender.facts.setdefault("first_call_seconds", first["seconds"])
    contender.notes += [f"batch size {batch_size}: output {name!r} is not finite" for name in first["not_finite"]]
    limit = time.monotonic() + plan.share / 2
    medians: list[float] = []
    warm = False
    while not warm and (len(medians) < WARM_BURSTS or time.monotonic() < limit):
        medians.append(float(np.median(contender.process.ask("burst", plan.burst, 0.0))))
        last = medians[-WARM_BURSTS:]
        warm = len(last) == WARM_BURSTS and max(last) <= min(last) * (1 + WARM_TOLERANCE)
    contender.warm[batch_size] = warm
    contender.call_seconds[batch_size] = medians[-1] / 1e9
    return True


def _take_turns(ready: Sequence[Contender], batch_size: int, plan: Plan) -> None:
    """Give each a burst in every round. The order is drawn, and mirrored in the next round, so that drift cancels."""
    rounds = _affordable_rounds(ready, batch_size, plan)
    draw, order = random.Random(f"{plan.seed}/{batch_size}"), list(ready)
    settling = plan.burst * SETTLING
    for number in range(rounds):
        if number % max(1, rounds // 3) == 0:
            log.info("batch size %d: round %d of %d", batch_size, number + 1, rounds)
        if number % 2:
            order.reverse()
        else:
            draw.shuffle(order)
        for contender in order:
            if not contender.error:
                with contender.dropping_out():
                    burst = contender.process.ask("burst", plan.burst - settling, settling)
                    contender.samples.setdefault(batch_size, []).append(burst)


def _affordable_rounds(ready: Sequence[Contender], batch_size: int, plan: Plan) -> int:
    """Fewer than planned where single calls are longer than a turn. Settled before the first: never after a look."""
    one_round = sum(max(plan.burst, contender.call_seconds[batch_size]) for contender in ready)
    affordable = int(OVERTIME * plan.share * len(ready) / one_round) if ready else 0
    rounds = min(plan.rounds, max(FEWEST_ROUNDS, affordable))
    if rounds < plan.rounds:
        slowest = max(contender.call_seconds[batch_size] for contender in ready)
        note = (
            f"batch size {batch_size}: {rounds} rounds instead of {plan.rounds}, since calls take up to {slowest:.2g} s"
        )
        for contender in ready:
            contender.notes.append(note)
    return rounds


def _finish(contender: Contender) -> None:
    if contender.error:
        return
    if not contender.samples:
        raise ModelFailed("; ".join(contender.notes))
    contender.facts |= contender.process.ask("facts")
