"""Who runs when: every model is tried by itself, then in each round all begin in new processes and take turns.

New processes are not for the load time. Which physical memory a model gets decides how it shares the caches, for as
long as it is loaded: one load of a small model was within 0.1 % of itself, and the next load of the same file up to
10 % faster or slower. Part of that luck stays with a process, load after load: two of the same model differed by 1 to
5 % throughout. What is measured in one process each would take it for a difference between models.
"""

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.benchmark.measured_model import Contender
from tfopt.measurement.speedup import FEWEST_ROUNDS
from tfopt.processes.rpc import Died, Refused

log = logging.getLogger("tfopt")

WARM_BURSTS, WARM_TOLERANCE = 3, 0.05  # a model is warm when so many bursts in a row are within this of each other
TURNS = 2  # of a round; the order of the second is the first's in the mirror, so that drift cancels
SETTLING = 0.15  # the part of a turn that is not recorded
HOPELESS = 5.0  # times the baseline's call: one that is so much slower and too long for `FEW_ROUNDS` is given up
SHORTEST_S = 0.02  # of a turn: in a shorter one the first calls after another model's turn would weigh
FEW_ROUNDS = 15  # what each load was lucky with then weighs so much that a difference of 5 % is seldom proven
OVERTIME = 2.0  # how many times the planned seconds may be used before rounds are dropped

Feed = Callable[[dict[str, TensorSpec]], Path]


@dataclass(frozen=True)
class Plan:
    """What is measured, and for how long.

    Attributes:
        batch_sizes: In the order they are measured.
        threads: Of each model.
        seconds: Of each model, over all batch sizes, warm-up apart.
        rounds: How many processes each model is measured in; fewer where that takes too long.
        seed: Of the order of the turns.
    """

    batch_sizes: Sequence[int]
    threads: int
    seconds: float
    rounds: int
    seed: int

    @property
    def burst(self) -> float:
        """The seconds of one turn."""
        return max(SHORTEST_S, self.share / self.rounds / TURNS)

    @property
    def share(self) -> float:
        """The seconds of one model at one batch size."""
        return self.seconds / len(self.batch_sizes)


def measure(contenders: Sequence[Contender], plan: Plan, feed: Feed) -> None:
    """Measure every model at every batch size it can do. Only one process is ever at work.

    Args:
        contenders: Filled in as they go.
        plan: What to measure.
        feed: Gives the file of inputs for a signature.

    Raises:
        ComponentError: When the baseline fails.
    """
    for contender in contenders:
        with contender.dropping_out():
            _try(contender, plan, feed)
    baseline = next(contender for contender in contenders if contender.is_baseline)
    for contender in _still_in(contenders):
        with contender.dropping_out():
            _give_up(contender, baseline, plan)
    draw, order = random.Random(plan.seed), list(contenders)
    rounds, began = _affordable_rounds(order, plan), time.monotonic()
    for number in range(rounds):
        left = f", {(time.monotonic() - began) / number * (rounds - number):.0f} s left" if number else ""
        log.info("round %d of %d%s", number + 1, rounds, left)
        draw.shuffle(order)
        for contender in _still_in(order):
            with contender.dropping_out():
                contender.process.end()  # all, before any begins: it would be given the memory that it just gave back
        draw.shuffle(order)
        for contender in _still_in(order):
            with contender.dropping_out():
                _load(contender, plan, feed)
        for batch_size in plan.batch_sizes:
            _take_turns([contender for contender in order if batch_size in contender.warm], batch_size, plan)


def _try(contender: Contender, plan: Plan, feed: Feed) -> None:
    """Load and warm up, and note what only a fresh process can tell: first call, memory, what it can do."""
    log.info("loading %s", contender.name)
    contender.facts |= _load(contender, plan, feed)
    for batch_size in plan.batch_sizes:
        try:
            first = contender.process.ask("prepare", batch_size)
        except Died:
            raise
        except Refused as refusal:
            contender.notes.append(f"batch size {batch_size} is not measured: {refusal}")
            continue
        contender.facts.setdefault("first_call_seconds", first["seconds"])
        contender.notes += [f"batch size {batch_size}: output {name!r} is not finite" for name in first["not_finite"]]
        _warm_up(contender, batch_size, plan)
    if not contender.warm:
        raise Refused("; ".join(contender.notes))
    contender.facts |= contender.process.ask("facts")


def _load(contender: Contender, plan: Plan, feed: Feed) -> dict[str, Any]:
    """Load it in a new process; return what that took."""
    contender.process.renew()
    found: dict[str, Any] = contender.process.ask("load", contender.model.uri, plan.threads)
    contender.process.ask("feed", str(feed(found.pop("inputs"))))
    return found


def _warm_up(contender: Contender, batch_size: int, plan: Plan) -> None:
    """Call it until bursts agree, or half the time it will be measured has gone."""
    limit = time.monotonic() + plan.share / 2
    medians: list[float] = []
    warm = False
    while not warm and (len(medians) < WARM_BURSTS or time.monotonic() < limit):
        calls, _ = contender.process.ask("burst", plan.burst, 0.0)
        medians.append(float(np.median(calls)))
        last = medians[-WARM_BURSTS:]
        warm = len(last) == WARM_BURSTS and max(last) <= min(last) * (1 + WARM_TOLERANCE)
    contender.warm[batch_size] = warm
    contender.call_seconds[batch_size] = medians[-1] / 1e9


def _give_up(contender: Contender, baseline: Contender, plan: Plan) -> None:
    """Leave out the batch sizes at which it would use up everybody's time to no avail."""
    for batch_size, call in list(contender.call_seconds.items()):
        usual = baseline.call_seconds.get(batch_size, call)
        if call > max(HOPELESS * usual, plan.share / FEW_ROUNDS):
            del contender.warm[batch_size], contender.call_seconds[batch_size]
            said = f"a call took {call:.2g} s as it warmed up, {call / usual:.1f} times the baseline's"
            contender.notes.append(f"batch size {batch_size} is not measured: {said}")
    if not contender.warm:
        raise Refused("; ".join(contender.notes))


def _take_turns(order: Sequence[Contender], batch_size: int, plan: Plan) -> None:
    """Warm each up again, which is quick now, and give each a burst in every turn."""
    for contender in _still_in(order):
        with contender.dropping_out():
            contender.process.ask("prepare", batch_size, plan.burst / 2)
    settling = plan.burst * SETTLING
    bursts = []
    for turn in range(TURNS):
        for contender in _still_in(order[::-1] if turn % 2 else order):
            with contender.dropping_out():
                bursts.append((contender, *contender.process.ask("burst", plan.burst - settling, settling)))
    for contender in _still_in(order):
        own = [burst for owner, *burst in bursts if owner is contender]
        contender.samples.setdefault(batch_size, []).append(np.concatenate([calls for calls, _ in own]))
        contender.others.setdefault(batch_size, []).extend(others for _, others in own)


def _affordable_rounds(contenders: Sequence[Contender], plan: Plan) -> int:
    """Fewer than planned where loads or single calls take long. Settled before the first: never after a look."""
    ready = _still_in(contenders)
    loads = sum(contender.facts["load_seconds"] + contender.facts["first_call_seconds"] for contender in ready)
    bursts = (TURNS + 0.5) * sum(max(plan.burst, call) for one in ready for call in one.call_seconds.values())
    affordable = int(OVERTIME * plan.seconds * len(ready) / (loads + bursts))
    rounds = min(plan.rounds, max(FEWEST_ROUNDS, affordable))
    if rounds < min(plan.rounds, FEW_ROUNDS):
        for contender in ready:
            contender.notes.append(f"{rounds} rounds instead of {plan.rounds}; each would take {loads + bursts:.2g} s")
    return rounds


def _still_in(contenders: Sequence[Contender]) -> list[Contender]:
    return [contender for contender in contenders if not contender.error]
