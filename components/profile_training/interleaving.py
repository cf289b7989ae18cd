"""Measure variations in short turns, interleaved in random order, each in its own process."""

import contextlib
import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tfopt.components.profile_training.parameters import Pace
from tfopt.components.profile_training.training_variant import Variation
from tfopt.errors import ComponentError
from tfopt.measurement.speedup import speedup
from tfopt.processes.worker_process import CallFailed, WorkerProcess
from tfopt.reports.training_plan import VariationResult

WORKER = "tfopt.components.profile_training"
T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass
class VariationRun:
    """A variation with its process: seconds per example by round, peak memory in bytes, and why it is not measured."""

    variation: Variation
    process: WorkerProcess
    seconds: list[float] = field(default_factory=list)
    memory: int = 0
    error: str | None = None

    def call(self, *arguments: Any) -> Any:
        """Call a method of its worker; a failure is stored as `error`, and None is returned."""
        try:
            return self.process.call(*arguments)
        except (CallFailed, ComponentError) as failure:
            self.error = failure.received if isinstance(failure, ComponentError) else str(failure)
            log.info("%s cannot be measured: %s", self.variation.name, self.error.splitlines()[0])
            return None


def start_process(variation: Variation, folder: Path, number: int) -> WorkerProcess:
    """Start the process of a variation, which ``with`` ends; nothing is built in it yet."""
    environment = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_MIN_LOG_LEVEL": "2", **variation.environment}
    return WorkerProcess(WORKER, log=folder / f"{number}.log", environment=environment)


def shuffled_turns(items: Sequence[T], pace: Pace) -> Iterator[T]:
    """Yield all items once in each round, in random order."""
    generator, order = random.Random(pace.seed), list(items)
    for _ in range(pace.rounds):
        generator.shuffle(order)
        yield from order


def compare_variations(
    base: VariationRun, others: Sequence[Variation], pace: Pace, folder: Path
) -> list[VariationResult]:
    """Measure each variation interleaved with the base, whose process is ready."""
    with contextlib.ExitStack() as stack:
        runs = [base]
        for variation in others:
            number = len(list(folder.glob("*.log")))
            run = VariationRun(variation, stack.enter_context(start_process(variation, folder, number)))
            log.info("trying: %s", variation.name)
            run.call("build", variation.variant)
            runs.append(run)
        base.seconds.clear()
        for run in shuffled_turns(runs, pace):
            seconds = None if run.error else run.call("burst", "real", pace.turn_seconds)
            if seconds is not None:
                run.seconds.append(seconds / run.variation.variant.batch_size)
        if base.error:
            raise ComponentError(base.error, "a training that runs", "correct what the lines above show")
        for run in runs[1:]:
            run.memory = (run.call("memory") or {}).get("process", 0) if not run.error else 0
    return [_result(run, base, pace.min_effect) for run in runs[1:]]


def _result(run: VariationRun, base: VariationRun, min_effect: float) -> VariationResult:
    ratio = None
    if not run.error:
        ratio = speedup(np.array(base.seconds), np.array(run.seconds), min_effect=min_effect)
    variation = run.variation
    return VariationResult(
        name=variation.name,
        where=variation.where,
        note=variation.note,
        settings=variation.variant.planned() | {"batch_size": variation.variant.batch_size},
        speedup=ratio,
        example_us=float(np.median(run.seconds)) * 1e6 if ratio else None,
        memory_bytes=run.memory,
        error=run.error,
    )
