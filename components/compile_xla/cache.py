"""Cache of programs that XLA compiled, which TensorFlow reads instead of compiling: ``assets.extra/xla_cache``.

TensorFlow writes and reads the files, one for each program and input shape, if ``TF_XLA_FLAGS`` names a folder. The
name of a file is a fingerprint of the program and its shapes; it does not depend on the model's path. A file contains
machine code with the weights, for the processor that it was compiled on.
"""

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tfopt.artifacts import SavedModel
from tfopt.components.compile_xla.latency import measure_models
from tfopt.data.batches import Batch
from tfopt.measurement.machine_fingerprint import cpu_facts
from tfopt.processes.subprocess_call import run_in_child
from tfopt.value_types import JsonObject

FOLDER = Path("assets.extra", "xla_cache")
_READ_ONLY = "--tf_xla_persistent_cache_read_only"

log = logging.getLogger(__name__)


@contextlib.contextmanager
def cache_environment(folder: Path) -> Iterator[dict[str, str]]:
    """Yield environment variables with which a process stores compiled programs in an existing folder.

    The variables are valid until the block ends. They name a symbolic link, because a space ends a flag of TensorFlow.
    """
    with tempfile.TemporaryDirectory(prefix="tfopt-") as scratch:
        link = Path(scratch, "cache")
        link.symlink_to(folder.resolve())
        yield {"TF_XLA_FLAGS": f"{os.environ.get('TF_XLA_FLAGS', '')} {_flag(link)}".strip()}


def measure_cache(target: Path, batches: dict[int, Batch]) -> JsonObject:
    """Load a model with the cache that is stored in it.

    Returns:
        The number of programs, their bytes, the flags with which a process reads them, their processor, and the times
        of `measure_models` in a fresh process that reads them.
    """
    folder = target / "Format-Serving" / FOLDER
    with cache_environment(folder) as environment:
        environment["TF_XLA_FLAGS"] += f" {_READ_ONLY}"
        (times,) = run_in_child(
            *(measure_models, [SavedModel(target)], batches),
            doing="running the compiled model from its cache",
            environment=environment,
        )
    for size, seconds in times["batches"].items():
        log.info("batch %s: loading from the cache takes %.1f s instead of compiling", size, seconds["compile_s"])
    files = list(folder.iterdir())
    return {
        "programs": len(files),
        "bytes": sum(file.stat().st_size for file in files),
        "TF_XLA_FLAGS": f"{_flag(Path('PATH_OF_THE_MODEL') / FOLDER)} {_READ_ONLY}",
        "processor": cpu_facts()["model"],
        "from_cache": times,
    }


def _flag(folder: Path) -> str:
    return f"--tf_xla_persistent_cache_directory={folder}"
