"""Who runs when: all settings take turns in short bursts, each in a process of its own, in an order drawn anew."""

import contextlib
import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tfopt.components.profile_training.variations import Variation
from tfopt.errors import ComponentError
from tfopt.measurement.speedup import Speedup, speedup
from tfopt.processes.rpc import AskedProcess, Refused

WORKER = "tfopt.components.profile_training.worker"

log = logging.getLogger("tfopt")


@dataclass
class Runner:
    """A setting with its process and the seconds that an example took, of each round; or why it dropped out."""

    variation: Variation
    process: AskedProcess
    seconds: list[float] = field(default_factory=list)
    memory: int = 0
    error: str | None = None

    def ask(self, *question: Any) -> Any:
        """Ask its process; a failure is its result."""
        try:
            return self.process.ask(*question)
        except (Refused, ComponentError) as failure:
            self.error = failure.received if isinstance(failure, ComponentError) else str(failure)
            log.info("%s drops out: %s", self.variation.name, self.error.splitlines()[0])
            return None


@dataclass(frozen=True)
class Pace:
    """How long is measured: seconds of each setting, in so many rounds, in an order drawn with a seed."""

    seconds: float
    rounds: int
    seed: int

    @property
    def burst(self) -> float:
        """Seconds of one turn."""
        return self.seconds / self.rounds


@contextlib.contextmanager
def started(variation: Variation, folder: Path, number: int) -> Iterator[AskedProcess]:
    """A process for a setting; nothing is built yet."""
    environment = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_MIN_LOG_LEVEL": "2", **variation.environment}
    with AskedProcess(WORKER, log=folder / f"{number}.log", environment=environment) as process:
        yield process


def compare(
    base: Runner, others: Sequence[Variation], pace: Pace, folder: Path, min_effect: float
) -> list[dict[str, Any]]:
    """Measure each setting beside the base, whose process is ready; return a row for each."""
    with contextlib.ExitStack() as stack:
        runners = [base]
        for variation in others:
            number = len(list(folder.glob("*.log")))
            runner = Runner(variation, stack.enter_context(started(variation, folder, number)))
            log.info("trying: %s", variation.name)
            runner.ask("build", variation.setup)
            runners.append(runner)
        draw, order = random.Random(pace.seed), list(runners)
        base.seconds.clear()
        for _ in range(pace.rounds):
            draw.shuffle(order)
            for runner in [runner for runner in order if not runner.error]:
                took = runner.ask("burst", "real", pace.burst)
                if took is not None:
                    runner.seconds.append(took / runner.variation.setup.batch_size)
        if base.error:
            raise ComponentError(base.error, "a training that runs", "mend what the lines above show")
        for runner in runners[1:]:
            runner.memory = (runner.ask("memory") or {}).get("process", 0) if not runner.error else 0
    return [_row(runner, base, min_effect) for runner in runners[1:]]


def _row(runner: Runner, base: Runner, min_effect: float) -> dict[str, Any]:
    found: Speedup | None = None
    if not runner.error:
        found = speedup(np.array(base.seconds), np.array(runner.seconds), min_effect=min_effect)
    variation = runner.variation
    return {
        "name": variation.name,
        "where": variation.where,
        "note": variation.note,
        "settings": variation.setup.planned() | {"batch_size": variation.setup.batch_size},
        "speedup": found.facts() if found else None,
        "example_us": float(np.median(runner.seconds)) * 1e6 if found else None,
        "memory_bytes": runner.memory,
        "error": runner.error,
    }
