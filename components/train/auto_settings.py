"""What ``auto`` chooses: a few steps of the user's model on the user's data, timed in turns in a child process."""

import contextlib
import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tfopt.artifacts import Examples
from tfopt.components.train.settings import Settings
from tfopt.errors import ComponentError, first_line
from tfopt.processes.subprocess_call import run_in_child
from tfopt.training.determinism import reproducible
from tfopt.training.device_memory import take_as_needed
from tfopt.training.precision import supported
from tfopt.training.rematerialization import recomputed
from tfopt.training.training_setup import prepare
from tfopt.training.user_module import UserModule

STEPS = 20
ROUNDS = 5
PAYS = 0.9  # of the time of float32 without XLA

Choice = tuple[str, str]  # precision, jit_compile
Seconds = dict[Choice, list[float]]

log = logging.getLogger("tfopt")


def choose(settings: Settings, examples: Examples, module: Path) -> Settings:
    """Return the settings with a precision and a jit_compile in the place of each ``auto``."""
    if "auto" not in (settings.precision, settings.jit_compile):
        return settings
    doing = "trying precisions and XLA on a few steps"
    found, failed = run_in_child(time_choices, str(examples.path), str(module), settings, doing=doing)
    for (precision, jit), why in failed.items():
        log.warning("precision=%s jit_compile=%s can not be: %s", precision, jit, why)
    for (precision, jit), seconds in found.items():
        log.info("precision=%s jit_compile=%s: %.3g ms a step", precision, jit, 1e3 * statistics.median(seconds))
    precision, jit = fastest(found)
    log.info("auto: precision=%s, jit_compile=%s", precision, jit)
    return replace(settings, precision=precision, jit_compile=jit)


def fastest(found: Mapping[Choice, Sequence[float]]) -> Choice:
    """The choice that beats the first in every round, and by a tenth in most; else the first.

    >>> fastest({("float32", "off"): [2.0, 2.1, 2.0], ("float32", "on"): [1.0, 1.2, 1.1]})
    ('float32', 'on')
    >>> fastest({("float32", "off"): [2.0, 2.1, 2.0], ("float32", "on"): [1.0, 2.2, 1.1]})
    ('float32', 'off')
    """
    first, *others = found
    ratios = {one: [s / base for s, base in zip(found[one], found[first], strict=True)] for one in others}
    pay = {one: statistics.median(each) for one, each in ratios.items() if max(each) < 1}
    best = min(pay, key=lambda one: pay[one], default=first)
    return best if pay.get(best, 1) < PAYS else first


def time_choices(path: str, module: str, settings: Settings) -> tuple[Seconds, dict[Choice, str]]:
    """Return the seconds per step of each choice, round by round, and why some can not be."""
    examples = Examples(Path(path))
    ready: dict[Choice, Callable[[], float]] = {}
    failed: dict[Choice, str] = {}
    precisions = supported() if settings.precision == "auto" else [settings.precision]
    both = settings.jit_compile == "auto" and not settings.deterministic
    jits = ["off", "on"] if both else ["off" if settings.jit_compile == "auto" else settings.jit_compile]
    choices = [(precision, jit) for precision in precisions for jit in jits]
    take_as_needed(settings.gpu_memory_mb)
    with contextlib.ExitStack() as stack:
        stack.enter_context(reproducible(settings.seed, deterministic=settings.deterministic))
        user = UserModule(Path(module))
        for choice in choices:
            try:
                ready[choice] = _ready(stack, user, examples, settings, *choice)
                ready[choice]()  # traced and compiled
            except Exception as error:
                if choice == choices[0]:
                    raise
                ready.pop(choice, None)
                failed[choice] = error.received if isinstance(error, ComponentError) else first_line(error)
        rounds = [{choice: steps() for choice, steps in ready.items()} for _ in range(ROUNDS)]
    return {choice: [each[choice] for each in rounds] for choice in ready}, failed


def _ready(
    stack: contextlib.ExitStack, user: UserModule, examples: Examples, settings: Settings, precision: str, jit: str
) -> Callable[[], float]:
    import tensorflow as tf

    label, seed = settings.label, settings.seed
    made = prepare(user, examples, label=label, seed=seed, precision=precision, jit_compile=jit)
    stack.enter_context(recomputed(made.parts.model, settings.rematerialize))
    batches = tf.data.Dataset.from_tensors(made.sources["train"].one(settings.batch_size)).repeat(STEPS)

    def steps() -> float:
        start = time.perf_counter()
        made.parts.model.fit(batches, verbose=0)
        return (time.perf_counter() - start) / STEPS

    return steps
