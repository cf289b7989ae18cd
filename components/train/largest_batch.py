"""The largest batch whose step fits in memory: doubled in a child process until that runs out of it."""

import logging
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from tfopt.artifacts import Examples
from tfopt.components.train.settings import Settings
from tfopt.errors import ComponentError, first_line
from tfopt.processes.subprocess_call import run_in_child
from tfopt.training.determinism import reproducible
from tfopt.training.device_memory import ran_out, take_as_needed
from tfopt.training.rematerialization import recomputed
from tfopt.training.training_setup import prepare
from tfopt.training.user_module import UserModule

SPARE = 0.8  # of the memory that is free: the rest is for examples, and for whoever else is there
LARGEST = 4096
STEPS = 2  # the optimizer's variables are there after the first

log = logging.getLogger("tfopt")


def choose_batch_size(settings: Settings, examples: Examples, module: Path, *, limit_mb: int = 0) -> Settings:
    """Return the settings with a batch size in the place of 0.

    Args:
        settings: As asked.
        examples: What is learnt from.
        module: The user's file.
        limit_mb: What the child may have of the machine's memory; most of what is free when 0.

    Raises:
        ComponentError: When a single example does not fit, or the module cannot be trained.
    """
    if settings.batch_size:
        return settings
    limit = limit_mb << 20 or int(SPARE * psutil.virtual_memory().available)
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        noted = Path(folder, "fits")
        noted.touch()
        arguments = str(examples.path), str(module), settings, limit, str(noted)
        try:
            why = run_in_child(double, *arguments, doing="looking for the largest batch that fits")
        except ComponentError as error:
            if "the process was killed" not in error.received:  # running out of it is what ends this as a rule
                raise
            why = "the process ended"
        fits = [int(line) for line in noted.read_text().split()]
    if not fits:
        raise ComponentError(
            f"batch_size=0: a step with one example does not fit in memory ({why})",
            "a step that fits",
            "make the model or its inputs smaller, pass precision=mixed_bfloat16, or take a machine with more memory",
        )
    log.info("batch_size=%d fits in memory; it ended there because: %s", fits[-1], why)
    return replace(settings, batch_size=fits[-1])


def double(path: str, module: str, settings: Settings, limit: int, noted: str) -> str:
    """Learn from larger and larger batches, noting each that fits; return why it ended. Dying is an answer too."""
    _allow(limit)
    examples = Examples(Path(path))
    take_as_needed(settings.gpu_memory_mb)
    precision, jit = _named(settings.precision), _named(settings.jit_compile)
    with reproducible(settings.seed, deterministic=settings.deterministic):
        user = UserModule(Path(module))
        label, seed = settings.label, settings.seed
        made = prepare(user, examples, label=label, seed=seed, precision=precision, jit_compile=jit)
        source = made.sources["train"]
        with recomputed(made.parts.model, settings.rematerialize):
            for size in _sizes(source.count):
                try:
                    _learn(made.parts.model, source.one(size))
                except Exception as error:
                    if ran_out(error):
                        return first_line(ran_out(error))
                    raise ComponentError(
                        f"training with {module} raised: {first_line(error)}", "a model that learns", "mend the model"
                    ) from error
                with Path(noted).open("a") as file:
                    file.write(f"{size}\n")
    return "the split has no more examples" if source.count < LARGEST else f"{LARGEST} is the largest that is tried"


def _learn(model: Any, batch: tuple[Any, Any]) -> None:
    for _ in range(STEPS):
        model.train_on_batch(*batch)


def _sizes(count: int) -> Iterator[int]:
    size = 1
    while size <= min(count, LARGEST):
        yield size
        size *= 2


def _allow(limit: int) -> None:
    """Have an allocation beyond that fail: the kernel would otherwise end whichever process it likes."""
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + limit, resource.RLIM_INFINITY))


def _named(choice: str) -> str:
    """``auto`` is measured with the batch that fits, so that comes first."""
    return "module" if choice == "auto" else choice
