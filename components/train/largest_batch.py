"""Search the largest batch whose training step fits in memory: doubled in a child process until memory runs out."""

import logging
import resource
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from tfopt.artifacts import Examples
from tfopt.components.train.parameters import Settings
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child
from tfopt.training.compute.device_memory import configure_gpu_memory, find_out_of_memory
from tfopt.training.compute.precision import AS_BUILT
from tfopt.training.compute.rematerialization import rematerialized
from tfopt.training.determinism import reproducible
from tfopt.training.training_setup import prepare_training
from tfopt.training.user_module import UserModule

MEMORY_SHARE = 0.8  # of the free memory: the rest is for examples and other processes
LARGEST = 4096
STEPS = 2  # the first step creates the optimizer's variables

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
        sizes = [int(line) for line in log_file.read_text().split()]
    if not sizes:
        raise ComponentError(
            f"batch_size=0: a step with one example does not fit in memory ({reason})",
            "a step that fits",
            "make the model or its inputs smaller, pass precision=mixed_bfloat16, or use a machine with more memory",
        )
    log.info("batch_size=%d fits in memory; the search ended because: %s", sizes[-1], reason)
    return replace(settings, batch_size=sizes[-1])


def try_batches(path: str, module: str, settings: Settings, limit: int, log_file: str) -> str:
    """Train on larger and larger batches, append each size that fits to a file, and return why the search ended.

    The process may also be killed when memory runs out.
    """
    # make allocations beyond the limit fail: without it, the kernel might kill any other process
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + limit, resource.RLIM_INFINITY))
    examples = Examples(Path(path))
    configure_gpu_memory(settings.gpu_memory_mb)
    # ``auto`` is measured later, with the batch size that fits
    precision, jit = (AS_BUILT if mode == "auto" else mode for mode in (settings.precision, settings.jit_compile))
    with reproducible(settings.seed, deterministic=settings.deterministic):
        user = UserModule(Path(module))
        label, seed = settings.label, settings.seed
        setup = prepare_training(user, examples, label=label, seed=seed, precision=precision, jit_compile=jit)
        source = setup.read_sources()["train"]
        with rematerialized(setup.parts.model, settings.rematerialize):
            for size in [1 << power for power in range(min(source.count, LARGEST).bit_length())]:
                try:
                    _train_steps(setup.parts.model, source.first_batch(size))
                except Exception as error:
                    if out_of_memory := find_out_of_memory(error):
                        return first_line(out_of_memory)
                    raise ComponentError(
                        f"training with {module} raised: {first_line(error)}", "a model that trains", "fix the model"
                    ) from error
                with Path(log_file).open("a") as file:
                    file.write(f"{size}\n")
    return "the split has no more examples" if source.count < LARGEST else f"{LARGEST} is the largest that is tried"


def _train_steps(model: Any, batch: tuple[Any, Any]) -> None:
    for _ in range(STEPS):
        model.train_on_batch(*batch)
