"""Choose batch size, precision and XLA settings by running a few training steps in a child process."""

import contextlib
import logging
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import tensorflow as tf

from tfopt.artifacts import Examples
from tfopt.components.train.parameters import Settings
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child
from tfopt.training.compute.device_memory import LESS_MEMORY, configure_gpu_memory, find_out_of_memory, gpu_count
from tfopt.training.compute.precision import AS_BUILT, fast_precisions
from tfopt.training.compute.rematerialization import rematerialized
from tfopt.training.determinism import reproducible
from tfopt.training.training_setup import TrainingSetup, prepare_training
from tfopt.training.user_module import UserModule

MEMORY_SHARE = 0.8  # of the free memory: the rest is for examples and other processes
LARGEST = 4096
MEMORY_STEPS = 2  # the first step creates the optimizer's variables
SIZE_STEPS = 5  # timed with each batch size
SAME_TIME = 1.05  # a larger batch that is not faster by more per example is not used
SLOWER_SIZES = 2  # after so many the search for the fastest size ends
TIMED_STEPS = 20
ROUNDS = 5
MAX_RATIO = 0.9  # of the time of float32 without XLA: a choice must be this much faster

Choice = tuple[str, str]  # precision, jit_compile
Seconds = dict[Choice, list[float]]

log = logging.getLogger(__name__)


def choose_batch_size(settings: Settings, examples: Examples, module: Path, *, limit_mb: int = 0) -> Settings:
    """Return the settings with a batch size instead of 0; without a limit, a step may use most of the free memory.

    Raises:
        ComponentError: If a single example does not fit, or the module cannot be trained.
    """
    if settings.batch_size:
        return settings
    limit = limit_mb << 20 or int(MEMORY_SHARE * psutil.virtual_memory().available)
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        log_file = Path(folder, "fits")
        log_file.touch()
        arguments = str(examples.path), str(module), settings, limit, str(log_file)
        try:
            reason = run_in_child(try_batches, *arguments, doing="looking for the largest batch that fits")
        except ComponentError as error:
            if "the process was killed" not in error.received:  # usually because memory ran out
                raise
            reason = "the process ended"
        lines = [line.split() for line in log_file.read_text().splitlines()]
    times = {int(size): float(seconds) for size, seconds in lines}
    if not times:
        received = f"batch_size=0: a step with one example does not fit in memory ({reason})"
        raise ComponentError(received, "a step that fits", LESS_MEMORY)
    chosen = max(times) if settings.batch_search == "largest" else fastest_size(times)
    for size, seconds in times.items():
        log.info("batch_size=%d: %.3g ms per example", size, 1e3 * seconds)
    log.info("batch_size=%d is used; the search ended because: %s", chosen, reason)
    return replace(settings, batch_size=chosen)


def fastest_size(times: Mapping[int, float]) -> int:
    """Return the smallest batch size whose time per example is within `SAME_TIME` of the shortest.

    >>> fastest_size({1: 9.0, 2: 5.0, 4: 3.0, 8: 2.9, 16: 3.2})
    4
    """
    return min(size for size, seconds in times.items() if seconds <= SAME_TIME * min(times.values()))


def try_batches(path: str, module: str, settings: Settings, limit: int, log_file: str) -> str:
    """Train on larger and larger batches, append each size that fits to a file, and return why the search ended.

    Next to each size are the seconds per example. The process may also be killed when memory runs out.
    """
    _limit_memory(limit)
    times: dict[int, float] = {}
    examples = Examples(Path(path))
    configure_gpu_memory(settings.gpu_memory_mb)
    # ``auto`` is measured later, with the batch size that fits
    precision, jit = (AS_BUILT if mode == "auto" else mode for mode in (settings.precision, settings.jit_compile))
    with reproducible(settings.seed, deterministic=settings.deterministic):
        user = UserModule(Path(module))
        setup = _prepare(user, examples, settings, precision, jit)
        source = setup.read_sources()["train"]
        with rematerialized(setup.parts.model, settings.rematerialize):
            for size in [1 << power for power in range(min(source.count, LARGEST).bit_length())]:
                if settings.batch_search == "fastest" and 2**SLOWER_SIZES * fastest_size(times or {size: 0}) < size:
                    return f"{SLOWER_SIZES} larger ones were not faster per example"
                try:
                    batch = source.first_batch(size)
                    ends = []
                    for _ in range(MEMORY_STEPS + SIZE_STEPS):
                        setup.parts.model.train_on_batch(*batch)
                        ends.append(time.perf_counter())
                except Exception as error:
                    if out_of_memory := find_out_of_memory(error):
                        return first_line(out_of_memory)
                    received = f"training with {module} raised: {first_line(error)}"
                    raise ComponentError(received, "a model that trains", "fix the model") from error
                times[size] = statistics.median(b - a for a, b in pairwise(ends[MEMORY_STEPS - 1 :])) / size
                with Path(log_file).open("a") as file:
                    file.write(f"{size} {times[size]}\n")
    return "the split has no more examples" if source.count < LARGEST else f"{LARGEST} is the largest that is tried"


def _limit_memory(limit: int) -> None:
    """Make allocations beyond the limit fail: without it, the kernel might kill any other process.

    CUDA reserves more addresses than the machine has memory, and could not start; a full GPU raises by itself.
    """
    if not gpu_count():
        used = psutil.Process().memory_info().vms
        resource.setrlimit(resource.RLIMIT_AS, (used + limit, resource.RLIM_INFINITY))


def choose_auto_settings(settings: Settings, examples: Examples, module: Path) -> Settings:
    """Return the settings with each ``auto`` replaced by a precision or a jit_compile mode."""
    if "auto" not in (settings.precision, settings.jit_compile):
        return settings
    if settings.jit_compile == "auto" and settings.deterministic:
        log.info("XLA is not tried: not all of its kernels are deterministic; --no-deterministic tries it as well")
    doing = "trying precisions and XLA on a few steps"
    times, failures = run_in_child(time_choices, str(examples.path), str(module), settings, doing=doing)
    for (precision, jit), reason in failures.items():
        log.warning("precision=%s jit_compile=%s is not possible: %s", precision, jit, reason)
    for (precision, jit), seconds in times.items():
        log.info("precision=%s jit_compile=%s: %.3g ms per step", precision, jit, 1e3 * statistics.median(seconds))
    precision, jit = fastest(times)
    log.info("auto: precision=%s, jit_compile=%s", precision, jit)
    if settings.deterministic:
        _log_cost_of_determinism(settings, examples, module, statistics.median(times[precision, jit]))
    chosen: dict[str, Any] = {"precision": precision, "jit_compile": jit}
    return replace(settings, **chosen)


def _log_cost_of_determinism(settings: Settings, examples: Examples, module: Path, seconds: float) -> None:
    """Time the same choices without determinism, in a process of their own: kernels are chosen once in a process."""
    free, doing = replace(settings, deterministic=False), "timing steps without determinism"
    times, _ = run_in_child(time_choices, str(examples.path), str(module), free, doing=doing)
    precision, jit = fastest(times)
    best = statistics.median(times[precision, jit])
    text = (
        "deterministic: %.3g ms per step; --no-deterministic: %.3g ms (%.2gx as fast) with precision=%s jit_compile=%s"
    )
    log.info(text, 1e3 * seconds, 1e3 * best, seconds / best, precision, jit)


def fastest(times: Mapping[Choice, Sequence[float]]) -> Choice:
    """Return the choice that is faster than the first in every round, and by a tenth in the median; else the first.

    >>> fastest({("float32", "off"): [2.0, 2.1, 2.0], ("float32", "on"): [1.0, 1.2, 1.1]})
    ('float32', 'on')
    >>> fastest({("float32", "off"): [2.0, 2.1, 2.0], ("float32", "on"): [1.0, 2.2, 1.1]})
    ('float32', 'off')
    """
    first, *others = times
    ratios = {choice: [s / base for s, base in zip(times[choice], times[first], strict=True)] for choice in others}
    medians = {choice: statistics.median(each) for choice, each in ratios.items() if max(each) < 1}
    best = min(medians, key=lambda choice: medians[choice], default=first)
    return best if medians.get(best, 1) < MAX_RATIO else first


def time_choices(path: str, module: str, settings: Settings) -> tuple[Seconds, dict[Choice, str]]:
    """Return the seconds per step of each choice, one value per round, and the reasons why others are not possible."""
    examples = Examples(Path(path))
    runs: dict[Choice, Callable[[], float]] = {}
    failures: dict[Choice, str] = {}
    precisions = fast_precisions() if settings.precision == "auto" else [settings.precision]
    try_xla = settings.jit_compile == "auto" and not settings.deterministic
    jits = ["off", "on"] if try_xla else ["off" if settings.jit_compile == "auto" else settings.jit_compile]
    choices = [(precision, jit) for precision in precisions for jit in jits]
    configure_gpu_memory(settings.gpu_memory_mb)
    with contextlib.ExitStack() as stack:
        stack.enter_context(reproducible(settings.seed, deterministic=settings.deterministic))
        user = UserModule(Path(module))
        for choice in choices:
            try:
                runs[choice] = _prepare_run(stack, user, examples, settings, *choice)
                runs[choice]()  # traces and compiles
            except Exception as error:
                if choice == choices[0]:
                    raise
                runs.pop(choice, None)
                failures[choice] = error.received if isinstance(error, ComponentError) else first_line(error)
        rounds = [{choice: run() for choice, run in runs.items()} for _ in range(ROUNDS)]
    return {choice: [times[choice] for times in rounds] for choice in runs}, failures


def _prepare_run(
    stack: contextlib.ExitStack, user: UserModule, examples: Examples, settings: Settings, precision: str, jit: str
) -> Callable[[], float]:
    setup = _prepare(user, examples, settings, precision, jit)
    stack.enter_context(rematerialized(setup.parts.model, settings.rematerialize))
    batch = setup.read_sources()["train"].first_batch(settings.batch_size)
    batches = tf.data.Dataset.from_tensors(batch).repeat(TIMED_STEPS)

    def run() -> float:
        start = time.perf_counter()
        setup.parts.model.fit(batches, verbose=0)
        return (time.perf_counter() - start) / TIMED_STEPS

    return run


def _prepare(user: UserModule, examples: Examples, settings: Settings, precision: str, jit: str) -> TrainingSetup:
    label, seed = settings.label, settings.seed
    return prepare_training(user, examples, label=label, seed=seed, precision=precision, jit_compile=jit)
